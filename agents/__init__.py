"""The paper's agent: a recurrent DQN with many heads, its replay, and all that trains, watches and plays it.

For Python programs: `train` trains, `Agent` acts as a run has learned to, and both raise `UsageError` for what cannot
be. TensorFlow is imported with the first of the two.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agents.errors import UsageError
from agents.running.startup import quiet

if TYPE_CHECKING:
    from agents.api import Agent, train

__all__ = ["Agent", "UsageError", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    quiet()  # before TensorFlow is imported
    return getattr(importlib.import_module("agents.api"), name)
