"""The statistics behind sigma: all-time moments of rewards, discounts and returns that merge exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.returns import compute_returns, discounted_returns, finite_columns, real_numbers

if TYPE_CHECKING:
    import tensorflow as tf

    Array: TypeAlias = np.ndarray | tf.Tensor


# Tensors of these may have no value yet, and are not checked.
_TENSORS_OF = ("tensorflow", "keras", "tf_keras", "torch", "jax", "jaxlib", "rbs_tf")
_NOT_NEGATIVE = ("count", "reward_m2", "discount_m2", "return_count", "return_mean_square")


@dataclass(frozen=True, eq=False)
class ReturnMoments:
    """Population moments (ddof 0) per head of steps, and of returns, which are known later and counted apart.

    Build them with `from_episode`, `from_steps` or `from_returns`, and combine them with `merge`. Every field is
    float64 [H]: a read-only NumPy array here, a tensor in what `ReturnScaling.moments`, `rbs_tf.torch` and `rbs_tf.jax`
    return.

    Attributes:
      count: steps seen; rewards and discounts share it.
      reward_mean: E[R].
      reward_m2: sum of (R - E[R])^2; E[R^2] - E[R]^2 would cancel where the mean is large.
      discount_mean: E[gamma].
      discount_m2: sum of (gamma - E[gamma])^2.
      return_count: returns seen.
      return_mean: E[G].
      return_mean_square: E[G^2].

    Raises:
      ValueError: a moment that is NaN, infinite or of another shape than `count`; a negative count or second moment;
        moments whose sigma float64 does not hold.
    """

    count: Array
    reward_mean: Array
    reward_m2: Array
    discount_mean: Array
    discount_m2: Array
    return_count: Array
    return_mean: Array
    return_mean_square: Array

    def __post_init__(self) -> None:
        if type(self.count).__module__.partition(".")[0] in _TENSORS_OF:
            return
        for field, given in zip(fields(self), self, strict=True):
            values = real_numbers(field.name, given).astype(np.float64)
            if values.ndim != 1 or values.shape != np.shape(self.count):
                raise ValueError(
                    f"{field.name} must be [H], one number per head, as count; got {values.shape}"
                )
            wrong = ~np.isfinite(values) | ((values < 0.0) if field.name in _NOT_NEGATIVE else False)
            if wrong.any():
                head = np.argmax(wrong)
                expected = "finite" if not np.isfinite(values[head]) else "at least 0"
                raise ValueError(f"{field.name} must be {expected}; got {values[head]} for head {head}")
            values.flags.writeable = False
            object.__setattr__(self, field.name, values)
        with np.errstate(over="ignore"):
            if not np.isfinite(self.sigma_squared).all():
                raise ValueError("moments must have a finite sigma; that of some head leaves float64")

    def __setstate__(self, state: dict[str, Array]) -> None:
        """For pickle and copy: the copy is checked and read-only as well."""
        self.__dict__.update(state)
        self.__post_init__()

    def __iter__(self) -> Iterator[Array]:
        """The eight fields, in the order of `to_array`."""
        return (getattr(self, field.name) for field in fields(self))

    @classmethod
    def empty(cls, num_heads: int) -> ReturnMoments:
        """Moments of no steps, which change nothing in `merge`; `num_heads` is H."""
        return cls(*np.zeros((len(fields(cls)), num_heads)))

    @classmethod
    def from_episode(cls, rewards: ArrayLike, discounts: ArrayLike) -> ReturnMoments:
        """Steps and returns of one finished episode.

        Args:
          rewards: [T] or [T, H].
          discounts: of the same shape: gamma inside the episode, 0 on a terminal last step, gamma where it was cut.

        Raises:
          ValueError: shapes that differ or are neither [T] nor [T, H]; a value that is NaN or infinite.
        """
        steps = cls.from_steps(rewards, discounts)
        return cls.merge(steps, cls.from_returns(discounted_returns(rewards, discounts)))

    @classmethod
    def from_steps(cls, rewards: ArrayLike, discounts: ArrayLike) -> ReturnMoments:
        """Steps whose returns are not known yet; [T] or [T, H] each. Raises what `from_episode` raises."""
        rewards, discounts = finite_columns(rewards=rewards, discounts=discounts)
        count = np.full(rewards.shape[1], len(rewards))
        nothing = np.zeros(rewards.shape[1])
        return cls(count, *_mean_and_m2(rewards), *_mean_and_m2(discounts), nothing, nothing, nothing)

    @classmethod
    @np.errstate(under="ignore")
    def from_returns(cls, returns: ArrayLike) -> ReturnMoments:
        """Returns whose steps have been counted before; [T] or [T, H]. Raises what `from_episode` raises."""
        (returns,) = finite_columns(returns=returns)
        count = np.full(returns.shape[1], len(returns))
        nothing = np.zeros(returns.shape[1])
        return cls(*(nothing,) * 5, count, _mean(returns), _mean(np.square(returns)))

    @classmethod
    def from_batch(cls, rewards: ArrayLike, discounts: ArrayLike, mask: ArrayLike) -> ReturnMoments:
        """Steps and returns of a sampled batch of sequences, cut where they end and at padding.

        Their sigma is section 3.2's sigma_batch, for `rbs_tf.numpy.ReturnScaling`; the layer's is `rbs_tf.batch_sigma`.

        Args:
          rewards: [T, B, H].
          discounts: [T, B, H].
          mask: [T, B], 1 for real steps, 0 for padding, which may hold anything.

        Raises:
          ValueError: other shapes; a real step's reward or discount that is NaN or infinite.
        """
        with np.errstate(all="ignore"):  # what is not finite is refused below
            return compute_batch_moments(
                np,
                real_numbers("rewards", rewards).astype(np.float64),
                real_numbers("discounts", discounts).astype(np.float64),
                real_numbers("mask", mask).astype(np.float64),
            )

    def put_in_head(self, head: int, num_heads: int) -> ReturnMoments:
        """These moments, of one head, as those of head number `head` of `num_heads`; the others are empty."""
        rows = np.zeros((len(fields(self)), num_heads))
        rows[:, check_heads(head, num_heads)] = self.to_array()[:, 0]
        return ReturnMoments(*rows)

    @staticmethod
    def merge(a: ReturnMoments, b: ReturnMoments) -> ReturnMoments:
        """Moments of everything in `a` and everything in `b` (Chan, Golub & LeVeque 1983).

        Exact, hence associative and commutative, up to the rounding of float64. Raises ValueError for different
        numbers of heads.
        """
        if a.num_heads != b.num_heads:
            raise ValueError(f"only moments of equally many heads merge; got {a.num_heads} and {b.num_heads}")
        count, return_count = a.count + b.count, a.return_count + b.return_count
        steps, returns = b.count / _clip_below_one(count), b.return_count / _clip_below_one(return_count)
        between = a.count * steps
        reward_shift, discount_shift = b.reward_mean - a.reward_mean, b.discount_mean - a.discount_mean
        return ReturnMoments(
            count=count,
            reward_mean=a.reward_mean + reward_shift * steps,
            reward_m2=a.reward_m2 + b.reward_m2 + reward_shift * reward_shift * between,
            discount_mean=a.discount_mean + discount_shift * steps,
            discount_m2=a.discount_m2 + b.discount_m2 + discount_shift * discount_shift * between,
            return_count=return_count,
            return_mean=a.return_mean + (b.return_mean - a.return_mean) * returns,
            return_mean_square=a.return_mean_square + (b.return_mean_square - a.return_mean_square) * returns,
        )

    def to_array(self) -> np.ndarray:
        """float64 [8, H], the fields in their order: for queues, files and `from_array`."""
        return np.stack([*self])

    @classmethod
    def from_array(cls, array: ArrayLike) -> ReturnMoments:
        """The inverse of `to_array`. Raises ValueError for another shape, NaN or infinity."""
        rows = real_numbers("moments", array)
        if rows.ndim != 2 or len(rows) != len(fields(cls)):
            raise ValueError(
                f"moments are an array [{len(fields(cls))}, H], as to_array makes it; got {rows.shape}"
            )
        return cls(*rows)

    @property
    def num_heads(self) -> int:
        """H."""
        return int(self.count.shape[0])

    @property
    def reward_variance(self) -> Array:
        """V[R], float64 [H]; 0 before the first step."""
        return self.reward_m2 / _clip_below_one(self.count)

    @property
    def discount_variance(self) -> Array:
        """V[gamma], float64 [H]: what the ends of episodes contribute; 0 before the first step."""
        return self.discount_m2 / _clip_below_one(self.count)

    @property
    def sigma_squared(self) -> Array:
        """V[R] + V[gamma] E[G^2], float64 [H]: about the variance of early TD errors (section 3.1)."""
        return self.reward_variance + self.discount_variance * self.return_mean_square

    @property
    def sigma(self) -> Array:
        """The scale of TD errors, float64 [H], without a floor."""
        return self.sigma_squared**0.5

    @property
    def unit(self) -> Array:
        """The size of values, sqrt(max(E[G^2], E[R^2])), float64 [H]; 0 for a head that has seen no reward but 0."""
        square = self.reward_variance + self.reward_mean * self.reward_mean
        return _larger(self.return_mean_square, square) ** 0.5

    @property
    def mean_return(self) -> Array:
        """E[G], float64 [H]: where a value network's bias may start (section 5)."""
        return self.return_mean


