"""The learner's update in other frameworks, each a program of its own that works in an environment of its own.

Started as `python -m benchmarks.rivals.NAME work.npz`, it reads a request per line, makes updates and answers.
`sb3_atari`, in the same environment, has nothing to do with that: it trains other people's agents.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BETA_1, BETA_2 = 0.9, 0.999  # of Adam


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
    sigma: list[float]  # of all the past
    sigma_v: float
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


def serve(update: Callable[[str], Any], numbers: Callable[[Any], tuple[float, list[float]]]) -> None:
    """Answers {"batch": name, "updates": count} with CPU and wall seconds of one update, last loss and priorities.

    Args:
      update: makes one with the batch of that name; need not wait for its result.
      numbers: waits for what `update` has returned: loss and priorities.
    """
    for line in sys.stdin:
        request = json.loads(line)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(request["updates"]):
            loss, priorities = numbers(update(request["batch"]))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        answer = {"cpu": cpu / request["updates"], "wall": wall / request["updates"]}
        print(json.dumps(answer | {"loss": loss, "priorities": priorities}), flush=True)
