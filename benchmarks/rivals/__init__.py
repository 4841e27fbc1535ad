"""The learner's update in other frameworks, each a program of its own that works in an environment of its own.

Started as `python -m benchmarks.rivals.NAME work.npz`, it reads a request per line, makes updates and answers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BETA_1, BETA_2 = 0.9, 0.999  # of Adam

# Makes so many updates with the batch of that name: CPU seconds of one, "cpu", and "loss" and "priorities" of the last.
Way = Callable[[str, int], dict[str, Any]]


class Settings(NamedTuple):
    """Constants of all updates, as in `agents.agent.RecurrentMultiHeadAgent`."""

    burn_in: int
    length: int
    n_step: int
    image: list[int]  # height and width
    pixels: bool  # or flags
    strides: list[int]
    discounts: list[float]  # of H heads
    clips: list[bool]
    learning_rate: float
    adam_epsilon: float
    target_update_period: int
    priority_eta: float
    importance_exponent: float


def load(path: str) -> tuple[Settings, dict[str, dict[str, np.ndarray]]]:
    """Settings, and the arrays of "online", "target" and each batch, by name."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as file:
        for name in file.files:
            group, _, key = name.rpartition("/")
            groups.setdefault(group, {})[key] = file[name]
    return Settings(**json.loads(str(groups.pop("")["settings"]))), groups


def way(update: Callable[[str], Any], numbers: Callable[[Any], tuple[float, list[float]]]) -> Way:
    """Updates in this process.

    Args:
      update: makes one with the batch of that name; need not wait for its result.
      numbers: waits for what `update` has returned: loss and priorities.
    """

    def train(batch: str, updates: int) -> dict[str, Any]:
        cpu = time.process_time()
        for _ in range(updates):
            loss, priorities = numbers(update(batch))
        return {"cpu": (time.process_time() - cpu) / updates, "loss": loss, "priorities": priorities}

    return train


def serve(train: Way) -> None:
    """Answers [batch, updates] in a line of the input with a line of the output, until the input ends."""
    for line in sys.stdin:
        print(json.dumps(train(*json.loads(line))), flush=True)
