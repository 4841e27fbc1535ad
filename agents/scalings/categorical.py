"""Scalings whose heads put out a distribution over bins instead of a value."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from agents.scalings.scaling import ErrorContext, Scaling, named


class CategoricalScaling(Scaling):
    """A value is the mean of a softmax over fixed bins, learned by cross-entropy with the scalar n-step target.

    The target is projected onto the bins; it is no distributional Bellman update. The loss of a step is at most linear
    in the logits: no error, however large, has a gradient of more than 1 in any of them. Errors, for priorities and
    TensorBoard, are those of decoded values.

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
            bins = f"{len(support)} bins from {support[0]:.4g} up to {support[-1]:.4g}"
            raise ValueError(f"float32 cannot hold, or not tell apart, {bins}")
        self.outputs_per_action = len(support)
        self._centre = np.float32((support[0] + support[-1]) / 2.0)
        self._offsets = (support[-(len(support) // 2) :] - self._centre).astype(np.float32)

    def decode(self, outputs: tf.Tensor) -> tf.Tensor:
        masses = tf.exp(outputs - tf.reduce_max(outputs, axis=-1, keepdims=True))
        # In pairs from both sides, so that the mean of a uniform distribution is exactly the centre: bins may be 5e8.
        pairs = len(self._offsets)
        differences = masses[..., -pairs:] - tf.reverse(masses[..., :pairs], axis=[-1])
        mean = tf.reduce_sum(differences * self._offsets, axis=-1) / tf.reduce_sum(masses, axis=-1)
        return self._centre + mean

    def project(self, values: tf.Tensor) -> tf.Tensor:
        """Network units float32 [...] -> probabilities [..., K]; here of the two neighbours only, the mean exact.

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
        wanted = tf.stop_gradient(self.project(targets))
        losses = tf.nn.softmax_cross_entropy_with_logits(wanted, outputs)
        return losses * context.error_mask[..., None]


@named("two_hot")
class TwoHot(CategoricalScaling):
    """Distributions over +-symexp(linspace(-limit, 0)), symexp(x) = sign(x) (exp(abs(x)) - 1), in reward units.

    Source: Hafner et al. 2023, "Mastering diverse domains through world models" (DreamerV3). Errors are those of
    symlog(value): in reward units only the heads with the largest returns would decide about priorities.

    Args:
      num_heads: H.
      bins: K, an odd number.
      limit: of symlog(value); 20 is 4.9e8 in reward units.
    """

    def __init__(
        self,
        num_heads: int,
        bins: int = 255,
        limit: float = 20.0,
    ):
        below = -np.expm1(np.linspace(limit, 0.0, bins // 2 + 1))
        super().__init__(num_heads, np.concatenate([below, -below[-2::-1]]))

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        return _symlog(targets) - _symlog(outputs)


@named("hl_gauss")
class HLGauss(CategoricalScaling):
    """Distributions over even bins between fixed bounds, in reward units; each target becomes a normal.

    Source: Farebrother et al. 2024, "Stop regressing: training value functions via classification for scalable deep
    RL", whose bounds are for clipped rewards. Targets are clipped to the bounds. Each bin's probability is the mass of
    a normal around the target in it, divided by the mass within the bounds. Errors are in reward units.

    Args:
      num_heads: H.
      v_min: the support's lower edge, reward units; None: -v_max.
      v_max: its upper edge.
      bins: K.
      deviation: of the normal, in widths of a bin.

    Raises:
      ValueError: bounds between which float32 has no room for the bins.
    """

    def __init__(
        self,
        num_heads: int,
        v_min: float | None = None,
        v_max: float = 10.0,
        bins: int = 51,
        deviation: float = 0.75,
    ):
        v_min = -v_max if v_min is None else v_min
        edges = np.linspace(v_min, v_max, bins + 1)
        super().__init__(num_heads, (edges[1:] + edges[:-1]) / 2.0)
        self._edges = edges.astype(np.float32)
        self._spread = np.float32(np.sqrt(2.0) * deviation * (v_max - v_min) / bins)

    def project(self, values: tf.Tensor) -> tf.Tensor:
        """Network units float32 [...] -> probabilities [..., K]: the masses of a normal."""
        centre = tf.clip_by_value(values, self._edges[0], self._edges[-1])[..., None]
        below = tf.math.erf((self._edges - centre) / self._spread)
        # In float32 erf may fall by its last bit.
        masses = tf.maximum(below[..., 1:] - below[..., :-1], 0.0)
        return masses / (below[..., -1:] - below[..., :1])


def _symlog(x: tf.Tensor) -> tf.Tensor:
    return tf.sign(x) * tf.math.log1p(tf.abs(x))
