"""Moments of steps and returns together with the largest of each."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import finite_columns


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
        (rewards,) = finite_columns(rewards=rewards)
        return _joined(moments, _largest(rewards), np.zeros(moments.num_heads))

    @classmethod
    def from_returns(cls, returns: ArrayLike) -> MomentsWithMaxima:
        """As `ReturnMoments.from_returns`."""
        moments = ReturnMoments.from_returns(returns)
        (returns,) = finite_columns(returns=returns)
        return _joined(moments, np.zeros(moments.num_heads), _largest(returns))

    @staticmethod
    def merge(a: ReturnMoments, b: ReturnMoments) -> MomentsWithMaxima:
        """Moments and maxima of everything in `a` and everything in `b`.

        Raises:
          ValueError: different numbers of heads, or moments without maxima.
        """
        if not (isinstance(a, MomentsWithMaxima) and isinstance(b, MomentsWithMaxima)):
            how = "make them with rbs_tf.scalings.maxima.MomentsWithMaxima.from_episode(rewards, discounts)"
            raise ValueError(f"moments without maxima: {how}")
        return _joined(
            ReturnMoments.merge(a, b),
            np.maximum(a.largest_reward, b.largest_reward),
            np.maximum(a.largest_return, b.largest_return),
        )


def _joined(moments: ReturnMoments, *largest: np.ndarray) -> MomentsWithMaxima:
    own = (getattr(moments, field.name) for field in fields(ReturnMoments))
    return MomentsWithMaxima(*own, *largest)


def _largest(columns: np.ndarray) -> np.ndarray:
    """[T, H] -> the largest absolute value of each column, [H]; 0 of none."""
    return np.abs(columns).max(axis=0, initial=0.0)
