"""Value heads as data: which rewards a head sees, and how far it looks ahead."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from agents.checks import Checked, Kind, number, setting, several

PAPER_DISCOUNTS = (0.0, 0.9, 0.99, 0.999, 1.0)
PairsOfHeads: TypeAlias = Sequence[tuple[float, bool]]
TEN_HEADS = tuple((discount, clip) for clip in (True, False) for discount in PAPER_DISCOUNTS)

_DISCOUNT = number(least=0, most=1)


def _is_pair(value: Any) -> bool:
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    return is_pair and _DISCOUNT.fits(value[0]) and isinstance(value[1], bool)


_PAIRS = several("heads", Kind("(its discount from 0 to 1, whether it sees clipped rewards)", _is_pair))


@dataclasses.dataclass(frozen=True)
class Heads(Checked):
    """The value functions that one network learns from the same experience.

    Args:
      pairs: one `(discount, clip)` per head: the discount inside an episode, in [0, 1], and whether the head
        sees rewards clipped to [-1, 1]. The default is the paper's ten (section 4.1): clipped and unclipped
        rewards, each with discounts 0, 0.9, 0.99, 0.999 and 1.
      reward_multiplier: what heads learn from is the environment's reward times this, multiplied before it is
        clipped. Returns, scores and the network's input stay in the environment's own points.

    Raises:
      ValueError: a value that does not fit.
    """

    known_as = "Heads"

    pairs: PairsOfHeads = setting(
        TEN_HEADS, _PAIRS, example=((0.997, False),), paper="(0.997, False); or ten"
    )
    reward_multiplier: float = setting(1.0, number(least=1e-12, most=1e12))

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """A label for each head."""
        labels = [f"{'clipped' if clip else 'unclipped'}_{discount:g}" for discount, clip in self.pairs]
        # Equal heads are legitimate (a control experiment); their labels must still differ.
        return tuple(
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

    @functools.cached_property
    def _discounts(self) -> np.ndarray:
        return np.array([discount for discount, _ in self.pairs], np.float64)

    @functools.cached_property
    def _clips(self) -> np.ndarray:
        return np.array([clip for _, clip in self.pairs])

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
