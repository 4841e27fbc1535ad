"""Return-based scaling, the paper's proposal (section 3)."""

from __future__ import annotations

import gin
import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling, batch_sigma
from rbs_tf.scalings.scaling import ErrorContext, Scaling


@gin.configurable("return_based", module="scalings")
class ReturnBasedScaling(Scaling):
    """TD errors divided by max(sigma, sigma_v, sigma_batch), sigma^2 = V[R] + V[gamma] E[G^2], per head.

    sigma comes from everything the agent has ever seen; sigma_v is measured on the first batch as the spread over
    states of each head's value; sigma_batch keeps the first large rewards harmless (section 3.2).

    Args:
      num_heads: H.
      sigma_v: the floor until the first batch has been seen, and for a head whose values do not vary at all.
    """

    def __init__(self, num_heads: int, sigma_v: float = 1e-2):
        super().__init__(num_heads)
        self.layer = ReturnScaling(num_heads=num_heads, sigma_v=sigma_v)

    def observe(self, moments: ReturnMoments) -> None:
        self.layer.merge_state(moments)

    def initialise(self, values: tf.Tensor, mask: tf.Tensor) -> None:
        values, mask = tf.cast(values, tf.float64), tf.cast(mask, tf.float64)[..., None]
        count = tf.maximum(tf.reduce_sum(mask), 1.0)
        mean = tf.reduce_sum(values * mask, axis=(0, 1)) / count
        spread = tf.sqrt(tf.reduce_sum(mask * tf.square(values - mean), axis=(0, 1)) / count)
        self.layer.sigma_v.assign(tf.where(spread > 0.0, spread, self.layer.sigma_v))

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        sigma_batch = batch_sigma(context.rewards, context.discounts, context.mask)
        return self.layer(targets - outputs, batch_sigma=sigma_batch)

    def summaries(self) -> dict[str, tf.Tensor]:
        moments = self.layer.moments
        return {
            "sigma": self.layer.sigma,
            "sigma_v": self.layer.sigma_v,
            "variance_of_rewards": moments.reward_variance,
            "variance_of_discounts": moments.discount_variance,
            "mean_square_return": moments.return_mean_square,
        }
