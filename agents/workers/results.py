"""What a run tells those who started it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Result(NamedTuple):
    """The end of a run."""

    updates: int
    environment_steps: int
    final_return: float  # mean greedy return of the last evaluation, reward units of the environment; or NaN
    stopped_by: int | None  # the signal that ended it early, behind a checkpoint; 0: `on_evaluation`
    root_dir: str = ""  # of a run that Python has asked for
    head: str = ""  # that acted in the last evaluation


class Evaluated(NamedTuple):
    """One greedy evaluation of a run, as `on_evaluation` gets it; the environment's own rewards, unclipped."""

    update: int  # that the weights are of
    environment_steps: int  # of training, until then
    mean_return: float
    returns: np.ndarray  # float64 [episodes]
    lengths: np.ndarray  # int64 [episodes], environment steps
