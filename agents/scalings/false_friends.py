"""The paper's "false friends": errors divided by one all-time statistic per head."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from agents.scalings.scaling import ErrorContext, Scaling, named
from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling

# Rounding of merged moments stays orders of magnitude below this, and no useful discount lies so close to 1.
_UNDISCOUNTED = 1.0 - 1e-9


class FalseFriend(Scaling):
    """TD errors divided by max(scale, sigma_v), where a subclass says what the scale is.

    The paper's section "False friends" divides rewards or returns. Here it is the errors that are divided, as in
    return-based scaling, so that only the choice of the scale differs; without sigma_batch or a measured sigma_v.

    Args:
      num_heads: H.
      sigma_v: positive floor of the scale, reward units.

    Attributes:
      compute_scale: what a subclass defines: the statistic, ReturnMoments -> float64 [H], without the floor.
      layer: holds the statistics and the floor, float64; its own sigma is not used.
    """

    compute_scale: Callable[[ReturnMoments], tf.Tensor]

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
        return tf.maximum(self.compute_scale(self.layer.moments), self.layer.sigma_v)


@named("reward_std")
class RewardStd(FalseFriend):
    """TD errors divided by max(std(R), sigma_v), per head.

    It sees neither an offset of all rewards (scenario b), which the ends of episodes turn into errors, nor discounts
    (scenario e).
    """

    @staticmethod
    def compute_scale(moments: ReturnMoments) -> tf.Tensor:
        return tf.sqrt(moments.reward_variance)


@named("return_std")
class ReturnStd(FalseFriend):
    """TD errors divided by max(std(G), sigma_v), per head.

    It does not see the order in time, so it treats returns that jump about like smooth ones (scenario c), although the
    errors on the way are far larger. Returns are known when their episode has ended; until the first has, the scale is
    sigma_v.
    """

    @staticmethod
    def compute_scale(moments: ReturnMoments) -> tf.Tensor:
        return tf.sqrt(return_variance(moments))


@named("horizon")
class Horizon(FalseFriend):
    """TD errors divided by the effective horizon 1 / (1 - gamma), per head.

    The largest possible error grows like that, the typical one far less (scenario e); and it sees no reward at all.

    gamma is the discount inside episodes: E[gamma_t^2] / E[gamma_t] takes the zeros at their ends out again. The
    fraction of zeros is V[gamma_t] / E[gamma_t^2]. For gamma = 1 the horizon is the inverse of that, the mean number of
    steps per termination; never more than the steps seen so far. Other discounts are not bounded: 0.999 counts 1000
    steps in episodes of ten, too. Before the first step, as for gamma = 0, the horizon is 1.
    """

    @staticmethod
    def compute_scale(moments: ReturnMoments) -> tf.Tensor:
        mean_square = moments.discount_variance + tf.square(moments.discount_mean)
        gamma = tf.math.divide_no_nan(mean_square, moments.discount_mean)
        ending = tf.math.divide_no_nan(moments.discount_variance, mean_square)
        at_least = 1.0 / tf.maximum(moments.count, 1.0)
        return 1.0 / tf.where(gamma < _UNDISCOUNTED, 1.0 - gamma, tf.maximum(ending, at_least))


def return_variance(moments: ReturnMoments) -> tf.Tensor:
    """V[G] = E[G^2] - E[G]^2, float64 [H]; good to about 1e-15 E[G^2], and rounding never makes it negative."""
    return tf.maximum(moments.return_mean_square - tf.square(moments.return_mean), 0.0)