def compute_batch_moments(xp: Any, rewards: Any, discounts: Any, mask: Any) -> ReturnMoments:
    """`ReturnMoments.from_batch` of arrays of `xp`, PyTorch, JAX or NumPy, in the dtype of the rewards.

    Rewards and discounts [T, B, H] are of one floating dtype, without gradients. Raises ValueError for other shapes.
    """
    shapes = [tuple(array.shape) for array in (rewards, discounts, mask)]
    if len(shapes[0]) != 3 or shapes[0] != shapes[1] or shapes[2] != shapes[0][:2]:
        takes = "a batch is rewards [T, B, H], discounts [T, B, H] and a mask [T, B]"
        raise ValueError(f"{takes}; got {shapes[0]}, {shapes[1]} and {shapes[2]}")
    keep = (mask != 0)[..., None]
    ones = xp.where(keep, xp.ones_like(rewards), 0.0)
    rewards, discounts = xp.where(keep, rewards, 0.0), xp.where(keep, discounts, 0.0)
    count = ones.sum((0, 1))
    divisor = xp.where(count > 0.0, count, 1.0)

    def mean(values: Any) -> Any:
        return values.sum((0, 1)) / divisor

    def mean_and_m2(values: Any) -> tuple[Any, Any]:
        deviations = ones * (values - mean(values))
        return mean(values), (deviations * deviations).sum((0, 1))

    returns = compute_returns(rewards, discounts, xp.zeros_like, xp.concatenate)
    return ReturnMoments(
        count, *mean_and_m2(rewards), *mean_and_m2(discounts), count, mean(returns), mean(returns * returns)
    )


