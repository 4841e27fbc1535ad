"""What is the fault of an environment, not of this program."""

from __future__ import annotations


class EnvironmentFault(RuntimeError):
    """An environment did what it must not; the message names it, which copy, and what it did."""


class Unsuitable(ValueError):
    """An environment whose spaces cannot be dealt with; the message says which can."""


def shorten(text: str, width: int = 80) -> str:
    """A text that a terminal can show, shortened in its middle."""
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return text if len(text) <= width else f"{text[: width // 2]} ... {text[-width // 4 :]}"


def describe(value: object, typed: bool = False) -> str:
    """Any value in one line: an exception as its class and words, all else as Python writes it, with its type if asked.

    Never raises.
    """
    is_error = isinstance(value, BaseException)
    kind = type(value).__name__
    try:
        words = " ".join((str(value) if is_error else repr(value))[:10_000].split())
    except BaseException:
        words = "it cannot be shown"
    if is_error:
        return f"{kind}: {shorten(words, 300)}" if words else kind
    return f"{shorten(words)}, of type {kind}" if typed else shorten(words)
