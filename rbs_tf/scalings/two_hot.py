"""Two-hot cross-entropy on bins that grow exponentially, as in DreamerV3."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.scalings.categorical import CategoricalScaling, check_bins
from rbs_tf.scalings.scaling import ErrorContext


@configurable("two_hot", module="scalings")
class TwoHot(CategoricalScaling):
    """Distributions over +-symexp(linspace(-limit, 0)), symexp(x) = sign(x) (exp(abs(x)) - 1), in reward units.

    Source: Hafner et al. 2023, "Mastering diverse domains through world models" (DreamerV3). Targets are put onto their
    two neighbours such that the mean is exact. Between -0.1 and 0.1 or so the bins are even, so small rewards are told
    apart by the probabilities of three bins, whatever their unit.

    Errors are those of symlog(value), the coordinate in which bins are even: in reward units the heads with the largest
    returns alone would decide about priorities.

    Args:
      num_heads: H.
      bins: K, an odd number.
      limit: of symlog(value); 20 is 4.9e8 in reward units.

    Raises:
      ValueError: an even number of bins or less than 3; a limit that is not positive, or too large for float32.
    """

    def __init__(self, num_heads: int, bins: int = 255, limit: float = 20.0):
        check_bins(bins)
        if not 0.0 < limit <= 80.0:
            raise ValueError(
                f"limit is that of symlog(value), above 0 and up to 80; got {limit}. Write limit = 20.0"
            )
        below = -np.expm1(np.linspace(limit, 0.0, bins // 2 + 1))
        super().__init__(num_heads, np.concatenate([below, -below[-2::-1]]))

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        return _symlog(targets) - _symlog(outputs)


def _symlog(x: tf.Tensor) -> tf.Tensor:
    return tf.sign(x) * tf.math.log1p(tf.abs(x))
