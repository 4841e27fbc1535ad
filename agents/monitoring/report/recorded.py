"""Settings of runs, read from gin's files without running anything, and what tells groups of runs apart."""

from __future__ import annotations

import tokenize
from collections.abc import Mapping, Sequence
from typing import Any

from gin import config_parser

Settings = Mapping[str, Any]  # "selector.parameter" -> a Python literal or a `Reference`

SCALING = "train.scaling"
SCALED, UNSCALED = "@scalings.return_based", "@scalings.none"  # the paper's comparison
# Runs that differ in these only are repetitions of one method, in one environment or in several.
REPETITION = frozenset({"train.seed", "train.env", "train.updates", "train.environment_steps"})
_FIRST = (SCALING, "Heads.pairs")  # what a group is named after, where they differ


class Reference(str):
    """A name that stands for something else: "@scalings.none", or a macro "%name" that is not defined."""

    __repr__ = str.__str__


class _Delegate(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        return Reference(f"@{scoped_configurable_name}{'()' if evaluate else ''}")

    def macro(self, macro_name: str) -> Reference:
        return Reference(f"%{macro_name}")


def parse(text: str) -> dict[str, Any]:
    """Settings in the text of a gin file as gin writes it; macros are replaced by their values.

    Raises:
      SyntaxError, ValueError: it is no such text, or half of one.
    """
    settings: dict[str, Any] = {}
    macros: dict[Reference, Any] = {}
    try:
        for statement in config_parser.ConfigParser(text, _Delegate()):
            if isinstance(statement, config_parser.BindingStatement):
                scope = f"{statement.scope}/" if statement.scope else ""
                name = f"{scope}{statement.selector}"
                if statement.arg_name:
                    settings[f"{name}.{statement.arg_name}"] = statement.value
                else:
                    macros[Reference(f"%{name}")] = statement.value
    except tokenize.TokenError as error:
        raise SyntaxError(str(error)) from error

    def resolve(value: Any) -> Any:
        if isinstance(value, Reference):
            return resolve(macros[value]) if value in macros else value
        if isinstance(value, list | tuple):
            return type(value)(map(resolve, value))
        if isinstance(value, dict):
            return {key: resolve(each) for key, each in value.items()}
        return value

    return resolve(settings)


def describe_method(settings: Settings) -> dict[str, str]:
    """A run's group as text: all of its settings but seed, environment and length."""
    return {name: repr(value) for name, value in settings.items() if name not in REPETITION}


def find_differing(methods: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of the settings that have two values or more, or that some groups lack, such as a scaling's parameters."""
    names = sorted(set().union(*methods))
    return [name for name in names if len({settings.get(name) for settings in methods}) > 1]


def label_methods(methods: Sequence[Mapping[str, str]]) -> list[str]:
    """A name for each group: its scaling, its heads, then other settings in alphabetical order, as far as they tell
    groups apart that have equal names so far."""
    if len(methods) == 1:
        return [_format_value(SCALING, methods[0].get(SCALING, "'run'"))]
    chosen: list[str] = []
    apart = 1
    for name in sorted(find_differing(methods), key=lambda name: [name != first for first in _FIRST]):
        kinds = len({tuple(settings.get(part) for part in (*chosen, name)) for settings in methods})
        if kinds > apart:
            chosen = [*chosen, name]
            apart = kinds
    parts = ([_format_value(name, method[name]) for name in chosen if name in method] for method in methods)
    return [", ".join(words) or "the rest" for words in parts]


def _format_value(name: str, value: str) -> str:
    if name == SCALING:
        return value.removeprefix("@").rpartition(".")[2].strip("'")
    if name == "Heads.pairs" and value.startswith("("):
        heads = value.count("(") - 1
        return f"{heads} head{'s' * (heads != 1)} {value if heads < 3 else ''}".strip()
    return f"{name.rpartition('.')[2]} {value}"
