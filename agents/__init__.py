"""The paper's agent: a recurrent DQN with many heads, its replay, and all that trains, watches and plays it.

For Python programs: `train` trains, and `Agent` acts as a run has learned to. Both raise `UsageError` for what cannot
be done. `RecurrentMultiHeadAgent`, `Heads` and `SequenceShape` are for TF-Agents pipelines of your own.
TensorFlow is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agents.errors import UsageError
from agents.running.startup import quiet

if TYPE_CHECKING:
    from agents.agent import RecurrentMultiHeadAgent
    from agents.api import Agent, train
    from agents.heads import Heads
    from agents.sequences import SequenceShape

_MODULES = {
    "Agent": "agents.api",
    "Heads": "agents.heads",
    "RecurrentMultiHeadAgent": "agents.agent",
    "SequenceShape": "agents.sequences",
    "train": "agents.api",
}

__all__ = ["Agent", "Heads", "RecurrentMultiHeadAgent", "SequenceShape", "UsageError", "train"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    quiet()  # before TensorFlow is imported
    return getattr(importlib.import_module(_MODULES[name]), name)
