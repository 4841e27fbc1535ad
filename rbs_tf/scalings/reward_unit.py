"""Rewards divided by one number per head, their unit."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.scalings.error import batch_moments
from rbs_tf.scalings.magnitudes import Magnitudes, take_in
from rbs_tf.scalings.scaling import ErrorContext, Scaling


class RewardUnit(Scaling):
    """Errors (R + gamma s' q' - s q) / s of outputs q, where a subclass says what the units s and s' are.

    With s' = s that is R / s + gamma q' - q: what dividing all rewards by s does. Written like this, values stay in
    reward units, and the first priorities, for which there are no statistics yet, can be in units of their batch, the
    root mean square of its rewards. No weights are rewritten: when s changes, all values change with it.

    s = 0 stands for a head that has seen no reward but 0: all its values are 0.

    Args:
      num_heads: H.

    Attributes:
      unit: what a subclass defines: s of the online network, or s' of the target network if `target`; float64 [H].
      magnitudes: float64 [4, H] variable, the rows of `Magnitudes.to_array`.
    """

    needs = {"magnitudes": Magnitudes}
    unit: Callable[..., tf.Tensor]

    def __init__(self, num_heads: int):
        super().__init__(num_heads)
        empty = Magnitudes.empty(num_heads).to_array()
        self.magnitudes = tf.Variable(empty, trainable=False, name="magnitudes")

    def observe(self, moments: ReturnMoments, *, magnitudes: Magnitudes | None = None) -> None:
        """Takes in the sizes of new rewards; moments are not used. Eager.

        Raises:
          ValueError: no magnitudes, or those of another number of heads.
        """
        take_in(self.magnitudes, magnitudes)

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        return tf.cast(self.unit(target), outputs.dtype) * outputs

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        _, mean, variance = tf.unstack(batch_moments(context.rewards, context.mask))
        of_batch = tf.sqrt(variance + tf.square(mean))
        of_batch = tf.where(of_batch > 0.0, of_batch, 1.0)
        unit = self.unit()
        unit = tf.cast(tf.where(unit > 0.0, unit, of_batch), outputs.dtype)
        return (targets - unit * outputs) / unit

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"reward_scale": self.unit()}
