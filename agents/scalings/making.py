"""Builds a scaling from a class, a layer or a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from agents import scalings
from agents.scalings.return_based import ReturnBasedScaling
from agents.scalings.scaling import Scaling
from rbs_tf.return_scaling import ReturnScaling

Choice: TypeAlias = Callable[[int], Scaling] | Scaling | ReturnScaling | str | None


def make(choice: Choice, num_heads: int) -> Scaling:
    """Builds the scaling for H = `num_heads` value functions.

    Args:
      choice: a class of `agents.scalings`, or another factory called with H; a scaling; a `ReturnScaling` layer for
        the paper's scaling with its statistics; a name, as `--scaling` of train.py takes it ("return", "return_out",
        "pop_art"); None for no scaling.

    Raises:
      TypeError: none of these.
      ValueError: an unknown name; a layer of another number of heads.
    """
    if choice is None:
        return Scaling(num_heads)
    if isinstance(choice, Scaling):
        return choice
    if isinstance(choice, ReturnScaling):
        return ReturnBasedScaling(num_heads, layer=choice)
    if isinstance(choice, str):
        names = named_scalings()
        if choice.removesuffix("_based") not in names:
            raise ValueError(f"there is no scaling {choice!r}: write one of {', '.join(sorted(names))}")
        choice = names[choice.removesuffix("_based")]
    if not callable(choice):
        raise TypeError(
            f"scaling must be a class of agents.scalings, a ReturnScaling layer, a name, or None; got {choice!r}"
        )
    return choice(num_heads)


def named_scalings() -> dict[str, type[Scaling]]:
    """The scalings that have a name."""
    kinds = (getattr(scalings, name) for name in scalings.__all__)
    named = {vars(kind).get("known_as"): kind for kind in kinds}
    return {name.removesuffix("_based"): kind for name, kind in named.items() if name}


def scaling_name(factory: Callable[[int], Scaling]) -> str:
    """The name of a scaling for gin and people. A class that a user derives has its own name, not its base's."""
    return vars(factory).get("known_as", getattr(factory, "__name__", "scaling"))
