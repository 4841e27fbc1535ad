"""Moments of steps and returns together with the largest of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.moments import ReturnMoments


@dataclass(frozen=True, eq=False)
class MomentsWithMaxima(ReturnMoments):
    """`ReturnMoments` and the largest absolute reward and return so far, per head. They merge exactly, too.

    Attributes:
      largest_reward: max abs(R), float64 [H]; 0 before the first step.
      largest_return: max abs(G), float64 [H]; 0 before the first return.
    """

    largest_reward: np.ndarray
    largest_return: np.ndarray

    @classmethod
    def from_steps(cls, rewards: ArrayLike, discounts: ArrayLike) -> MomentsWithMaxima:
        """As `ReturnMoments.from_steps`."""
        moments = ReturnMoments.from_steps(rewards, discounts)
        return cls(*[*moments, _largest(rewards, moments.num_heads), np.zeros(moments.num_heads)])

    @classmethod
    def from_returns(cls, returns: ArrayLike) -> MomentsWithMaxima:
        """As `ReturnMoments.from_returns`."""
        moments = ReturnMoments.from_returns(returns)
        return cls(*[*moments, np.zeros(moments.num_heads), _largest(returns, moments.num_heads)])

    @staticmethod
    def merge(a: ReturnMoments, b: ReturnMoments) -> MomentsWithMaxima:
        """Moments and maxima of everything in `a` and everything in `b`.

        Raises:
          ValueError: different numbers of heads, or moments without maxima.
        """
        if not (isinstance(a, MomentsWithMaxima) and isinstance(b, MomentsWithMaxima)):
            how = "make them with rbs_tf.scalings.maxima.MomentsWithMaxima.from_episode(rewards, discounts)"
            raise ValueError(f"moments without maxima: {how}")
        largest_reward = np.maximum(a.largest_reward, b.largest_reward)
        largest_return = np.maximum(a.largest_return, b.largest_return)
        return MomentsWithMaxima(*[*ReturnMoments.merge(a, b), largest_reward, largest_return])


def _largest(values: ArrayLike, num_heads: int) -> np.ndarray:
    """[T] or [T, H] -> the largest absolute value of each column, [H]; 0 of none."""
    return np.abs(np.asarray(values, np.float64).reshape(-1, num_heads)).max(axis=0, initial=0.0)
