"""The statistics behind whitening across heads: moments of pairs of heads that merge exactly."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.moments import merged_fields
from rbs_tf.returns import finite_columns


@dataclass(frozen=True, eq=False)
class JointMoments:
    """Population moments (ddof 0) of steps over pairs of heads, and of returns, which are known later.

    `ReturnMoments` for whoever needs to know how heads move together. Every field is a read-only float64
    array, [H] or, over pairs, [H, H]; heads take part in every step alike, so their counts are equal. Build
    one with `from_steps` or `from_returns`, and combine them with `merge` in any order and grouping.

    Attributes:
      count: [H], steps seen; rewards and discounts share it.
      reward_mean: [H], E[R].
      discount_mean: [H], E[gamma].
      return_count: [H], returns seen.
      reward_comoment: [H, H], sum of (R_i - E[R_i]) (R_j - E[R_j]).
      discount_comoment: [H, H], sum of (gamma_i - E[gamma_i]) (gamma_j - E[gamma_j]).
      return_mean_product: [H, H], E[G_i G_j].

    Raises:
      ValueError: a moment that is NaN or infinite.
    """

    count: np.ndarray
    reward_mean: np.ndarray
    discount_mean: np.ndarray
    return_count: np.ndarray
    reward_comoment: np.ndarray
    discount_comoment: np.ndarray
    return_mean_product: np.ndarray

    def __post_init__(self) -> None:
        for field in fields(self):
            values = np.array(getattr(self, field.name), np.float64)
            finite = np.isfinite(values)
            if not finite.all():
                heads = np.argwhere(~finite)[0]
                raise ValueError(
                    f"{field.name} must be finite; got {values[tuple(heads)]} for "
                    f"{'head' if len(heads) == 1 else 'heads'} {', '.join(map(str, heads))}"
                )
            values.flags.writeable = False
            object.__setattr__(self, field.name, values)

    @classmethod
    def empty(cls, num_heads: int) -> JointMoments:
        """Moments of nothing, which `merge` into others without a trace; `num_heads` is H."""
        return cls.from_array(np.zeros((4 + 3 * num_heads, num_heads)))

    @classmethod
    def from_steps(cls, rewards: ArrayLike, discounts: ArrayLike) -> JointMoments:
        """Steps whose returns are not known yet.

        Args:
          rewards: [T, H].
          discounts: [T, H]: gamma inside the episode, 0 on a terminal last step.

        Raises:
          ValueError: shapes that differ or have other axes; a reward or discount that is NaN or infinite.
        """
        rewards, discounts = finite_columns(rewards=rewards, discounts=discounts)
        reward_mean, reward_comoment = _mean_and_comoment(rewards)
        discount_mean, discount_comoment = _mean_and_comoment(discounts)
        heads = rewards.shape[1]
        return replace(
            cls.empty(heads),
            count=np.full(heads, len(rewards)),
            reward_mean=reward_mean,
            discount_mean=discount_mean,
            reward_comoment=reward_comoment,
            discount_comoment=discount_comoment,
        )

    @classmethod
    def from_returns(cls, returns: ArrayLike) -> JointMoments:
        """Returns [T, H] whose steps have been counted before. Raises what `from_steps` raises."""
        (returns,) = finite_columns(returns=returns)
        steps, heads = returns.shape
        mean_product = _products(returns) / max(steps, 1)
        return replace(cls.empty(heads), return_count=np.full(heads, steps), return_mean_product=mean_product)

    @staticmethod
    def merge(a: JointMoments, b: JointMoments) -> JointMoments:
        """Moments of everything in `a` and everything in `b` (Chan, Golub & LeVeque 1983, over pairs).

        Exact, hence associative and commutative, up to the rounding of float64.

        Raises:
          ValueError: different numbers of heads.
        """
        spreads = {"reward_mean": "reward_comoment", "discount_mean": "discount_comoment"}
        fields_of_both = merged_fields(
            a, b, spreads, ("return_mean_product",), square=lambda shift: np.outer(shift, shift)
        )
        return JointMoments(**fields_of_both)

    def to_array(self) -> np.ndarray:
        """float64 [4 + 3 H, H], the fields in their order: for queues, checkpoints and `from_array`."""
        return np.vstack([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def from_array(cls, array: ArrayLike) -> JointMoments:
        """The inverse of `to_array`. Raises ValueError for another shape, NaN or infinity."""
        rows = np.asarray(array, np.float64)
        if rows.ndim != 2 or len(rows) != 4 + 3 * rows.shape[1]:
            raise ValueError(
                f"joint moments are an array [4 + 3 H, H], as to_array makes it; got {list(rows.shape)}"
            )
        heads = rows.shape[1]
        return cls(*rows[:4], *(rows[4 + i * heads : 4 + (i + 1) * heads] for i in range(3)))

    @property
    def num_heads(self) -> int:
        """H."""
        return len(self.count)

    @property
    def sigma_squared(self) -> np.ndarray:
        """C = Cov[R] + Cov[gamma] E[G G^T], elementwise, float64 [H, H]; 0 before the first step.

        About the covariance of early TD errors: the argument of section 3.1 for V[delta], on pairs of heads.
        Its diagonal is `ReturnMoments.sigma_squared`. Positive semi-definite, as sums and elementwise
        products of such matrices are.
        """
        steps = np.maximum(self.count, 1.0)
        return self.reward_comoment / steps + self.discount_comoment / steps * self.return_mean_product


def _mean_and_comoment(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = columns.sum(axis=0) / max(len(columns), 1)
    return mean, _products(columns - mean)


def _products(columns: np.ndarray) -> np.ndarray:
    """Sums over steps of the products of every two columns, [T, H] -> [H, H]; symmetric to the last bit."""
    return columns.T @ columns
