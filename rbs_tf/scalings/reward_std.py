"""Normalising by the spread of rewards, the first of the paper's "false friends"."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.moments import ReturnMoments
from rbs_tf.scalings.false_friends import FalseFriend


@configurable("reward_std", module="scalings")
class RewardStd(FalseFriend):
    """TD errors divided by max(std(R), sigma_v), per head.

    Source: the paper's section "False friends": it sees neither an offset of all rewards (scenario b), which the ends
    of episodes turn into errors, nor discounts (scenario e).
    """

    @staticmethod
    def scale_of(moments: ReturnMoments) -> tf.Tensor:
        return tf.sqrt(moments.reward_variance)
