"""What is the fault of an environment, not of this program."""

from __future__ import annotations


class EnvironmentFault(RuntimeError):
    """An environment did what it must not; the message names it, which copy, and what it did."""


class Unsuitable(ValueError):
    """An environment whose spaces cannot be dealt with; the message says which can."""


def shown(text: str, width: int = 80) -> str:
    """A text that a terminal can show, shortened in its middle."""
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return text if len(text) <= width else f"{text[: width // 2]} ... {text[-width // 4 :]}"


def written(value: object) -> str:
    """Any value as Python writes it, in one line."""
    try:
        return shown(" ".join(repr(value)[:10_000].split()))
    except (Exception, SystemExit):
        return f"a {type(value).__name__} that cannot be shown"


def told(value: object) -> str:
    """Any value, and its type."""
    return f"{written(value)}, of type {type(value).__name__}"


def described(error: BaseException) -> str:
    """An exception of somebody else's class in one line, whatever its own words do."""
    try:
        words = " ".join(str(error)[:10_000].split())
    except BaseException:
        words = "its message cannot be shown"
    return f"{type(error).__name__}: {shown(words, 300)}" if words else type(error).__name__
