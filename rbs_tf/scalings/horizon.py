"""Normalising by the time horizon, the third of the paper's "false friends"."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.moments import ReturnMoments
from rbs_tf.scalings.false_friends import FalseFriend

# Rounding of merged moments stays orders of magnitude below this, and no useful discount lies so close to 1.
_UNDISCOUNTED = 1.0 - 1e-9


@configurable("horizon", module="scalings")
class Horizon(FalseFriend):
    """TD errors divided by the effective horizon 1 / (1 - gamma), per head.

    Source: the paper's section "False friends": the largest possible error grows like that, the typical one far less
    (scenario e); and it sees no reward at all.

    gamma is the discount inside episodes. The statistics mix it with the zeros at their ends, but the ratio
    E[gamma_t^2] / E[gamma_t] = gamma takes them out again, exactly where gamma is constant. The fraction of zeros is
    V[gamma_t] / E[gamma_t^2]. For gamma = 1 the horizon is the inverse of that, the mean number of steps per
    termination, which is the mean episode length where no episode is cut off; never more than the steps seen so far.
    Other discounts are not bounded: 0.999 counts 1000 steps in episodes of ten, too.

    Before the first step, as for gamma = 0, the horizon is 1. So sigma_v plays no part unless it is above 1.
    """

    @staticmethod
    def scale_of(moments: ReturnMoments) -> tf.Tensor:
        mean_square = moments.discount_variance + tf.square(moments.discount_mean)
        gamma = tf.math.divide_no_nan(mean_square, moments.discount_mean)
        ending = tf.math.divide_no_nan(moments.discount_variance, mean_square)
        at_least = 1.0 / tf.maximum(moments.count, 1.0)
        return 1.0 / tf.where(gamma < _UNDISCOUNTED, 1.0 - gamma, tf.maximum(ending, at_least))
