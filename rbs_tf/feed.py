"""What the wrappers of `collect_returns` share: rewards in, statistics out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.episode_statistics import EpisodeStatistics
from rbs_tf.moments import check_heads
from rbs_tf.returns import LARGEST, real_numbers


class Feed:
    """Feeds a scaling with the steps of N environments that step together.

    Args: those of `collect_returns`, and raises what it raises.

    Attributes:
      scaling: what it feeds.
      heads: the numbers of the heads that its steps are of.
    """

    def __init__(
        self,
        num_envs: int,
        scaling: Any,
        gamma: ArrayLike,
        head: ArrayLike | None,
        report_steps: int,
        max_report_steps: int,
    ):
        if isinstance(scaling, type) or not callable(getattr(scaling, "merge_state", None)):
            raise TypeError(f"scaling must be a ReturnScaling, or have its merge_state; got {scaling!r}")
        gammas = real_numbers("gamma", gamma)
        heads = getattr(scaling, "num_heads", gammas.size)
        within = gammas.dtype != bool and ((gammas >= 0.0) & (gammas <= 1.0)).all()
        if not within or gammas.shape not in ((), (heads,)) or not gammas.size:
            several = f" or {heads}, one per head" if heads > 1 else ""
            raise ValueError(f"gamma must be within [0, 1], one number{several}; got {gamma!r}")
        for name, steps in (("report_steps", report_steps), ("max_report_steps", max_report_steps)):
            if not isinstance(steps, int | np.integer) or steps < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {steps!r}")
        tasks = None
        if head is not None:
            tasks = check_heads(head, heads)
            if tasks.shape not in ((), (num_envs,)):
                raise ValueError(f"head must be one number, or one per environment, {num_envs}; got {head!r}")
            tasks = np.broadcast_to(tasks, num_envs)
        of_heads = _SameRewards(np.broadcast_to(gammas, heads))
        self.scaling = scaling
        self.heads = {*range(heads)} if tasks is None else {*tasks.tolist()}
        self._statistics = EpisodeStatistics(num_envs, of_heads, max_report_steps, tasks)
        self._report_steps = self._early = report_steps  # the first steps are reported one by one

    def step(self, rewards: np.ndarray, terminal: np.ndarray, over: np.ndarray, counts: np.ndarray) -> None:
        """Takes in a step of every environment, and reports if it is time.

        Rewards float64 [N]; whether the episode has terminated, and whether it has ended, bool [N]; `counts` is False
        where the step only resets. Raises ValueError for a reward that cannot be counted; the others have been.
        """
        fits = np.abs(rewards) < LARGEST
        before = self._statistics.lengths
        self._statistics.step(rewards, np.where(terminal, 0.0, 1.0), fits & counts, over)
        early = self._early > 0
        self._early = max(self._early - 1, 0)
        new = self._statistics.num_new
        if early or self._statistics.has_returns or new == self._report_steps:
            self.report()
        wrong = ~fits & counts
        if wrong.any():
            index = int(wrong.argmax())
            whose = f" of environment {index}" if len(wrong) > 1 else ""
            given = f"the reward{whose} is {rewards[index]} at step {before[index]} of its episode"
            raise ValueError(f"{given}; expected a number below {LARGEST:g}. It has been left out")

    def finish(self, which: np.ndarray) -> None:
        """Cuts the open episodes of the environments `which`, bool [N], and reports their returns, if there are any."""
        self._statistics.finish(which)
        if self._statistics.has_returns:
            self.report()

    def report(self) -> None:
        """Adds what is new to the scaling: steps, and returns that are known."""
        home = getattr(self.scaling, "home", None)
        if home is not None:
            home.check()
        self.scaling.merge_state(self._statistics.take())


@dataclass(frozen=True)
class _SameRewards:
    """H heads that all see the environment's rewards, and its discounts times their own, float64 [H]."""

    gammas: np.ndarray

    def rewards(self, rewards: ArrayLike) -> np.ndarray:
        return np.repeat(np.asarray(rewards, np.float64)[..., None], len(self.gammas), axis=-1)

    def discounts(self, discounts: ArrayLike) -> np.ndarray:
        return np.asarray(discounts, np.float64)[..., None] * self.gammas


def check_values(name: str, values: Any, dtype: type, shape: tuple[int, ...] = ()) -> np.ndarray:
    """The values in this shape and dtype; for one environment, any array of one value fits.

    Raises:
      ValueError: another shape, which NumPy would spread over environments; no numbers.
    """
    array: np.ndarray = real_numbers(name, values).astype(dtype)
    if not shape and array.size == 1:
        array = array.reshape(())
    if array.shape != shape:
        expected = f"shape {shape}, one value per environment" if shape else "one value"
        raise ValueError(f"{name} must have {expected}; got shape {array.shape}")
    return array
