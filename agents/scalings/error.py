"""Error-based scaling, which the paper weighs against return-based scaling in its discussion."""

from __future__ import annotations

import tensorflow as tf

from agents.checks import check, number
from agents.scalings.scaling import ErrorContext, HeadLayer, Scaling, named
from rbs_tf.tensor_moments import sum_over_replicas


@named("error_based")
class ErrorBasedScaling(Scaling):
    """TD errors divided by their own running standard deviation, per head.

    Source: the paper's discussion, "Return-based versus error-based scaling", as the alternative to argue against:
    the better the values, the more it amplifies what is left of the errors, their noise.

    Statistics come first and the gradient second: the errors of a batch are already divided by the deviation that
    the batch itself leads to, so that an outlier is at most about sqrt(batch / step) when it is first seen.

    Args:
      num_heads: H.
      step: how far the moments move with each batch, in (0, 1]. They are debiased: the first batch sets them.
      min_scale: lower bound of the scale, reward units. The default is well below the noise of values at
        initialisation (1e-3 to 1e-2), so that amplification shows.

    Raises:
      ValueError: a step outside of (0, 1].

    Attributes:
      average: float64 [3, H] variable: weight, mean and variance of the errors so far.
    """

    def __init__(
        self,
        num_heads: int,
        step: float = 1e-3,
        min_scale: float = 1e-4,
    ):
        super().__init__(num_heads)
        check(f"scalings.{self.known_as}.step", step, number(above=0, most=1), example=1e-3)
        self._step, self._min_scale = step, min_scale
        self.average = tf.Variable(tf.zeros([3, num_heads], tf.float64), trainable=False, name="average")

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        errors = targets - self.values(outputs)
        return self._divide(errors, deviation(self._next_average(errors, context.error_mask)))

    def after_update(self, targets: tf.Tensor, outputs: tf.Tensor, mask: tf.Tensor, heads: HeadLayer) -> None:
        self.average.assign(self._next_average(targets - self.values(outputs), mask))

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"error_mean": self.average[1], "error_deviation": deviation(self.average)}

    def _divide(self, errors: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return errors / tf.cast(tf.maximum(scale, self._min_scale), errors.dtype)

    def _next_average(self, errors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The new `average` with errors [T, B, H] under mask [T, B]; what has weight 0 does not count."""
        both = tf.stack([self.average, batch_moments(errors, mask)])
        weight, mean, variance = tf.unstack(both, axis=1)  # [2, H] each
        weight *= tf.constant([[1.0 - self._step], [self._step]], tf.float64)
        total = tf.reduce_sum(weight, axis=0)
        share = tf.math.divide_no_nan(weight, total)
        all_mean = tf.reduce_sum(share * mean, axis=0)
        # Centred: the difference of mean squares would lose a small deviation beside a large mean.
        all_variance = tf.reduce_sum(share * (variance + tf.square(mean - all_mean)), axis=0)
        return tf.stack([total, all_mean, all_variance])


def batch_moments(errors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Count, mean and variance of errors [T, B, H] where the mask [T, B] is not 0: float64 [3, H], no gradient.

    Under `tf.distribute`, those of the errors of all replicas.
    """
    keep = tf.cast(mask, tf.bool)[..., None]
    errors = tf.where(keep, tf.cast(tf.stop_gradient(errors), tf.float64), 0.0)
    count, total = sum_over_replicas(
        tf.reduce_sum(tf.cast(keep, tf.float64)), tf.reduce_sum(errors, axis=(0, 1))
    )
    mean = tf.math.divide_no_nan(total, count)
    squares = tf.where(keep, tf.square(errors - mean), 0.0)
    (total_square,) = sum_over_replicas(tf.reduce_sum(squares, axis=(0, 1)))
    return tf.stack([tf.fill(tf.shape(mean), count), mean, tf.math.divide_no_nan(total_square, count)])


def root_mean_square(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The root mean square of values [T, B, H] where the mask [T, B] is not 0: float64 [H], no gradient."""
    _, mean, variance = tf.unstack(batch_moments(values, mask))
    return tf.sqrt(variance + tf.square(mean))


def deviation(moments: tf.Tensor) -> tf.Tensor:
    """Standard deviation, float64 [H], from weight, mean and variance [3, H]."""
    return tf.sqrt(moments[2])
