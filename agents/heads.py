"""Value heads as data: which rewards a head sees, and how far it looks ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
import tensorflow as tf

from rbs_tf.settings import Setting, configurable

PAPER_DISCOUNTS = (0.0, 0.9, 0.99, 0.999, 1.0)
PairsOfHeads: TypeAlias = Sequence[tuple[float, bool]]
TEN_HEADS = tuple((discount, clip) for clip in (True, False) for discount in PAPER_DISCOUNTS)


def _are_pairs(value: Any) -> bool:
    return isinstance(value, tuple | list) and 0 < len(value) <= 1000 and all(map(_is_pair, value))


def _is_pair(value: Any) -> bool:
    if not (isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], bool)):
        return False
    is_number = isinstance(value[0], int | float) and not isinstance(value[0], bool)
    return is_number and 0.0 <= value[0] <= 1.0


_PAIRS = Setting(
    kind="a tuple of heads, each (its discount from 0 to 1, whether it sees clipped rewards)",
    fits=_are_pairs,
    example=((0.997, False),),
    paper="(0.997, False); or ten",
)


@configurable(module="agents")
class Heads:
    """The value functions that one network learns from the same experience.

    Args:
      pairs: one `(discount, clip)` per head: the discount inside an episode, in [0, 1], and whether the head
        sees rewards clipped to [-1, 1]. The default is the paper's ten (section 4.1): clipped and unclipped
        rewards, each with discounts 0, 0.9, 0.99, 0.999 and 1.
      reward_multiplier: what heads learn from is the environment's reward times this, multiplied before it is
        clipped. Returns, scores and the network's input stay in the environment's own points.
    """

    def __init__(
        self,
        pairs: Annotated[PairsOfHeads, _PAIRS] = TEN_HEADS,
        reward_multiplier: Annotated[float, Setting(least=1e-12, most=1e12)] = 1.0,
    ):
        self.reward_multiplier = float(reward_multiplier)
        self.pairs = tuple((float(discount), bool(clip)) for discount, clip in pairs)
        self._discounts = np.array([discount for discount, _ in self.pairs])
        self._clips = np.array([clip for _, clip in self.pairs])
        labels = [f"{'clipped' if clip else 'unclipped'}_{discount:g}" for discount, clip in self.pairs]
        # Equal heads are legitimate (a control experiment); their labels must still differ.
        self.names = tuple(
            label if labels.count(label) == 1 else f"{label}_{index}" for index, label in enumerate(labels)
        )

    @property
    def note(self) -> str:
        """Says so if heads learn from other rewards than the environment's."""
        if self.reward_multiplier == 1.0:
            return ""
        return f"Heads learn from rewards times {self.reward_multiplier:g}: Heads.reward_multiplier."

    @property
    def unclipped(self) -> int | None:
        """Index of the first head that sees rewards unclipped; None if there is none."""
        return next((index for index, (_, clip) in enumerate(self.pairs) if not clip), None)

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
