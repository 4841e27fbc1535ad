"""Error-based scaling, which the paper weighs against return-based scaling in its discussion."""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf

from rbs_tf.return_scaling import summed_over_replicas
from rbs_tf.scalings.scaling import ErrorContext, HeadLayer, Scaling
from rbs_tf.settings import Setting, configurable


@configurable("error_based", module="scalings")
class ErrorBasedScaling(Scaling):
    """TD errors divided by their own running standard deviation, per head.

    Source: the paper's discussion, "Return-based versus error-based scaling", as the alternative to argue against:
    the better the values, the more it amplifies what is left of the errors, their noise.

    Statistics come first and the gradient second: the errors of a batch are already divided by the deviation that
    the batch itself leads to. So the first batch is scaled by its own, and a later outlier is never more than about
    sqrt(batch / step) when it is first seen. What all errors of a head have in common does not count in a deviation.

    Args:
      num_heads: H.
      step: how far the moments move with each batch, in (0, 1]. They are debiased: the first batch sets them.
      window: the last so many batches count alike instead, and `step` is not used; None for the average.
      min_scale: lower bound of the scale, reward units. The default is well below the noise of values at
        initialisation (1e-3 to 1e-2), so that amplification shows.

    Attributes:
      recent: float64 [window or 1, 3, H] variable: weight, mean and variance of the errors of each batch in the
        window, or of the average.
    """

    def __init__(
        self,
        num_heads: int,
        step: Annotated[float, Setting(above=0, most=1, gin=False)] = 1e-3,
        window: Annotated[int | None, Setting("batches", least=1, gin=False)] = None,
        min_scale: Annotated[float, Setting("reward units", above=0, gin=False)] = 1e-4,
    ):
        super().__init__(num_heads)
        self._step, self._window, self._min_scale = step, window, min_scale
        self.recent = tf.Variable(
            tf.zeros([window or 1, 3, num_heads], tf.float64), trainable=False, name="recent"
        )

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        errors = targets - self.values(outputs)
        recent = self._recent_after(errors, context.error_mask)
        return self._divided(errors, deviation(pooled(recent)))

    def after_update(
        self,
        targets: tf.Tensor,
        outputs: tf.Tensor,
        mask: tf.Tensor,
        heads: HeadLayer,
        target_heads: HeadLayer,
    ) -> None:
        self.recent.assign(self._recent_after(targets - self.values(outputs), mask))

    def summaries(self) -> dict[str, tf.Tensor]:
        moments = pooled(self.recent)
        return {"error_mean": moments[1], "error_deviation": deviation(moments)}

    def _divided(self, errors: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return errors / tf.cast(tf.maximum(scale, self._min_scale), errors.dtype)

    def _recent_after(self, errors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The new `recent` with errors [T, B, H] under mask [T, B]."""
        batch = batch_moments(errors, mask)[None]
        if self._window:
            return tf.concat([self.recent[1:], batch], axis=0)
        faded, added = (_weighted(self.recent, 1.0 - self._step), _weighted(batch, self._step))
        return pooled(tf.concat([faded, added], axis=0))[None]


def batch_moments(errors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Count, mean and variance of errors [T, B, H] where the mask [T, B] is not 0: float64 [3, H], no gradient.

    Under `tf.distribute`, those of the errors of all replicas.
    """
    keep = tf.cast(mask, tf.bool)[..., None]
    errors = tf.where(keep, tf.cast(tf.stop_gradient(errors), tf.float64), 0.0)
    count, total = summed_over_replicas(
        tf.reduce_sum(tf.cast(keep, tf.float64)), tf.reduce_sum(errors, axis=(0, 1))
    )
    mean = tf.math.divide_no_nan(total, count)
    squares = tf.where(keep, tf.square(errors - mean), 0.0)
    (total_square,) = summed_over_replicas(tf.reduce_sum(squares, axis=(0, 1)))
    variance = tf.math.divide_no_nan(total_square, count)
    return tf.stack([tf.fill(tf.shape(mean), count), mean, variance])


def pooled(moments: tf.Tensor) -> tf.Tensor:
    """Weight, mean and variance of everything in rows of them, float64 [N, 3, H] -> [3, H]; weight 0 does not count."""
    weight, mean, variance = tf.unstack(moments, axis=1)
    total = tf.reduce_sum(weight, axis=0)
    share = tf.math.divide_no_nan(weight, total)
    all_mean = tf.reduce_sum(share * mean, axis=0)
    # Centred: the difference of mean squares would lose a small deviation beside a large mean.
    all_variance = tf.reduce_sum(share * (variance + tf.square(mean - all_mean)), axis=0)
    return tf.stack([total, all_mean, all_variance])


def deviation(moments: tf.Tensor) -> tf.Tensor:
    """Standard deviation, float64 [H], from weight, mean and variance [3, H]."""
    return tf.sqrt(moments[2])


def _weighted(moments: tf.Tensor, factor: float) -> tf.Tensor:
    return moments * tf.constant([factor, 1.0, 1.0], tf.float64)[:, None]
