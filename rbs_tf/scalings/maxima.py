"""Moments of steps and returns together with the largest reward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.moments import ReturnMoments


@dataclass(frozen=True, eq=False)
class MomentsWithMaxima(ReturnMoments):
    """`ReturnMoments` and the largest absolute reward so far, per head. They merge exactly, too.

    Attributes:
      largest_reward: max abs(R), float64 [H]; 0 before the first step.
    """

    largest_reward: np.ndarray

    @classmethod
    def from_steps(cls, rewards: ArrayLike, discounts: ArrayLike) -> MomentsWithMaxima:
        """As `ReturnMoments.from_steps`."""
        moments = ReturnMoments.from_steps(rewards, discounts)
        of_heads = np.asarray(rewards, np.float64).reshape(-1, moments.num_heads)
        return cls(*[*moments, np.abs(of_heads).max(axis=0, initial=0.0)])

    @classmethod
    def from_returns(cls, returns: ArrayLike) -> MomentsWithMaxima:
        """As `ReturnMoments.from_returns`."""
        moments = ReturnMoments.from_returns(returns)
        return cls(*[*moments, np.zeros(moments.num_heads)])

    @staticmethod
    def merge(a: ReturnMoments, b: ReturnMoments) -> MomentsWithMaxima:
        """As `ReturnMoments.merge`. Raises ValueError for moments without maxima, too."""
        if not (isinstance(a, MomentsWithMaxima) and isinstance(b, MomentsWithMaxima)):
            how = "make them with rbs_tf.scalings.maxima.MomentsWithMaxima.from_episode(rewards, discounts)"
            raise ValueError(f"moments without maxima: {how}")
        return MomentsWithMaxima(
            *[*ReturnMoments.merge(a, b), np.maximum(a.largest_reward, b.largest_reward)]
        )
