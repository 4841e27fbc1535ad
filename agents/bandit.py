"""Which head should act: a bandit over heads that needs no scale."""

from __future__ import annotations

from collections.abc import Sequence

import gin
import numpy as np
import tensorflow as tf


@gin.configurable(module="agents")
class HeadBandit(tf.Module):
    """Prefers the heads whose episodes do at least as well as the recent average.

    Over a window of the last finished training episodes of all heads, with mean return m,

        rating_z = (1/2 + number of z's episodes with return >= m) / (1 + number of z's episodes)

    and head z is drawn with probability rating_z / sum of ratings. Comparing with the mean makes it independent
    of the scale of returns. The paper names Schaul et al. 2019 as its source and gives no formula: this is a
    reconstruction. Returns are undiscounted, of unclipped rewards.

    Args:
      num_heads: H.
      window: how many finished episodes count.
    """

    def __init__(self, num_heads: int, window: int = 200):
        super().__init__(name="head_bandit")
        self.num_heads = num_heads
        self._window_heads = tf.Variable(np.full(window, -1), dtype=tf.int64, trainable=False)
        self._window_returns = tf.Variable(np.zeros(window), dtype=tf.float64, trainable=False)
        self._episodes = tf.Variable(0, dtype=tf.int64, trainable=False)

    def update(self, heads: Sequence[int], returns: Sequence[float]) -> None:
        """Adds finished episodes: the head that acted, and the episode's return (float, raw reward units)."""
        if len(heads) == 0:
            return
        window_heads, window_returns = self._window_heads.numpy(), self._window_returns.numpy()
        episodes = int(self._episodes)
        for head, episode_return in zip(heads, returns, strict=True):
            window_heads[episodes % len(window_heads)] = head
            window_returns[episodes % len(window_heads)] = episode_return
            episodes += 1
        self._window_heads.assign(window_heads)
        self._window_returns.assign(window_returns)
        self._episodes.assign(episodes)

    @property
    def ratings(self) -> np.ndarray:
        """float64 [H], each in (0, 1): near 1 when nearly all of a head's episodes reach the mean."""
        heads, returns = self._window_heads.numpy(), self._window_returns.numpy()
        seen = heads >= 0
        heads, returns = heads[seen], returns[seen]
        good = returns >= returns.mean() if len(returns) else np.zeros(0, bool)
        wins = np.bincount(heads[good], minlength=self.num_heads)
        return (0.5 + wins) / (1.0 + np.bincount(heads, minlength=self.num_heads))

    @property
    def probabilities(self) -> np.ndarray:
        """float64 [H], sums to 1: how likely each head is to act in the next training episode."""
        ratings = self.ratings
        return ratings / ratings.sum()

    @property
    def best_head(self) -> int:
        """The head with the highest rating; of equals, the first. Evaluation acts with it."""
        return int(np.argmax(self.ratings))
