"""Which head acts: a bandit over heads, free of the scale of returns, and a greedy trial of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

_QUANTILE = 1.959964  # of the standard normal, two-sided 95%


class HeadBandit(tf.Module):
    """Prefers the heads whose episodes do at least as well as the recent average.

    Over a window of the last finished training episodes of all heads, with mean return m,

        rating_z = (1/2 + number of z's episodes with return >= m) / (1 + number of z's episodes)

    and head z is drawn with probability rating_z / sum of ratings. Ratings favour heads that have hardly played,
    because training explores; `lower_ends` does not. The paper names Schaul et al. 2019 and gives no formula: this is a
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

    def update(self, heads: Any, returns: Any) -> None:
        """Adds finished episodes: the head that acted, and the episode's return (raw reward units). In graphs, too."""
        window = self._window_heads.shape[0]
        heads = tf.cast(heads, tf.int64)
        places = (self._episodes + tf.range(tf.size(heads, tf.int64))) % window
        places = places[-window:, None]  # of equal places the last
        self._window_heads.scatter_nd_update(places, heads[-window:])
        self._window_returns.scatter_nd_update(places, tf.cast(returns, tf.float64)[-window:])
        self._episodes.assign_add(tf.size(heads, tf.int64))

    @property
    def ratings(self) -> tf.Tensor:
        """float64 [H], each in (0, 1): near 1 when nearly all of a head's episodes reach the mean."""
        wins, episodes = self._counts()
        return (0.5 + wins) / (1.0 + episodes)

    @property
    def probabilities(self) -> tf.Tensor:
        """float64 [H], sums to 1: how likely each head is to act in the next training episode."""
        ratings = self.ratings
        return ratings / tf.reduce_sum(ratings)

    @property
    def lower_ends(self) -> tf.Tensor:
        """float64 [H]; evaluation acts with the head that has the highest, or with the first of equals.

        They are the lower ends of 95% intervals (Wilson 1927) of each head's share of episodes that reach the mean. A
        head that was lucky in a few episodes has a wide interval, and so a low end.
        """
        wins, episodes = self._counts()
        n = tf.maximum(episodes, 1.0)
        square = _QUANTILE**2
        share = wins / n
        half = _QUANTILE * tf.sqrt(share * (1.0 - share) / n + square / (4.0 * n**2))
        return (share + square / (2.0 * n) - half) / (1.0 + square / n)

    def _counts(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts for each head, float64 [H]: episodes in the window that reached its mean return, and all of them."""
        heads = tf.convert_to_tensor(self._window_heads)
        returns = tf.convert_to_tensor(self._window_returns)
        seen = heads >= 0
        mean = tf.reduce_mean(tf.boolean_mask(returns, seen))
        of_head = tf.one_hot(heads, self.num_heads, dtype=tf.float64)  # of -1 none
        good = tf.cast(seen & (returns >= mean), tf.float64)
        return tf.reduce_sum(of_head * good[:, None], axis=0), tf.reduce_sum(of_head, axis=0)


def successive_halving(
    play: Callable[[list[int]], Iterable[tuple[int, float]]], num_heads: int, episodes: int
) -> tuple[int, int]:
    """The head whose episodes return most: each round plays all that are left and drops the worse half.

    Karnin et al. 2013. Every round gets an equal share of the episodes, and every head that is left plays at least one.

    Args:
      play: takes the acting head's index for each episode, plays them, and gives (head, return) of those that count.
      num_heads: H.
      episodes: of all rounds together. More are played only where one for each head that is left takes more.

    Returns:
      The head, and how many episodes were played.
    """
    left = list(range(num_heads))
    returns: list[list[float]] = [[] for _ in left]
    rounds = max(1, math.ceil(math.log2(num_heads)))
    for _ in range(rounds):
        acting = left * max(1, episodes // (rounds * len(left)))
        for head, episode_return in play(acting):
            returns[head].append(episode_return)
        best_first = sorted(left, key=lambda head: -np.mean(returns[head] or -np.inf))
        left = best_first[: math.ceil(len(left) / 2)]
    return left[0], sum(map(len, returns))
