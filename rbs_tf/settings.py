"""Settings, each written once: type, range, unit and default stand where the parameter is declared.

    @configurable("pop_art", module="scalings")
    class PopArt(Scaling):
        def __init__(self, num_heads: int, step_size: Annotated[float, Setting(above=0, most=1)] = 1e-3): ...

`configurable` refuses other values whenever the class or function is called. Where gin is installed, a configuration
may name every parameter that is annotated like this; `settings_of` finds them for commands and documentation.
"""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from rbs_tf.errors import described

Decorated = TypeVar("Decorated", bound=Callable)


# Every configurable of this program that is imported, by the name that people write in a configuration.
CONFIGURABLES: dict[str, Callable] = {}
_LARGEST_INT = 2**63 - 1  # what int64 holds; larger whole numbers fit no setting
# Of numbers other than 0: what float32 holds, with room for a product.
_SMALLEST_FLOAT, _LARGEST_FLOAT = 1e-37, 1e38


@dataclasses.dataclass(frozen=True)
class Setting:
    """What may be given for a parameter, beyond its type: `int`, `float`, `bool`, `Literal`, a `Sequence`, or None.

    Args:
      unit: of a number, in words.
      least, most: of a number, or of each in a sequence.
      above: a number that it has to be larger than, in place of `least`.
      finite: whether a number may not be infinite; NaN never fits.
      kind: what it is in words, for types of which nothing can be told from the annotation.
      fits: says whether a value is of that kind; None for any value.
      example: what to write; None: the default.
      paper: the paper's value, for the documentation; empty where the paper has no such parameter.
      gin: whether a configuration may name it. Constants of published methods are for Python only.
    """

    unit: str = ""
    least: float = -math.inf
    most: float = math.inf
    above: float | None = None
    finite: bool = True
    kind: str = ""
    fits: Callable[[Any], bool] | None = None
    example: Any = None
    paper: str = ""
    gin: bool = True


@dataclasses.dataclass(frozen=True)
class Declared:
    """A setting as it is declared: type, what may be given, default (`inspect.Parameter.empty` for none)."""

    hint: Any
    setting: Setting
    default: Any

    @property
    def expected(self) -> str:
        """What may be given, in words."""
        if kinds := self._alternatives:
            *others, last = ("None" if kind.hint is type(None) else kind.expected for kind in kinds)
            return f"{', '.join(others)}, or {last}"
        hint, setting = self.hint, self.setting
        if setting.kind:
            return setting.kind
        if hint is bool:
            return "True or False"
        if typing.get_origin(hint) is Literal:
            return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
        if typing.get_origin(hint) is collections.abc.Sequence:
            return f"a tuple of {setting.unit}, each {self._each.expected}"
        words = "a whole number" if hint is int else "a number"
        least, most = _grouped(setting.least), _grouped(setting.most)
        if setting.above is not None:
            words += f" above {_grouped(setting.above)}" + (
                f", up to {most}" if setting.most < math.inf else ""
            )
        elif setting.least > -math.inf:
            words += f" from {least} to {most}" if setting.most < math.inf else f" of at least {least}"
        return words + (f" ({setting.unit})" if setting.unit else "")

    @property
    def example(self) -> str:
        """What to write, in gin's syntax."""
        example = self.default if self.setting.example is None else self.setting.example
        return example if isinstance(example, str) and example.startswith("@") else repr(example)

    @property
    def shown_default(self) -> str:
        """The default; of a class or function its name."""
        return getattr(self.default, "__name__", repr(self.default))

    def fits(self, value: Any) -> bool:
        """Says whether the value may be given."""
        if kinds := self._alternatives:
            return any(kind.fits(value) for kind in kinds)
        hint, setting = self.hint, self.setting
        if hint is type(None):
            return value is None
        if setting.fits is not None:
            return setting.fits(value)
        if hint is bool:
            return isinstance(value, bool)
        if typing.get_origin(hint) is Literal:
            return isinstance(value, str) and value in typing.get_args(hint)
        if typing.get_origin(hint) is collections.abc.Sequence:
            return isinstance(value, tuple | list) and len(value) > 0 and all(map(self._each.fits, value))
        # Python counts True and False among the numbers, people do not.
        kind: Any = numbers.Integral if hint is int else numbers.Real
        if not isinstance(value, kind) or isinstance(value, bool):
            return False
        above = value >= setting.least if setting.above is None else value > setting.above
        return bool(above and value <= setting.most and _held(value, setting))

    @property
    def _alternatives(self) -> list[Declared]:
        is_union = typing.get_origin(self.hint) in (typing.Union, types.UnionType)
        return [dataclasses.replace(self, hint=kind) for kind in typing.get_args(self.hint) if is_union]

    @property
    def _each(self) -> Declared:
        """Of a sequence."""
        (hint,) = typing.get_args(self.hint)
        return dataclasses.replace(self, hint=hint, setting=dataclasses.replace(self.setting, unit=""))


