"""Moments of TensorFlow's tensors: over masks and replicas, with checks of what enters them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import LARGEST, compute_returns


def batch_sigma(rewards: Any, discounts: Any, mask: Any) -> tf.Tensor:
    """sigma of one sampled batch (section 3.2), for `ReturnScaling` with the batch's errors.

    sqrt(V[R] + V[gamma] E[G^2]) over all real steps of the batch, those of all replicas under `tf.distribute`. Returns
    are cut where a sequence ends and at padding, so for long horizons this is smaller than the all-time sigma. It
    exceeds it when rewards are larger than any before and, for short horizons, by a few percent in most batches.

    Args:
      rewards: [T, B, H], every reward that enters a target.
      discounts: [T, B, H], what multiplies the future after each step.
      mask: [T, B], 1 for real steps, 0 for padding, which may hold anything.

    Returns:
      float64 [H]; 0 for a batch without real steps. No gradient flows through it.

    Raises:
      ValueError: shapes that do not fit, complex numbers.
      tf.errors.InvalidArgumentError: eagerly, a real step's reward or discount that is NaN or infinite; in graphs that
        XLA does not compile, shapes that do not fit and are known only when the graph runs.
    """
    rewards, discounts, mask = map(tf.convert_to_tensor, (rewards, discounts, mask))
    if (
        not (rewards.shape.rank == discounts.shape.rank == 3 and mask.shape.rank == 2)
        or not rewards.shape.is_compatible_with(discounts.shape)
        or not rewards.shape[:2].is_compatible_with(mask.shape)
    ):
        raise ValueError(
            "batch_sigma takes rewards [T, B, H], discounts [T, B, H] and a mask [T, B]; got "
            f"{rewards.shape}, {discounts.shape} and {mask.shape}"
        )
    rewards, discounts = check_real("rewards", rewards), check_real("discounts", discounts)
    checks = check_steps("batch_sigma", {"rewards": rewards, "discounts": discounts}, mask)
    with tf.control_dependencies(checks):
        keep = tf.cast(mask, tf.bool)[..., None]
    rewards, discounts = (
        tf.where(keep, tf.stop_gradient(tf.cast(x, tf.float64)), 0.0) for x in (rewards, discounts)
    )
    if tf.executing_eagerly():
        for name, values in (("rewards", rewards), ("discounts", discounts)):
            check_finite(name, values, "batch_sigma")
    returns = compute_returns(rewards, discounts, tf.zeros_like, lambda rows: tf.concat(rows, axis=0))
    moments = ReturnMoments(*step_fields(rewards, discounts, keep), *return_fields(returns, keep))
    return tf.sqrt(moments.sigma_squared)


def step_fields(rewards: tf.Tensor, discounts: tf.Tensor, keep: tf.Tensor) -> list[tf.Tensor]:
    """The first five fields of `ReturnMoments` from [..., H], [..., H] and bool [..., 1 or H]."""
    keep = _rows(keep)
    steps = tf.stack([_rows(rewards), _rows(discounts)])
    count, total = _sums(keep, keep * steps)
    mean = total / tf.maximum(count, 1.0)
    (m2,) = _sums(keep * tf.square(steps - mean[:, None]))
    return [count + tf.zeros_like(mean[0]), mean[0], m2[0], mean[1], m2[1]]


def return_fields(returns: tf.Tensor, keep: tf.Tensor) -> list[tf.Tensor]:
    """The last three fields of `ReturnMoments` from [..., H] and bool [..., 1 or H]."""
    keep, returns = _rows(keep), _rows(returns)
    count, total, squares = _sums(keep, keep * returns, keep * tf.square(returns))
    divisor = tf.maximum(count, 1.0)
    return [count + tf.zeros_like(total), total / divisor, squares / divisor]


def _rows(values: tf.Tensor) -> tf.Tensor:
    """[..., H] -> float64 [N, H]."""
    return tf.reshape(tf.cast(values, tf.float64), [-1, values.shape[-1]])


def _sums(*rows: tf.Tensor) -> list[tf.Tensor]:
    """[..., N, H] -> [..., H] each, over the rows of all replicas."""
    return sum_over_replicas(*(tf.reduce_sum(x, axis=-2) for x in rows))


def sum_over_replicas(*sums: tf.Tensor) -> list[tf.Tensor]:
    """Sums over a replica's share of a batch -> those over the whole batch; any shapes, float. Not in `tf.cond`."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return list(sums)
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, list(sums))


def check_steps(who: str, columns: dict[str, tf.Tensor], mask: tf.Tensor) -> list[tf.Operation]:
    """Checks that columns [..., H] and their mask [...] are of equally many steps; trailing ones do not count.

    Returns what a graph that does not know all sizes has to run first. Raises ValueError for known sizes that differ.
    """
    steps = {name: values.shape[:-1] for name, values in columns.items()} | {"mask": mask.shape}
    agree = f"{' and '.join(steps)} must agree in all axes before the heads'; got"
    known = [*map(_strip_trailing_ones, steps.values())]
    if not all(a.is_compatible_with(b) for a, b in itertools.pairwise(known)):
        raise ValueError(f"{agree} {', '.join(f'{name} {shape}' for name, shape in steps.items())}")
    if all(shape.is_fully_defined() for shape in steps.values()):
        return []
    shapes = [*(tf.shape(values)[:-1] for values in columns.values()), tf.shape(mask)]
    longest = tf.reduce_max([tf.size(shape) for shape in shapes])
    padded = tf.stack([tf.pad(shape, [[0, longest - tf.size(shape)]], constant_values=1) for shape in shapes])
    return [tf.debugging.Assert(tf.reduce_all(padded == padded[0]), [f"{who}: {agree}", *shapes])]


def _strip_trailing_ones(shape: tf.TensorShape) -> tf.TensorShape:
    """A shape of steps without what may be the axis of a single head."""
    while shape.rank and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def check_real(name: str, values: tf.Tensor) -> tf.Tensor:
    """The values. Raises ValueError for complex numbers, of which a cast would keep the real part."""
    if values.dtype.is_complex:
        raise ValueError(f"{name} must be real numbers; got {values.dtype.name}")
    return values


def real_float64(name: str, values: Any) -> tf.Tensor:
    """The values as float64. Raises ValueError for complex numbers."""
    # Asked for float64, TensorFlow takes the real part of NumPy's complex numbers.
    hint = None if "complex" in str(getattr(values, "dtype", "")) else tf.float64
    return tf.cast(check_real(name, tf.convert_to_tensor(values, dtype_hint=hint)), tf.float64)


def check_finite(name: str, values: tf.Tensor, who: str = "ReturnScaling") -> list[tf.Operation]:
    """Checks values [..., H] and names the first that is NaN, infinite or above 1e140.

    Returns what a graph has to run before they are used. Raises tf.errors.InvalidArgumentError eagerly.
    """
    # Not `~(abs(x) < limit)`: TensorFlow rewrites that as `abs(x) >= limit`, which NaN passes.
    culprits = tf.where(~tf.math.is_finite(values) | (tf.abs(values) >= LARGEST))
    first = culprits[:1]
    message = [f"{who}: {name} must be finite; got", tf.gather_nd(values, first)]
    message += [
        "at step",
        first[:, :-1],
        "head",
        first[:, -1],
        "- mask the step out, or repair what produced it",
    ]
    none = tf.equal(tf.size(culprits), 0)
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(none, message)]
    if not none:
        words = (str(np.squeeze(x)) if tf.is_tensor(x) else x for x in message)
        raise tf.errors.InvalidArgumentError(None, None, " ".join(words))
    return []
