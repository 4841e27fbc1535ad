"""Rewards divided by the largest one so far."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.scalings.reward_unit import RewardUnit


@configurable("max_reward", module="scalings")
class MaxReward(RewardUnit):
    """Rewards divided by s = max abs(R) over all steps ever seen, per head, so that all lie in [-1, 1].

    Source: common practice; it is what a person does who knows the largest reward and writes it into the environment.
    Unlike clipping it keeps their proportions. It sees neither how often rewards come nor discounts, and one huge
    reward makes all others small for good. Where no reward exceeds 1, and one of 1 has come, it changes nothing.

    Replayed rewards are divided by today's s, and so are the values of both networks: when s grows, values that were
    right before are not any more, and have to be learned anew.
    """

    def unit(self, target: bool = False) -> tf.Tensor:
        _, _, largest, _ = tf.unstack(self.magnitudes)
        return largest
