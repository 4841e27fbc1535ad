"""How much learning the data that has come in allows: the one rule behind replay ratio and steps per update."""

from __future__ import annotations


def due(given: float, taken: float, *, first: float = 0, ratio: float = 1.0, cost: float = 1.0) -> float:
    """What may still be taken; negative where more has been taken than was earned.

        (given - first) ratio / cost - taken

    Args:
      given: sequences inserted, or environment steps.
      taken: samples drawn, or updates made.
      first: how much of `given` earns nothing.
      ratio: what each of the others earns.
      cost: what is earned per unit of `taken`.
    """
    return (given - first) * ratio / cost - taken
