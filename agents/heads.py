"""Value heads as data: which rewards a head sees, and how far it looks ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gin
import numpy as np
import tensorflow as tf

PAPER_DISCOUNTS = (0.0, 0.9, 0.99, 0.999, 1.0)
TEN_HEADS = tuple((discount, clip) for clip in (True, False) for discount in PAPER_DISCOUNTS)


@gin.configurable(module="agents")
class Heads:
    """The value functions that one network learns from the same experience.

    Args:
      pairs: one `(discount, clip)` per head: the discount inside an episode, in [0, 1], and whether the head
        sees rewards clipped to [-1, 1]. The default is the paper's ten (section 4.1): clipped and unclipped
        rewards, each with discounts 0, 0.9, 0.99, 0.999 and 1.
      reward_multiplier: what heads learn from is the environment's reward times this, multiplied before it is
        clipped. Returns, scores and the network's input stay in the environment's own points.

    Raises:
      ValueError: no head, a pair that is none, a discount outside [0, 1], or a multiplier that is not positive.
    """

    def __init__(self, pairs: Sequence[tuple[float, bool]] = TEN_HEADS, reward_multiplier: float = 1.0):
        if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise ValueError(
                "Heads.pairs must be (discount, clip) pairs, at least one; "
                f"got {pairs!r}. Write Heads.pairs = ((0.997, False),)"
            )
        for discount, _ in pairs:
            if not 0.0 <= discount <= 1.0:
                raise ValueError(f"Heads.pairs: a discount must lie in [0, 1], got {discount!r}")
        if not 0.0 < reward_multiplier < np.inf:
            raise ValueError(f"Heads.reward_multiplier must be a positive number, got {reward_multiplier!r}")
        self.reward_multiplier = float(reward_multiplier)
        self.pairs = tuple((float(discount), bool(clip)) for discount, clip in pairs)
        self._discounts = np.array([discount for discount, _ in self.pairs])
        self._clips = np.array([clip for _, clip in self.pairs])
        labels = [f"{'clipped' if clip else 'unclipped'}_{discount:g}" for discount, clip in self.pairs]
        # Equal heads are legitimate (a control experiment); their labels must still differ.
        self.names = tuple(
            label if labels.count(label) == 1 else f"{label}_{index}" for index, label in enumerate(labels)
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def rewards(self, rewards: Any) -> Any:
        """Rewards as each head sees them: [...] -> [..., H]; NumPy in float64, tensors in their own dtype."""
        if tf.is_tensor(rewards):
            rewards = rewards[..., None] * self.reward_multiplier
            return tf.where(self._clips, tf.clip_by_value(rewards, -1, 1), rewards)
        rewards = np.asarray(rewards, np.float64)[..., None] * self.reward_multiplier
        return np.where(self._clips, np.clip(rewards, -1.0, 1.0), rewards)

    def discounts(self, discounts: Any) -> Any:
        """Environment discounts (0 at a terminal step, else 1) times each head's own: [...] -> [..., H]."""
        if tf.is_tensor(discounts):
            return discounts[..., None] * tf.constant(self._discounts, discounts.dtype)
        return np.asarray(discounts, np.float64)[..., None] * self._discounts
