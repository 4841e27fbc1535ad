"""Rewards divided by their mean size, renewed with the target network, as MR.Q does."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.scalings.reward_unit import RewardUnit
from rbs_tf.scalings.scaling import HeadLayer


@configurable("mean_abs_reward", module="scalings")
class MeanAbsReward(RewardUnit):
    """Errors (R + gamma s' q') / s - q of outputs q, with s the mean of abs(R), per head.

    Source: Fujimoto et al. 2025, "Towards general-purpose model-free reinforcement learning" (MR.Q), and its code,
    facebookresearch/MRQ. s is renewed when the target network is replaced; until the next time the target network is
    read with the s' that it was trained with. The online network is read with the new s at once, so its values change
    by s / s' then.

    What differs from MR.Q: the mean is over all steps ever seen, not over those in the replay buffer, and it has no
    lower bound. The first s other than 0 is taken over for both networks as soon as it is known; MR.Q starts with 1,
    in whatever unit rewards are.

    Args:
      num_heads: H.

    Attributes:
      online, target: float64 [H] variables, s and s'; 0 until a reward other than 0 has been seen.
    """

    def __init__(self, num_heads: int):
        super().__init__(num_heads)
        self.online, self.target = (
            tf.Variable(tf.zeros(num_heads, tf.float64), trainable=False, name=name)
            for name in ("online", "target")
        )

    def before_update(self, heads: HeadLayer, target_heads: HeadLayer) -> None:
        for unit in (self.online, self.target):
            unit.assign(tf.where(unit > 0.0, unit, self._mean))

    def unit(self, target: bool = False) -> tf.Tensor:
        return tf.convert_to_tensor(self.target if target else self.online)

    def target_updated(self) -> None:
        self.target.assign(self.online)
        self.online.assign(self._mean)

    @property
    def _mean(self) -> tf.Tensor:
        _, mean, _, _ = tf.unstack(self.magnitudes)
        return mean
