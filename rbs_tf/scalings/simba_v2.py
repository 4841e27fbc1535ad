"""Rewards divided such that returns have a bound, as SimbaV2 does."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.scalings.gymnasium_normalise import GymnasiumNormalise
from rbs_tf.scalings.maxima import MomentsWithMaxima
from rbs_tf.settings import Setting, configurable


@configurable("simba_v2", module="scalings")
class SimbaV2(GymnasiumNormalise):
    """Rewards divided by max(sqrt(V[G] + epsilon), max abs(G) / max_return), per head.

    Source: Lee et al. 2025, "Hyperspherical normalization for scalable deep reinforcement learning", and its code,
    DAVIAN-Robotics/SimbaV2 (`RewardNormalizer`, with epsilon, max_return and the start of its running variance). There
    the bound keeps returns within the support of a categorical critic; outputs have no bounds here.

    What `GymnasiumNormalise` says of V[G], replayed rewards and changes of the divisor holds here as well. The largest
    return is known at an episode's end; so max abs(G) is at least max abs(R), which is known at once.

    Args:
      num_heads: H.
      epsilon: added to the variance, squared reward units.
      max_return: no return is larger after the division, once it is known; infinite for `GymnasiumNormalise` itself.

    Attributes:
      largest: max(abs(R), abs(G)) so far, float64 [H] variable.
    """

    moments_class = MomentsWithMaxima

    def __init__(
        self,
        num_heads: int,
        epsilon: Annotated[float, Setting(above=0, gin=False)] = 1e-8,
        max_return: Annotated[float, Setting(above=0, finite=False, gin=False)] = 5.0,
    ):
        super().__init__(num_heads, epsilon)
        self._max_return = max_return
        self.largest = tf.Variable(tf.zeros(num_heads, tf.float64), trainable=False, name="largest")

    def observe(self, moments: ReturnMoments) -> None:
        """Takes in `MomentsWithMaxima` of new steps and finished episodes. Eager.

        Raises:
          ValueError: moments without maxima, or of another number of heads.
        """
        new = MomentsWithMaxima.merge(moments, MomentsWithMaxima.empty(self.num_heads))
        super().observe(moments)
        self.largest.assign(tf.maximum(self.largest, np.maximum(new.largest_reward, new.largest_return)))

    @property
    def scale(self) -> tf.Tensor:
        """Divisor of rewards, float64 [H]; about 1 before the first step."""
        return tf.maximum(super().scale, self.largest / self._max_return)
