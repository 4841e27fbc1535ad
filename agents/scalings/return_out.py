"""Return-based scaling of errors on outputs that are written in units of the return."""

from __future__ import annotations

import tensorflow as tf

from agents.scalings.error import root_mean_square
from agents.scalings.pop_art import OutputUnits
from agents.scalings.return_based import ReturnBasedScaling
from agents.scalings.scaling import ErrorContext, HeadLayer, named
from rbs_tf.tensor_moments import batch_sigma


@named("return_out")
class ReturnOut(ReturnBasedScaling):
    """Return-based scaling whose networks put out values in units of s = sqrt(max(E[G^2], E[R^2])), per head.

    Beyond the paper, in which values still have to grow to their size by steps of the learning rate. Here Q = s q with
    s from the same all-time statistics, and changes of s preserve Q as in Pop-Art (van Hasselt et al. 2016), so that
    learning is the same, action by action, for rewards times any number.

    Errors are divided by max(sigma, sigma_v s, sigma_batch), where sigma_v, the spread over states of each head's
    outputs, is in network units. A head that has seen no reward but 0 has s = 0, and all its values are 0. The first s
    is taken over as it is, in both networks; later the target network keeps the s that it was copied with.

    Args:
      num_heads: H.
      sigma_v: the floor in network units until the first batch has been seen, and for a head whose outputs do
        not vary at all.
    """

    rewrites_outputs = True

    def __init__(self, num_heads: int, sigma_v: float = 1e-2):
        # Every option is given: gin would otherwise add what is bound for `return_based`.
        super().__init__(num_heads, sigma_v, target_network_term=False, value_bias=False, half_life=None)
        self.online, self.target = (OutputUnits(num_heads, known=False) for _ in range(2))

    def before_update(self, heads: HeadLayer, target_heads: HeadLayer) -> None:
        unit = self.layer.unit
        self.target.take_over(unit, tf.zeros_like(unit))
        self.online.rewrite(heads, unit, tf.zeros_like(unit))

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        return (self.target if target else self.online).values(outputs)

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        sigma_batch = batch_sigma(context.rewards, context.discounts, context.mask)
        # First priorities are asked for before the first update has taken a scale over, and even before any statistics
        # are in: there the batch has to say what its units are. Without any reward they do not matter.
        scale: tf.Tensor = self.online.scale
        for known in (self.layer.unit, root_mean_square(context.rewards, context.mask), 1.0):
            scale = tf.where(scale > 0.0, scale, known)
        sigma = tf.maximum(self.layer.sigma, tf.maximum(self.layer.sigma_v * scale, sigma_batch))
        scale, sigma = tf.cast(scale, outputs.dtype), tf.cast(sigma, outputs.dtype)
        return (targets - scale * outputs) / sigma

    def target_updated(self) -> None:
        self.target.assign(self.online)

    def summaries(self) -> dict[str, tf.Tensor]:
        return super().summaries() | {"output_scale": self.online.scale}
