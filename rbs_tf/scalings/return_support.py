"""Distributions over bins in units of the return, which move with it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling
from rbs_tf.scalings.categorical import CategoricalScaling, check_bins
from rbs_tf.scalings.divisor import return_unit
from rbs_tf.scalings.scaling import ErrorContext, HeadLayer


@configurable("return_support", module="scalings")
class ReturnSupport(CategoricalScaling):
    """Q = s sum_k p_k b_k with bins b_k = 0 and +-top exp(-log_step i), s = sqrt(max(E[G^2], E[R^2])), per head.

    Beyond the paper: `ReturnOut`'s unit for the bins of a distribution. Each bin is the same factor, exp(log_step),
    larger than its neighbour, so if s changes by a whole power of it every bin lands on another one, and the last
    layer's weights move with them (`HeadLayer.move_outputs`), in the value stream and in the advantage stream. s is the
    first one that statistics gave, taken over by both networks without moving anything, times such powers; it follows
    once it is off by one or more. Multiplied rewards multiply it, and nothing else changes. A head that has seen no
    reward but 0 has s = 0, and all its values are 0. The target network keeps the s that it was copied with.

    What a move by j bins preserves, of every state and action:

    * The odds between any two bins that both supports have, 0 among them, and where these lie in reward units, exactly.
    * So the new value is the old one's mean over the bins that remain, where the rest has probability P and new bins
      have probability N it is (s sum_remaining p_k b_k) / (1 - P + N). Where s grows, what falls off are the j smallest
      bins on either side of 0, up to top exp(log_step (j - bins // 2)); where it shrinks, the j largest. Logits are
      linear in what the layer sees, a sum of probabilities is not: merging would need another network.
    * New bins, the j largest or the j smallest on either side, get the mean of the outermost two bins' weights, mostly
      the least likely ones. Equal on either side, they add exactly nothing to any value but by way of N.

    So values of the size of s survive where j is small beside the bins below them, 19 with the default options (s times
    45); a head whose s grows thousandfold at one spike forgets what it knew. The optimiser's moments stay where they
    are.

    Targets are put onto their two neighbours such that the mean is exact. Between 0 and the smallest bins, +-0.022 s
    with the default options, values are told apart by the probabilities of these three. Spacing: TD-MPC2 (Hansen et al.
    2024) has 0.2, DreamerV3 0.16. A closer one needs more bins or leaves a hole around 0: 101 bins 0.12 apart from
    400 s downwards end at 1.1 s, above most values, and every move would take away bins that are in use.

    Errors are those of values divided by s, so that priorities know nothing of the rewards' unit either.

    Args:
      num_heads: H.
      bins: K, an odd number.
      log_step: d, the logarithm of the factor between neighbours.
      top: the largest bin, in units of s.

    Raises:
      ValueError: an even number of bins or less than 3; a step or a top that is not positive.
    """

    def __init__(self, num_heads: int, bins: int = 101, log_step: float = 0.2, top: float = 400.0):
        check_bins(bins)
        if not (0.0 < log_step < np.inf and 0.0 < top < np.inf):
            raise ValueError(
                "the largest bin, top, and the logarithm of the factor between neighbours, log_step, must be positive; "
                f"got {top} and {log_step}. Write for example top = 400.0 and log_step = 0.2"
            )
        above = top * np.exp(-log_step * np.arange(bins // 2))[::-1]
        super().__init__(num_heads, np.concatenate([-above[::-1], [0.0], above]))
        self._log_step = log_step
        self.layer = ReturnScaling(num_heads=num_heads)
        self.scale, self.target_scale = (
            tf.Variable(tf.zeros(num_heads, tf.float64), trainable=False, name=name)
            for name in ("scale", "target_scale")
        )

    def observe(self, moments: ReturnMoments) -> None:
        self.layer.merge_state(moments)

    def before_update(self, heads: HeadLayer, target_heads: HeadLayer) -> None:
        wanted = return_unit(self.layer)
        for scale in (self.scale, self.target_scale):
            scale.assign(tf.where(scale > 0.0, scale, wanted))
        ratio = tf.where(wanted > 0.0, wanted / tf.where(wanted > 0.0, self.scale, 1.0), 1.0)
        # Rounded towards 0: a scale that trembles around the middle of two steps must not move anything to and fro.
        steps = tf.cast(tf.math.log(ratio) / self._log_step, tf.int64)
        self.scale.assign(self.scale * tf.exp(self._log_step * tf.cast(steps, tf.float64)))
        sources = self._sources(steps)
        tf.cond(tf.reduce_any(steps != 0), lambda: heads.move_outputs(sources), lambda: None)

    def _sources(self, steps: tf.Tensor) -> tf.Tensor:
        """Where each bin's weights come from if s grows by so many steps: int64 [H] -> int64 [H, K], K for new bins."""
        bins = self.outputs_per_action
        middle = bins // 2
        place = np.arange(bins) - middle
        moved = np.abs(place) + steps[:, None]
        sources = tf.where((moved >= 1) & (moved <= middle), middle + np.sign(place) * moved, bins)
        return tf.where(place == 0, tf.constant(middle, tf.int64), sources)

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        return tf.cast(self.target_scale if target else self.scale, outputs.dtype) * outputs

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        # First priorities are asked for before any statistics are in: there the batch has to say what its units are.
        # In float64, where squares of tiny rewards do not vanish.
        count = tf.maximum(tf.reduce_sum(tf.cast(context.error_mask, tf.float64)), 1.0)
        squares = tf.square(tf.cast(targets, tf.float64))
        of_batch = tf.cast(tf.sqrt(tf.reduce_sum(squares, axis=(0, 1)) / count), targets.dtype)
        scale = tf.cast(self.scale, targets.dtype)
        divisor = tf.where(scale > 0.0, scale, tf.where(of_batch > 0.0, of_batch, 1.0))
        return (targets - scale * outputs) / divisor

    def _network_units(self, targets: tf.Tensor) -> tf.Tensor:
        return tf.math.divide_no_nan(targets, tf.cast(self.scale, targets.dtype))

    def target_updated(self) -> None:
        self.target_scale.assign(self.scale)

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"output_scale": self.scale}
