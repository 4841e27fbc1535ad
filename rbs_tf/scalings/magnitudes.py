"""The sizes of rewards and returns: means and maxima that merge exactly."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.returns import finite_columns

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True, eq=False)
class Magnitudes:
    """All-time statistics of absolute rewards and returns, per head; what `Scaling.needs` of several scalings names.

    Every field is a read-only float64 array [H]. Build one with `from_steps` or `from_returns`, and combine them with
    `merge` in any order and grouping.

    Attributes:
      count: steps seen.
      mean_reward: E[abs(R)].
      largest_reward: max abs(R); 0 before the first step.
      largest_return: max abs(G); 0 before the first return.

    Raises:
      ValueError: a field that is NaN or infinite.
    """

    count: np.ndarray
    mean_reward: np.ndarray
    largest_reward: np.ndarray
    largest_return: np.ndarray

    def __post_init__(self) -> None:
        for field in fields(self):
            values = np.array(getattr(self, field.name), np.float64)
            finite = np.isfinite(values)
            if not finite.all():
                head = np.argmin(finite)
                raise ValueError(f"{field.name} must be finite; got {values[head]} for head {head}")
            values.flags.writeable = False
            object.__setattr__(self, field.name, values)

    @classmethod
    def empty(cls, num_heads: int) -> Magnitudes:
        """Statistics of nothing, which `merge` into others without a trace; `num_heads` is H."""
        return cls(*np.zeros((len(fields(cls)), num_heads)))

    @classmethod
    def from_steps(cls, rewards: ArrayLike, discounts: ArrayLike) -> Magnitudes:
        """Steps whose returns are not known yet, [T] or [T, H] each; discounts do not count.

        Raises:
          ValueError: shapes that differ or have other axes; a reward or discount that is NaN or infinite.
        """
        rewards, _ = finite_columns(rewards=rewards, discounts=discounts)
        steps, heads = rewards.shape
        sizes = np.abs(rewards)
        count = np.full(heads, steps)
        return cls(count, sizes.sum(axis=0) / max(steps, 1), sizes.max(axis=0, initial=0.0), np.zeros(heads))

    @classmethod
    def from_returns(cls, returns: ArrayLike) -> Magnitudes:
        """Returns, [T] or [T, H], whose steps have been counted before. Raises what `from_steps` raises."""
        (returns,) = finite_columns(returns=returns)
        return replace(cls.empty(returns.shape[1]), largest_return=np.abs(returns).max(axis=0, initial=0.0))

    @staticmethod
    def merge(a: Magnitudes, b: Magnitudes) -> Magnitudes:
        """Statistics of everything in `a` and everything in `b`; exact up to the rounding of float64.

        Raises:
          ValueError: different numbers of heads.
        """
        if a.num_heads != b.num_heads:
            raise ValueError(
                f"only magnitudes of equally many heads merge; got {a.num_heads} and {b.num_heads}. "
                "Pass [T, H] arrays with the same H everywhere"
            )
        count = a.count + b.count
        return Magnitudes(
            count,
            a.mean_reward + (b.mean_reward - a.mean_reward) * (b.count / np.maximum(count, 1.0)),
            np.maximum(a.largest_reward, b.largest_reward),
            np.maximum(a.largest_return, b.largest_return),
        )

    def to_array(self) -> np.ndarray:
        """float64 [4, H], the fields in their order: for queues, checkpoints and `from_array`."""
        return np.stack([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def from_array(cls, array: ArrayLike) -> Magnitudes:
        """The inverse of `to_array`. Raises ValueError for another shape, NaN or infinity."""
        rows = np.asarray(array, np.float64)
        if rows.ndim != 2 or len(rows) != len(fields(cls)):
            raise ValueError(
                f"magnitudes are an array [{len(fields(cls))}, H], as to_array makes it; got {list(rows.shape)}"
            )
        return cls(*rows)

    @property
    def num_heads(self) -> int:
        """H."""
        return len(self.count)


def take_in(seen: tf.Variable, magnitudes: Magnitudes | None) -> None:
    """Merges what a scaling is told into what it has seen; eager.

    Args:
      seen: float64 [4, H] variable, the rows of `Magnitudes.to_array`.
      magnitudes: of new steps and returns.

    Raises:
      ValueError: no magnitudes, or those of another number of heads; the variable stays as it was.
    """
    if magnitudes is None:
        raise ValueError(
            "this scaling needs the sizes of rewards and returns beside their moments; write observe(moments, "
            "magnitudes=rbs_tf.scalings.magnitudes.Magnitudes.from_steps(rewards, discounts))"
        )
    seen.assign(Magnitudes.merge(Magnitudes.from_array(seen.numpy()), magnitudes).to_array())