def configurable(name: str | None = None, *, module: str) -> Callable[[Decorated], Decorated]:
    """Checks the annotated parameters of a class or function at every call, and makes them known to gin if it is there.

    A class remembers its name as `known_as`.

    Raises:
      ValueError: from what is decorated, on a value that does not fit.
    """

    def decorate(decorated: Decorated) -> Decorated:
        known_as = name or decorated.__name__
        known_as = f"{module}.{known_as}" if module == "environments" else known_as
        checked: Any = decorated
        if inspect.isclass(decorated):
            checked.__init__ = _checking(checked.__init__, known_as)
            checked.known_as = known_as
        else:
            checked = _checking(decorated, known_as)
        with contextlib.suppress(ImportError):
            import gin

            checked = gin.configurable(name, module=module)(checked)
        CONFIGURABLES[known_as] = checked
        return checked

    return decorate


def settings_of(function: Callable) -> dict[str, Declared]:
    """The settings of a class or function, by the names of its parameters."""
    called: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    return _settings_of(inspect.unwrap(called))


@functools.cache
def _settings_of(function: Callable) -> dict[str, Declared]:
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        with contextlib.suppress(NameError):  # what only type checkers import; so not all at once
            hint = eval(hint, function.__globals__) if isinstance(hint, str) else hint
        if typing.get_origin(hint) is Annotated:
            found[name] = Declared(hint.__origin__, hint.__metadata__[0], parameter.default)
    return found


def in_force(name: str) -> Any:
    """The value of a parameter, or its default, by the name that a configuration gives it, as "train.seed"."""
    import gin

    try:
        return copy.deepcopy(gin.query_parameter(name))  # a copy, because it evaluates macros
    except ValueError:
        return default_of(name)


def reference(name: str) -> str | None:
    """What a parameter is bound to as text, macros followed, as in "@scalings.none"; None where nothing binds it."""
    import gin

    try:
        found = str(gin.query_parameter(name))
        while found.startswith("%"):
            found = str(gin.query_parameter(f"{found[1:]}/gin.macro.value"))
    except ValueError:
        return None
    return found


def default_of(name: str) -> Any:
    """The default of a parameter, by the name that a configuration gives it."""
    import gin

    configurable, _, parameter = name.rpartition(".")
    return inspect.signature(gin.get_configurable(configurable)).parameters[parameter].default


def _checking(function: Callable, known_as: str) -> Callable:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind_partial(*args, **kwargs).arguments
        for name, declared in settings_of(function).items():
            if name in given and not declared.fits(given[name]):
                raise ValueError(refusal(f"{known_as}.{name}", given[name], declared))
        return function(*args, **kwargs)

    vars(checked)["__signature__"] = signature  # gin does not look behind wrappers
    return checked


def makes(kind: type) -> Callable[[Any], bool]:
    """For `Setting.fits`: what can be called to make one; a class has to be of this kind, nothing is gin's own."""

    def fits(value: Any) -> bool:
        is_factory = callable(value) and getattr(value, "__module__", "") != "gin.config"
        return issubclass(value, kind) if isinstance(value, type) else is_factory

    return fits


def refusal(name: str, value: Any, declared: Declared) -> str:
    """A sentence that says what is wrong with a value, what is expected, and what to write."""
    given = f"@{value.__name__}" if callable(value) and hasattr(value, "__name__") else described(value)
    finite = isinstance(value, numbers.Real) and value == value and abs(value) != math.inf
    too_far = finite and not _held(value, declared.setting)
    held = ", of a size that float32 and int64 hold" if too_far else ""
    return f"{name} = {given}: expected {declared.expected}{held}. Write for example: {name} = {declared.example}"


def _grouped(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def _held(value: Any, setting: Setting) -> bool:
    """Says whether float32 and int64 hold a number; NaN is none."""
    if isinstance(value, numbers.Integral):
        return bool(abs(int(value)) <= _LARGEST_INT)
    infinite = not setting.finite and abs(value) == math.inf
    return bool(value == 0 or _SMALLEST_FLOAT <= abs(value) <= _LARGEST_FLOAT or infinite)
