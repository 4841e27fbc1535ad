"""What scalings have in common whose heads put out a distribution over bins in the place of a value."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rbs_tf.scalings.scaling import ErrorContext, Scaling


class CategoricalScaling(Scaling):
    """A value is the mean of a softmax over fixed bins, learned by cross-entropy with the scalar n-step target.

    The target is projected onto the bins; it is no distributional Bellman update. The loss of a step is the
    cross-entropy, at most linear in the logits: no error, however large, has a gradient of more than 1 in any of them.
    Errors, for priorities and TensorBoard, are those of decoded values.

    Args:
      num_heads: H.
      support: float64 [K], where the bins lie in network units; increasing, and symmetric about its middle.

    Raises:
      ValueError: bins that float32 cannot tell apart, or cannot hold.
    """

    def __init__(self, num_heads: int, support: np.ndarray):
        super().__init__(num_heads)
        with np.errstate(over="ignore"):
            self.support = support.astype(np.float32)
        if not (np.isfinite(self.support).all() and (np.diff(self.support) > 0.0).all()):
            raise ValueError(
                f"float32 cannot hold, or not tell apart, these {len(support)} bins from {support[0]:.4g} to "
                f"{support[-1]:.4g}. Take fewer of them, or another range"
            )
        self.outputs_per_action = len(support)
        self._centre = np.float32((support[0] + support[-1]) / 2.0)
        self._offsets = (support[-(len(support) // 2) :] - self._centre).astype(np.float32)

    def decode(self, outputs: tf.Tensor) -> tf.Tensor:
        masses = tf.exp(outputs - tf.reduce_max(outputs, axis=-1, keepdims=True))
        # In pairs from both sides: a uniform distribution has to have the centre for its mean to the last bit, and bins
        # may be as large as 5e8.
        pairs = len(self._offsets)
        differences = masses[..., -pairs:] - tf.reverse(masses[..., :pairs], axis=[-1])
        mean = tf.reduce_sum(differences * self._offsets, axis=-1) / tf.reduce_sum(masses, axis=-1)
        return self._centre + mean

    def project(self, values: tf.Tensor) -> tf.Tensor:
        """Network units float32 [...] -> probabilities [..., K]; here of the two neighbours alone, the mean exact.

        What lies beyond the outermost bins is put onto these.
        """
        # How far each gap between neighbours is filled; what flows into a bin and not out of it is its own.
        gaps = np.diff(self.support)
        filled = tf.clip_by_value((values[..., None] - self.support[:-1]) / gaps, 0.0, 1.0)
        ends = tf.ones_like(filled[..., :1])
        return tf.concat([ends, filled], axis=-1) - tf.concat([filled, 0.0 * ends], axis=-1)

    def losses(
        self, errors: tf.Tensor, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext
    ) -> tf.Tensor:
        wanted = tf.stop_gradient(self.project(self._network_units(targets)))
        losses = tf.nn.softmax_cross_entropy_with_logits(wanted, outputs)
        return losses * context.error_mask[..., None]

    def _network_units(self, targets: tf.Tensor) -> tf.Tensor:
        """The inverse of `values`, of the online network; float32 [..., H]."""
        return targets


def check_bins(bins: int, least: int = 3, odd: bool = True) -> None:
    """Raises ValueError unless there can be so many bins, as many on either side of 0 if `odd`."""
    if bins < least or (odd and bins % 2 == 0):
        kind = "an odd number" if odd else "a number"
        raise ValueError(f"bins must be {kind} of at least {least}, got {bins}. Write for example bins = 101")
