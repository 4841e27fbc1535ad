"""Cross-entropy with a normal distribution around the target."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.scalings.categorical import CategoricalScaling, check_bins


@configurable("hl_gauss", module="scalings")
class HLGauss(CategoricalScaling):
    """Distributions over even bins between fixed bounds, in reward units; each target a normal of its own.

    Source: Farebrother et al. 2024, "Stop regressing: training value functions via classification for scalable deep
    RL", whose bounds are for clipped rewards. Targets are clipped to the bounds. Each bin's probability is the mass of
    a normal around the target in it, divided by the mass within the bounds; at a bound that halves the normal, and the
    mean lies further in by up to 0.8 of its deviation.

    Errors, for priorities, are in reward units.

    Args:
      num_heads: H.
      v_min: the support's lower edge, reward units.
      v_max: its upper edge.
      bins: K.
      deviation: of the normal, in widths of a bin.

    Raises:
      ValueError: bounds that are no interval, less than 3 bins, a deviation that is not positive.
    """

    def __init__(
        self,
        num_heads: int,
        v_min: float = -10.0,
        v_max: float = 10.0,
        bins: int = 51,
        deviation: float = 0.75,
    ):
        check_bins(bins, odd=False)
        if not -np.inf < v_min < v_max < np.inf:
            raise ValueError(
                f"values lie between v_min and v_max, so v_min must be less; got {v_min} and {v_max}. "
                "Write for example v_min = -10.0 and v_max = 10.0"
            )
        if not 0.0 < deviation < np.inf:
            raise ValueError(
                f"deviation is a number of bin widths above 0; got {deviation}. The paper's is 0.75"
            )
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
