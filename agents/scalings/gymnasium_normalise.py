"""Rewards divided by the deviation of returns, as Gymnasium's wrapper NormalizeReward does."""

from __future__ import annotations

import tensorflow as tf

from agents.scalings.false_friends import return_variance
from agents.scalings.scaling import Scaling, named
from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling

# Gymnasium's running variance starts with this many samples of mean 0 and variance 1.
_PRIOR_COUNT = 1e-4


@named("gymnasium")
class GymnasiumNormalise(Scaling):
    """Rewards divided by sqrt(V[G] + epsilon) for learning, per head; their mean is not subtracted.

    Source: `gymnasium.wrappers.NormalizeReward`, with its epsilon and the start of its running variance.

    "Reward units" are those of the normalised rewards throughout: `values` is the identity, and all rewards of a target
    are divided by the same number, today's. When that changes, values have to be learned again, as with the wrapper.

    The wrapper takes the variance of forward sums A_t = R_t + gamma_t A_(t-1); this takes that of returns
    G_t = R_t + gamma_t G_(t+1). A_t holds a reward as soon as it is paid, G_t is known at an episode's end; so the
    variance is at least V[R], which keeps the first large rewards from being divided by next to nothing.

    Args:
      num_heads: H.
      epsilon: added to the variance, squared reward units; above 0.
    """

    def __init__(self, num_heads: int, epsilon: float = 1e-8):
        super().__init__(num_heads)
        self._epsilon = epsilon
        self.layer = ReturnScaling(num_heads=num_heads)

    def observe(self, moments: ReturnMoments) -> None:
        self.layer.merge_state(moments)

    def rewards(self, rewards: tf.Tensor) -> tf.Tensor:
        return rewards / tf.cast(self.scale, rewards.dtype)

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"reward_scale": self.scale}

    @property
    def scale(self) -> tf.Tensor:
        """Divisor of rewards, float64 [H]; about 1 before the first step."""
        moments = self.layer.moments
        of_returns = _running_variance(moments.return_count, moments.return_mean, return_variance(moments))
        of_rewards = _running_variance(moments.count, moments.reward_mean, moments.reward_variance)
        return tf.sqrt(tf.maximum(of_returns, of_rewards) + self._epsilon)


def _running_variance(count: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """The variance of `count` samples, float64 [H] each, and of those that Gymnasium starts with."""
    share = _PRIOR_COUNT / (count + _PRIOR_COUNT)
    return share + (1.0 - share) * (variance + share * tf.square(mean))
