"""Rewards divided by the largest one so far."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.scalings.error import root_mean_square
from rbs_tf.scalings.maxima import MomentsWithMaxima
from rbs_tf.scalings.scaling import ErrorContext, Scaling
from rbs_tf.settings import configurable


@configurable("max_reward", module="scalings")
class MaxReward(Scaling):
    """Rewards divided by s = max abs(R) over all steps ever seen, per head, so that all lie in [-1, 1].

    Source: common practice. Unlike clipping it keeps their proportions. It sees neither how often rewards come nor
    discounts, and one huge reward makes all others small for good.

    Errors are (R + gamma s q' - s q) / s of outputs q, which is what dividing all rewards by s does. So values stay in
    reward units, and the first priorities, for which there are no statistics yet, are in units of their batch, the root
    mean square of its rewards. A head that has seen no reward but 0 has s = 0, and all its values are 0.

    Replayed rewards are divided by today's s, and so are the values of both networks. No weights are rewritten: when s
    grows, values have to be learned again.

    Args:
      num_heads: H.

    Attributes:
      unit: s, float64 [H] variable.
    """

    moments_class = MomentsWithMaxima

    def __init__(self, num_heads: int):
        super().__init__(num_heads)
        self.unit = tf.Variable(tf.zeros(num_heads, tf.float64), trainable=False, name="unit")

    def observe(self, moments: ReturnMoments) -> None:
        """Takes in the largest reward, of `MomentsWithMaxima`. Eager. Raises ValueError for moments without maxima."""
        merged = MomentsWithMaxima.merge(moments, MomentsWithMaxima.empty(self.num_heads))
        self.unit.assign(tf.maximum(self.unit, merged.largest_reward))

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        return tf.cast(self.unit, outputs.dtype) * outputs

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        of_batch = root_mean_square(context.rewards, context.mask)
        of_batch = tf.where(of_batch > 0.0, of_batch, 1.0)
        unit = tf.cast(tf.where(self.unit > 0.0, self.unit, of_batch), outputs.dtype)
        return (targets - unit * outputs) / unit

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"reward_scale": tf.convert_to_tensor(self.unit)}
