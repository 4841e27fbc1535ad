"""What is the fault of an environment, not of this program."""

from __future__ import annotations


class EnvironmentFault(RuntimeError):
    """An environment did what it must not; the message names it, which copy, and what it did."""


class Unsuitable(ValueError):
    """An environment whose spaces cannot be dealt with; the message says which can."""


def described(error: BaseException) -> str:
    """An exception of somebody else's class in one line, whatever its own words do."""
    try:
        words = " ".join(str(error).split())
    except Exception:
        words = "its message cannot be shown"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
