"""Statistics of episodes while they are played, in NumPy."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import LONGEST_EPISODE, discounted_returns


class SeenByHeads(Protocol):
    """What H value functions see of an environment's rewards and discounts: [...] -> float64 [..., H] each."""

    def rewards(self, rewards: Any) -> np.ndarray: ...

    def discounts(self, discounts: Any) -> np.ndarray: ...


class EpisodeStatistics:
    """Turns the steps of N environments into `ReturnMoments`: rewards at once, returns at an episode's end.

    Args:
      num_envs: N.
      heads: what each of H heads sees of a step.
      max_report_steps: returns of longer episodes are cut every so many steps.
      tasks: int [N], the head that each environment's steps are of; None: each step is of all heads.

    Attributes:
      lengths: int64 [N], steps of each environment whose returns are not known yet.
    """

    def __init__(
        self,
        num_envs: int,
        heads: SeenByHeads,
        max_report_steps: int = LONGEST_EPISODE,
        tasks: np.ndarray | None = None,
    ):
        self._heads = heads
        self._max_steps = max_report_steps
        self._tasks = tasks
        self.lengths = np.zeros(num_envs, np.int64)
        self._envs = np.arange(num_envs)
        # Rewards and discounts of open episodes; doubled when one is longer.
        self._open = np.zeros((2, num_envs, min(128, max_report_steps)))
        # Since the last `take`: of each step [3, N] rewards, discounts and whether they count; of each finished episode
        # its environment, and rewards and discounts [2, T].
        self._new: list[np.ndarray] = []
        self._finished: list[tuple[int, np.ndarray]] = []

    def step(self, rewards: np.ndarray, discounts: np.ndarray, counts: np.ndarray, over: np.ndarray) -> None:
        """Takes in a step of every environment, [N] each.

        Args:
          rewards: as the environment pays them.
          discounts: 0 at a terminal step, else 1.
          counts: bool, False where the step is only a reset, or its reward is to be left out.
          over: bool, whether the episode has ended with it.
        """
        step = np.array([rewards, discounts, counts])
        self._new.append(step)
        # The next step overwrites one that does not count.
        self._open[:, self._envs, self.lengths] = step[:2]
        self.lengths = self.lengths + counts
        self.finish(over | (self.lengths >= self._max_steps))
        if self.lengths.max(initial=0) == self._open.shape[2]:
            self._open = np.concatenate([self._open, np.zeros_like(self._open)], axis=2)

    def finish(self, which: np.ndarray) -> None:
        """Ends the open episodes of the environments `which`, bool [N]: their returns are known."""
        if not which.any():
            return
        for env in np.flatnonzero(which & (self.lengths > 0)):
            steps = self._open[:, env, : self.lengths[env]].copy()
            steps[1, -1] = 0.0  # nothing follows, which keeps episodes apart
            self._finished.append((env, steps))
        self.lengths = np.where(which, 0, self.lengths)

    @property
    def num_new(self) -> int:
        """Steps of every environment since the last `take`."""
        return len(self._new)

    @property
    def has_returns(self) -> bool:
        """Whether an episode has ended since the last `take`."""
        return bool(self._finished)

    def take(self) -> ReturnMoments:
        """Moments of everything since the last call: steps in their order, returns environment by environment."""
        steps = np.stack(self._new, axis=1) if self._new else np.zeros((3, 0, len(self.lengths)))
        finished = sorted(self._finished, key=lambda env_and_steps: env_and_steps[0])
        self._new, self._finished = [], []
        if self._tasks is None:
            return self._compute_moments(steps, [episode for _, episode in finished], slice(None))
        (num_heads,) = self._heads.rewards(0.0).shape
        total = ReturnMoments.empty(num_heads)
        for task in np.unique(self._tasks):
            episodes = [episode for env, episode in finished if self._tasks[env] == task]
            own = self._compute_moments(steps[..., self._tasks == task], episodes, [task])
            total = ReturnMoments.merge(total, own.put_in_head(task, num_heads))
        return total

    def _compute_moments(
        self, steps: np.ndarray, episodes: list[np.ndarray], columns: slice | list[int]
    ) -> ReturnMoments:
        """Moments of steps [3, K, N] and of episodes, [2, T] each, as these heads see them."""
        counted = steps[:2, steps[2].astype(bool)]
        rewards, discounts = self._head_columns(counted, columns)
        moments = ReturnMoments.from_steps(rewards, discounts)
        if not episodes:
            return moments
        rewards, discounts = self._head_columns(np.concatenate(episodes, axis=1), columns)
        returns = discounted_returns(rewards, discounts)
        return ReturnMoments.merge(moments, ReturnMoments.from_returns(returns))

    def _head_columns(self, steps: np.ndarray, columns: slice | list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and discounts of steps [2, T], as these heads see them: float64 [T, columns] each."""
        return self._heads.rewards(steps[0])[:, columns], self._heads.discounts(steps[1])[:, columns]
