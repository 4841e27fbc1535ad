"""Streams of steps and what the method makes of them, to the last bit but one: for the layer and its siblings.

The reference is plain and slow: exact fractions of the float64 numbers given, returns one step after the other, and a
square root to 50 digits at the end. Nothing of the library is used.

    for vector in VECTORS:
        scale = rbs_tf.numpy.ReturnScaling(vector.num_heads, vector.sigma_v, floor_in_units=vector.in_units)
        for rewards, discounts in vector.episodes:
            scale.merge_state(rbs_tf.ReturnMoments.from_episode(rewards, discounts))
        np.testing.assert_allclose(scale(vector.errors), vector.scaled, rtol=TOLERANCE)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np

TOLERANCE = 1e-12  # relative, in float64

Step = tuple[float, float]


@dataclass(frozen=True)
class Vector:
    """One stream, all arrays float64.

    Attributes:
      episodes: finished ones, (rewards [T, H], discounts [T, H]) each; the last discount is 0 or, where cut, gamma.
      sigma_v: the floor, [H]; `in_units`: of the unit instead of 1 (`floor_in_units`).
      errors: [B, H].
      tasks: int [B]: for `errors[:, 0]`, each error's head.
      batch: rewards [T, B, H], discounts [T, B, H] and mask [T, B], whose padding holds NaN.
    """

    name: str
    episodes: tuple[tuple[np.ndarray, np.ndarray], ...]
    sigma_v: np.ndarray
    in_units: bool
    errors: np.ndarray
    tasks: np.ndarray
    batch: tuple[np.ndarray, np.ndarray, np.ndarray]

    @property
    def num_heads(self) -> int:
        return self.errors.shape[-1]

    @cached_property
    def sigma(self) -> np.ndarray:
        """[H]"""
        return np.array([_root(_sigma_squared(self._steps(head))) for head in range(self.num_heads)])

    @cached_property
    def unit(self) -> np.ndarray:
        """[H]"""
        return np.array([_root(_unit_squared(self._steps(head))) for head in range(self.num_heads)])

    @cached_property
    def batch_sigma(self) -> np.ndarray:
        """[H]"""
        rewards, discounts, mask = self.batch
        found = []
        for head in range(self.num_heads):
            stretches: list[list[Step]] = [[]]
            for sequence in range(mask.shape[1]):
                for step in range(len(mask)):
                    if mask[step, sequence]:
                        stretches[-1].append((rewards[step, sequence, head], discounts[step, sequence, head]))
                    else:
                        stretches.append([])
                stretches.append([])
            found.append(_root(_sigma_squared(stretches)))
        return np.array(found)

    @cached_property
    def scaled(self) -> np.ndarray:
        """[B, H], the errors scaled by what the episodes tell."""
        return self.errors / self._divisor(self._floor)

    @cached_property
    def scaled_with_batch(self) -> np.ndarray:
        """[B, H], the same with `batch_sigma`."""
        return self.errors / self._divisor(np.maximum(self._floor, self.batch_sigma))

    @cached_property
    def part_of_batch_sigma(self) -> np.ndarray:
        """[H], `batch_sigma`, and NaN for the first head."""
        return np.where(np.arange(self.num_heads) == 0, np.nan, self.batch_sigma)

    @cached_property
    def scaled_with_part(self) -> np.ndarray:
        """[B, H], the errors scaled with `part_of_batch_sigma`, whose NaN does not count."""
        known = np.nan_to_num(self.part_of_batch_sigma, nan=0.0)
        return self.errors / self._divisor(np.maximum(self._floor, known))

    @cached_property
    def scaled_by_task(self) -> np.ndarray:
        """[B], `errors[:, 0]` scaled with `head=tasks`."""
        errors = self.errors[:, 0]
        divisor = np.maximum(self._floor, self.sigma)[self.tasks]
        return errors / np.where(divisor > 0.0, divisor, _root_mean_square(errors))

    @property
    def _floor(self) -> np.ndarray:
        return self.sigma_v * self.unit if self.in_units else self.sigma_v

    def _divisor(self, floor: np.ndarray) -> np.ndarray:
        divisor = np.maximum(self.sigma, floor)
        return np.where(divisor > 0.0, divisor, [_root_mean_square(column) for column in self.errors.T])

    def _steps(self, head: int) -> list[list[Step]]:
        return [
            list(zip(rewards[:, head], discounts[:, head], strict=True))
            for rewards, discounts in self.episodes
        ]


def _moments(episodes: Iterable[list[Step]]) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """V[R], V[gamma], E[G^2] and E[R^2], exactly; 0 without steps."""
    rewards, discounts, returns = [], [], []
    for episode in episodes:
        following = Fraction(0)
        for reward, discount in reversed([(Fraction(r), Fraction(g)) for r, g in episode]):
            following = reward + discount * following
            rewards.append(reward)
            discounts.append(discount)
            returns.append(following)

    def mean(values: list[Fraction]) -> Fraction:
        return sum(values, Fraction(0)) / max(len(values), 1)

    def variance(values: list[Fraction]) -> Fraction:
        return mean([(value - mean(values)) ** 2 for value in values]) if len(values) else Fraction(0)

    return (
        variance(rewards),
        variance(discounts),
        mean([g**2 for g in returns]),
        mean([r**2 for r in rewards]),
    )


def _sigma_squared(episodes: Iterable[list[Step]]) -> Fraction:
    of_rewards, of_discounts, mean_square_return, _ = _moments(episodes)
    return of_rewards + of_discounts * mean_square_return


def _unit_squared(episodes: Iterable[list[Step]]) -> Fraction:
    *_, mean_square_return, mean_square_reward = _moments(episodes)
    return max(mean_square_return, mean_square_reward)


def _root(square: Fraction) -> float:
    with localcontext() as context:
        context.prec = 50
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


def _root_mean_square(errors: np.ndarray) -> float:
    """1 where all are 0."""
    return _root(sum((Fraction(e) ** 2 for e in errors), Fraction(0)) / len(errors)) or 1.0


def _stream(
    name: str,
    gammas: Iterable[float],
    *,
    times: float | np.ndarray = 1.0,
    offset: float = 0.0,
    sigma_v: float | np.ndarray = 1e-2,
    in_units: bool = False,
    episodes: int = 4,
    cut: bool = False,
) -> Vector:
    """Episodes of 1 to 12 steps with normal rewards, times and plus a number; `cut`: every other one is."""
    gammas = np.array([*gammas])
    heads = len(gammas)
    rng = np.random.default_rng(len(name))
    played = []
    for index in range(episodes):
        length = int(rng.integers(1, 13))
        discounts = np.tile(gammas, (length, 1))
        if not (cut and index % 2):
            discounts[-1] = 0.0
        played.append((times * rng.normal(size=(length, heads)) + offset, discounts))
    alive = rng.uniform(size=(7, 4, 1)) < 0.8
    mask = rng.uniform(size=(7, 4)) < 0.8
    size = np.abs(times) + abs(offset)
    rewards = np.where(mask[..., None], 3.0 * (times * rng.normal(size=(7, 4, heads)) + offset), np.nan)
    discounts = np.where(mask[..., None], alive * gammas, np.nan)
    return Vector(
        name,
        tuple(played),
        np.broadcast_to(sigma_v, heads).astype(np.float64),
        in_units,
        np.where(size > 0.0, size, 1.0) * rng.normal(size=(6, heads)),
        rng.integers(heads, size=6),
        (rewards, discounts, mask),
    )


THREE = (0.0, 0.9, 0.997)
VECTORS = [
    _stream("one head", [0.99]),
    _stream("three heads", THREE),
    _stream("cut episodes", THREE, cut=True),
    _stream("undiscounted", [1.0], episodes=9),
    _stream("scales of their own", THREE, times=np.array([1e-3, 1.0, 1e6])),
    _stream("rewards of 1e4 +- 1", [0.0, 0.9], offset=1e4),
    _stream("constant rewards, the paper's case", [0.0, 0.9], times=0.0, offset=-1.0),
    _stream("no rewards at all", [0.9], times=0.0),
    _stream("nothing seen yet", [0.9, 0.9], episodes=0),
    _stream("tiny rewards", [0.9, 0.0], times=1e-30),
    _stream("huge rewards", [0.9, 0.0], times=1e30),
    _stream("a floor per head", THREE, sigma_v=np.array([0.1, 3.0, 10.0])),
    _stream("in units", THREE, in_units=True, sigma_v=np.array([0.1, 2.0, 0.5])),
    _stream("in units, tiny rewards", [0.9, 0.0], in_units=True, times=1e-30),
    _stream("in units, nothing seen", THREE, in_units=True, episodes=0),
    _stream("in units, constant rewards", [0.0, 0.9], in_units=True, times=0.0, offset=1e4),
]
BY_NAME = {vector.name: vector for vector in VECTORS}


def changing_units() -> np.ndarray:
    """10,000 units of three heads, [10000, 3], one after the other.

    The first takes steps of 1e-6 to 3e-2 of itself, up or down. The second grows by 1e-3, each time more than a layer
    leaves out; the third shrinks by 6e-5, each time less.
    """
    rng, k = np.random.default_rng(0), np.arange(1.0, 10_001.0)
    steps = 10.0 ** rng.uniform(-6.0, -1.5, len(k)) * rng.choice([-1.0, 1.0], len(k))
    return np.stack([np.exp(np.cumsum(steps)), 1.001**k, 1.00006**-k], axis=1)
