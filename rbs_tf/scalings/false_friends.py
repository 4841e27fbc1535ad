"""The paper's "false friends": errors divided by one all-time statistic per head."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling
from rbs_tf.scalings.scaling import ErrorContext, Scaling


class FalseFriend(Scaling):
    """TD errors divided by max(scale, sigma_v), where a subclass says what the scale is.

    The paper's section "False friends" divides rewards or returns. Here it is the errors that are divided, as in
    return-based scaling: values stay in reward units and only the choice of the scale differs. What else belongs to
    the paper's proposal is left out: no sigma_batch, and sigma_v is what it is set to and is not measured.

    Args:
      num_heads: H.
      sigma_v: positive floor of the scale, reward units, so that nothing is ever divided by 0.

    Attributes:
      scale_of: what a subclass defines: the statistic, ReturnMoments -> float64 [H], without the floor.
      layer: holds the statistics and the floor, float64; its own sigma is not used.

    Raises:
      ValueError: a sigma_v that is not positive.
    """

    scale_of: Callable[[ReturnMoments], tf.Tensor]

    def __init__(self, num_heads: int, sigma_v: float = 1e-2):
        super().__init__(num_heads)
        self.layer = ReturnScaling(num_heads=num_heads, sigma_v=sigma_v)

    def observe(self, moments: ReturnMoments) -> None:
        self.layer.merge_state(moments)

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        return (targets - outputs) / tf.cast(self.scale, targets.dtype)

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"scale": self.scale}

    @property
    def scale(self) -> tf.Tensor:
        """Divisor of errors, float64 [H]."""
        return tf.maximum(self.scale_of(self.layer.moments), self.layer.sigma_v)
