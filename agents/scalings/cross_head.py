"""Normalisation of TD errors as in MEME (Kapturowski et al. 2022)."""

from __future__ import annotations

import tensorflow as tf

from agents.scalings.error import ErrorBasedScaling, batch_moments, deviation
from agents.scalings.scaling import ErrorContext, named


@named("cross_head")
class CrossHeadScaling(ErrorBasedScaling):
    """TD errors of each head divided by max(running deviation, deviation in the batch, 0.01).

    Source: Kapturowski et al. 2022, "Human-level Atari 200x faster", loss and priority normalisation. Unlike plain
    error-based scaling it limits how far noise is amplified, by a bound in reward units.

    The running deviation is an exponential average over the batches before this one.

    Args:
      num_heads: H.
      step: of that average, in (0, 1]; the first batch sets it.
      min_scale: lower bound of the scale, reward units.

    Raises:
      ValueError: a step outside of (0, 1].
    """

    def __init__(
        self,
        num_heads: int,
        step: float = 1e-3,
        min_scale: float = 1e-2,
    ):
        super().__init__(num_heads, step=step, min_scale=min_scale)

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        errors = targets - self.values(outputs)
        of_batch = deviation(batch_moments(errors, context.error_mask))
        return self._divide(errors, tf.maximum(deviation(self.average), of_batch))
