"""Pop-Art whose first units are taken over instead of being preserved from 1 on."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.scalings.pop_art import OutputUnits, PopArt, deviation
from rbs_tf.scalings.scaling import ErrorContext, HeadLayer


@configurable("pop_art_first", module="scalings")
class PopArtFirst(PopArt):
    """Pop-Art (`PopArt`) that starts with the first targets, so that nothing depends on the unit of rewards.

    Beyond the published Pop-Art, which starts at scale 1 and preserves outputs that mean nothing yet: where rewards are
    of size M, that divides the last layer by about M, and it has to grow back by steps of the learning rate.

    "First" is, for each head, the first batch of targets whose root mean square is not 0. The moments become those of
    this batch, by a step of size 1, and both networks are read in these units without a change of weights. Until then
    all values are 0, so that this batch's targets consist of rewards alone. From there on all is Pop-Art: statistics
    come first and the gradient second, in the first batch as well.

    The scale has no upper bound, and its lower bound is relative: a bound in reward units would bring their size back.
    Batches with a target that is NaN or infinite leave the moments of its head as they are.

    Args:
      num_heads: H.
      step_size: of the moments, in (0, 1].
      min_scale: lower bound of the scale, in (0, 1], in units of the first root mean square; for targets that stop
        varying.
      divisor: of errors, as in `PopArt`.

    Attributes:
      first: float64 [H] variable, the first root mean square; 0 before it.

    Raises:
      ValueError: options outside these ranges.
    """

    def __init__(self, num_heads: int, step_size: float = 1e-3, min_scale: float = 1e-3, divisor: str = "s"):
        super().__init__(num_heads, step_size, min_scale, np.inf, divisor)
        self.first = tf.Variable(tf.zeros(num_heads, tf.float64), trainable=False, name="first")
        self.online, self.target = (OutputUnits(num_heads, known=False) for _ in range(2))
        self.mean_square.assign(tf.zeros(num_heads, tf.float64))

    def after_update(
        self,
        targets: tf.Tensor,
        outputs: tf.Tensor,
        mask: tf.Tensor,
        heads: HeadLayer,
        target_heads: HeadLayer,
    ) -> None:
        mean, mean_square = self._moments_after(targets, mask)
        for units in (self.online, self.target):
            units.take_over(self._scale(mean, mean_square), mean)
        super().after_update(targets, outputs, mask, heads, target_heads)
        self.first.assign(self._first_after(mean_square))

    def _moments_after(self, targets: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Moments of 0 have come by `step_size` of the way.
        way = tf.where(self.first > 0.0, tf.constant(1.0, tf.float64), 1.0 / self._step_size)
        mean, mean_square = (way * moment for moment in super()._moments_after(targets, mask))
        finite = tf.math.is_finite(mean_square)
        return tf.where(finite, mean, self.mean), tf.where(finite, mean_square, self.mean_square)

    def _scale(self, mean: tf.Tensor, mean_square: tf.Tensor) -> tf.Tensor:
        return tf.maximum(deviation(mean, mean_square), self._min_scale * self._first_after(mean_square))

    def _values_after(self, outputs: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        known = self.online.scale > 0.0
        scale = tf.cast(tf.where(known, self.online.scale, _or_one(scale)), outputs.dtype)
        return scale * outputs + tf.cast(tf.where(known, self.online.shift, shift), outputs.dtype)

    def _divisor_of(self, scale: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        return super()._divisor_of(_or_one(scale), context)

    def _first_after(self, mean_square: tf.Tensor) -> tf.Tensor:
        """`first` once the moments have come to this mean square, float64 [H]."""
        return tf.where(self.first > 0.0, self.first, tf.sqrt(mean_square))


def _or_one(scale: tf.Tensor) -> tf.Tensor:
    """Units of heads that have none yet: any will do."""
    return tf.where(scale > 0.0, scale, 1.0)
