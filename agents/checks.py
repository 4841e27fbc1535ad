"""What may be given for a setting, and the sentence that refuses anything else."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

from rbs_tf.errors import describe

_LARGEST_INT = 2**63 - 1  # what int64 holds; larger whole numbers fit no setting


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of values.

    Attributes:
      words: what a value has to be, as in "a number from 0 to 1".
      fits: says whether a value is of this kind.
    """

    words: str
    fits: Callable[[Any], bool]


def whole(unit: str = "", least: int = 0, most: int = _LARGEST_INT) -> Kind:
    """Whole numbers from `least` to `most`."""
    limits = f"of at least {least:,}" if most == _LARGEST_INT else f"from {least:,} to {most:,}"

    def fits(value: Any) -> bool:
        # Python counts True and False among the numbers, people do not.
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return is_whole and least <= int(value) <= most

    return Kind(f"a whole number {limits}{_bracket(unit)}", fits)


def number(
    unit: str = "",
    least: float = -math.inf,
    most: float = math.inf,
    above: float | None = None,
    finite: bool = True,
) -> Kind:
    """Numbers from `least`, or from above another, to `most`; infinite ones only if not `finite`, NaN never."""
    if above is not None:
        limits = f" above {above:g}" + (f", up to {most:g}" if most < math.inf else "")
    elif most < math.inf:
        limits = f" from {least:g} to {most:g}"
    else:
        limits = f" of at least {least:g}" if least > -math.inf else ""

    def fits(value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        size = float(value)
        is_above = size >= least if above is None else size > above
        return is_above and size <= most and not (finite and math.isinf(size))

    return Kind(f"a number{limits}{_bracket(unit)}", fits)


def choice(*names: str) -> Kind:
    """One of these strings."""
    return Kind(
        f"one of {', '.join(map(repr, names))}", lambda value: isinstance(value, str) and value in names
    )


def several(what: str, kind: Kind) -> Kind:
    """A tuple or list of at least one, each of a kind; `what` they are, in words."""

    def fits(values: Any) -> bool:
        return isinstance(values, tuple | list) and len(values) > 0 and all(map(kind.fits, values))

    return Kind(f"a tuple of {what}, each {kind.words}", fits)


def optional(kind: Kind) -> Kind:
    """None, or one of a kind."""
    return Kind(f"{kind.words}, or None", lambda value: value is None or kind.fits(value))


def factory(words: str, made: type) -> Kind:
    """What can be called to make something; a class has to be a subclass of `made`."""

    def fits(value: Any) -> bool:
        return issubclass(value, made) if isinstance(value, type) else callable(value)

    return Kind(words, fits)


FLAG = Kind("True or False", lambda value: isinstance(value, bool))


def check(name: str, value: Any, kind: Kind, example: Any) -> None:
    """Raises ValueError for a value of another kind; `example`: what to write, in Python or as "@NAME"."""
    if kind.fits(value):
        return
    given = f"@{value.__name__}" if callable(value) and hasattr(value, "__name__") else describe(value)
    example = example if isinstance(example, str) and example.startswith("@") else repr(example)
    raise ValueError(f"{name} = {given}: expected {kind.words}. Write for example: {name} = {example}")


def setting(default: Any, kind: Kind, example: Any = None, paper: str = "", gin: bool = True) -> Any:
    """A field of a `Checked` dataclass, whose docstring says what it means.

    Args:
      default: its value if nothing sets it.
      kind: of values that may be given.
      example: what to write; None: the default.
      paper: the paper's value, for the documentation; empty where the paper has no such setting.
      gin: whether a configuration may set it.
    """
    example = default if example is None else example
    metadata = {"kind": kind, "example": example, "paper": paper, "gin": gin}
    return dataclasses.field(default=default, metadata=metadata)


class Checked:
    """A frozen dataclass whose fields are made by `setting`, and are checked when it is constructed.

    Attributes:
      known_as: its name in a configuration.
      built: what has the settings for its arguments, and says in its docstring what they mean; None: the class itself.
    """

    known_as: ClassVar[str]
    built: ClassVar[Any] = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # of what is derived
            name = f"{self.known_as}.{field.name}"
            about = field.metadata
            check(name, getattr(self, field.name), about["kind"], about["example"])


def _bracket(unit: str) -> str:
    return f" ({unit})" if unit else ""
