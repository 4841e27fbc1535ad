"""Simulated episodes, and the TD errors of values on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rbs_tf import ReturnMoments, discounted_returns


class Episode(NamedTuple):
    """One finished episode: rewards float64 [T], and whether it ended by itself or was cut by a time-out."""

    rewards: np.ndarray
    terminal: bool = True


class Stream(NamedTuple):
    """Episodes one after another, N steps in all.

    Attributes:
      rewards: float64 [N].
      discounts: float64 [N]: gamma, 0 on terminal steps.
      last: bool [N], each episode's last step, terminal or cut.
    """

    rewards: np.ndarray
    discounts: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, episodes: Sequence[Episode], gamma: float) -> Stream:
        """The episodes under one discount."""
        ends = np.cumsum([len(episode.rewards) for episode in episodes]) - 1
        last = np.zeros(ends[-1] + 1, bool)
        last[ends] = True
        discounts = np.full(len(last), gamma)
        discounts[ends[[episode.terminal for episode in episodes]]] = 0.0
        return cls(np.concatenate([episode.rewards for episode in episodes]), discounts, last)

    @property
    def returns(self) -> np.ndarray:
        """G, float64 [N]; of an episode that was cut, up to the cut."""
        return discounted_returns(self.rewards, np.where(self.last, 0.0, self.discounts))

    @property
    def moments(self) -> ReturnMoments:
        """All steps and returns, one head."""
        steps = ReturnMoments.from_steps(self.rewards, self.discounts)
        return ReturnMoments.merge(steps, ReturnMoments.from_returns(self.returns))

    def following(self, values: np.ndarray) -> np.ndarray:
        """V' of values V [..., N]: the next step's value, 0 after an episode's last step."""
        return np.where(self.last, 0.0, np.roll(values, -1, axis=-1))

    def errors(self, values: np.ndarray) -> np.ndarray:
        """TD errors R + gamma V' - V of values [..., N], in the same shape."""
        return self.rewards + self.discounts * self.following(values) - values

    def early_values(self, count: int, seed: int = 0) -> np.ndarray:
        """float64 [count, N]: the returns, circularly shifted by random numbers of steps.

        What the paper takes values to be early in learning: as large and as smooth as returns, but unrelated to
        the state (section 3.1).
        """
        returns = self.returns
        shifts = np.random.default_rng(seed).integers(1, max(len(returns), 2), size=count)
        return np.stack([np.roll(returns, shift) for shift in shifts])
