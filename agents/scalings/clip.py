"""Reward clipping, the common habit since DQN."""

from __future__ import annotations

import tensorflow as tf

from agents.scalings.scaling import Scaling, named


@named("clip")
class ClippedRewards(Scaling):
    """Rewards clipped to [-1, 1] for learning; errors and values are left as they are.

    Source: Mnih et al. 2015 (DQN); the paper's section "False friends" on what it costs: the agent cannot tell large
    rewards from small ones, and may then learn to collect many in place of much.

    "Reward units" are those of the clipped rewards throughout: targets and bootstraps are sums of these. Returns that
    are reported, scores and the bandit's, come from the environment and stay raw, and so do the statistics.
    """

    def rewards(self, rewards: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(rewards, -1.0, 1.0)