def check_heads(head: Any, num_heads: int) -> np.ndarray:
    """Head numbers as whole numbers, in their shape. Raises ValueError for any that is not in [0, num_heads)."""
    heads = real_numbers("head", head)
    if heads.dtype.kind not in "iu" or ((heads < 0) | (heads >= num_heads)).any():
        raise ValueError(f"head must be whole numbers from 0 to {num_heads - 1}; got {head!r}")
    return heads


def wrong_columns(name: str, shape: Any, num_heads: int) -> ValueError:
    """The error to raise for values whose last axis is not the heads'."""
    return ValueError(
        f"{name} must have shape [..., {num_heads}], one column per head; got {shape}. "
        "Repeat values that all heads share"
    )


def _clip_below_one(count: Array) -> Array:
    """max(count, 1), in operators that arrays and tensors share; exact for whole numbers up to 2^52."""
    return _larger(count, 1.0)


def _larger(a: Array, b: Array | float) -> Array:
    """max(a, b), in operators that arrays and tensors share."""
    return (a + b + abs(a - b)) / 2.0


def _mean(columns: np.ndarray) -> np.ndarray:
    return columns.sum(axis=0) / max(len(columns), 1)


def _mean_and_m2(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = _mean(columns)
    return mean, np.square(columns - mean).sum(axis=0)
