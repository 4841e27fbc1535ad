"""Normalising by the spread of returns, the second of the paper's "false friends"."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.moments import ReturnMoments
from rbs_tf.scalings.false_friends import FalseFriend


@configurable("return_std", module="scalings")
class ReturnStd(FalseFriend):
    """TD errors divided by max(std(G), sigma_v), per head.

    Source: the paper's section "False friends": it does not see the order in time, so it treats returns that jump
    about like smooth ones (scenario c), although the errors on the way are far larger.

    Returns are known when their episode has ended; until the first has, the scale is sigma_v.
    """

    @staticmethod
    def scale_of(moments: ReturnMoments) -> tf.Tensor:
        return tf.sqrt(return_variance(moments))


def return_variance(moments: ReturnMoments) -> tf.Tensor:
    """V[G] = E[G^2] - E[G]^2, float64 [H]; good to about 1e-15 E[G^2], and rounding never makes it negative."""
    return tf.maximum(moments.return_mean_square - tf.square(moments.return_mean), 0.0)
