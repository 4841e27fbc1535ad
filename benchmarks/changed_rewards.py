"""Gymnasium wrappers that change rewards and nothing else: what a scale of rewards is held against.

With r the reward of the step from s to s', r' what the wrapper makes of it:

    ScaleRewards   r' = M r
    MixedRewards   r' = f_k r                       f cycles through 1, 10, 100 with the rewards of an episode
    SpikeRewards   r' = r + z                       z = +-size with a small probability, else 0
    ShapedRewards  r' = r + gamma Phi(s') - Phi(s)  Phi a function of time only, whose sign turns in mid-run
    DriftRewards   r' = m_n r                       m drifts with the environment's own steps n

With Gymnasium's RecordEpisodeStatistics beneath, `info["episode"]` is of the clean game. Each wrapper counts the steps
of its environment: one of N that step together sees 1/N of all steps. `reset` with a seed starts the counts again.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import gymnasium
import numpy as np


class ChangedRewards(gymnasium.Wrapper, abc.ABC):
    """Counts steps and passes each reward through `changed`."""

    steps = 0  # before the next one, since the last reset with a seed
    episode_steps = 0  # likewise, of the episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.episode_steps = 0
        if seed is not None:
            self.steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = self.changed(float(reward), terminated)
        self.steps += 1
        self.episode_steps += 1
        return observation, reward, terminated, truncated, info

    @abc.abstractmethod
    def changed(self, reward: float, terminated: bool) -> float:
        """r' from r."""


class ScaleRewards(ChangedRewards):
    """r' = scale r: every policy's value is multiplied by `scale`, and the best policy stays."""

    def __init__(self, env: gymnasium.Env, scale: float):
        super().__init__(env)
        self._scale = scale

    def changed(self, reward: float, terminated: bool) -> float:
        return self._scale * reward


class MixedRewards(ChangedRewards):
    """r' = f_k r at the rewards k = 0, 1, ... of an episode, not counting those of 0; f cycles through 1, 10, 100.

    Deterministic, and predictable from the rewards of the episode. With rewards of one size and no discount the policy
    with the best mixed return collects on average fewer than 2 rewards per episode less than the best of the game.
    """

    _rewards = 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._rewards = 0
        return super().reset(**options)

    def changed(self, reward: float, terminated: bool) -> float:
        if reward == 0.0:
            return reward
        factor = (1.0, 10.0, 100.0)[self._rewards % 3]
        self._rewards += 1
        return factor * reward


class SpikeRewards(ChangedRewards):
    """r' = r + z; z is `size` or `-size`, each with half of `probability`, else 0.

    z is independent of states, actions and all other draws, and has mean 0: every policy's value stays, and V[R] grows
    by probability size^2.
    """

    def __init__(self, env: gymnasium.Env, size: float, probability: float):
        super().__init__(env)
        self._size, self._probability = size, probability
        self._random = np.random.default_rng()

    def reset(self, *, seed: int | None = None, **options: Any) -> tuple[Any, dict[str, Any]]:
        if seed is not None:  # a stream apart from the game's, which has the same seed
            self._random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        return super().reset(seed=seed, **options)

    def changed(self, reward: float, terminated: bool) -> float:
        draw = self._random.random()
        if draw >= self._probability:
            return reward
        return reward + (self._size if draw < 0.5 * self._probability else -self._size)


class ShapedRewards(ChangedRewards):
    """r' = r + gamma Phi(s') - Phi(s): shaped by a potential of time only, whose sign turns in mid-run.

    Phi = potential cos(2 pi t / period) after t steps of an episode, and 0 once the episode has terminated (not where
    it is cut). From step `reverse_after` of this environment on it is -Phi.

    Potentials leave the best policies what they are (Ng, Harada and Russell 1999), also those that change with time
    (Devlin and Kudenko 2012): returns of discount gamma become G' = G - Phi(s), whatever the policy does. For a value
    function of another discount g there is a further term, at most potential abs(gamma - g) period / 2.
    """

    def __init__(
        self, env: gymnasium.Env, potential: float, discount: float, period: float, reverse_after: int
    ):
        super().__init__(env)
        self._potential, self._discount = potential, discount
        self._period, self._reverse_after = period, reverse_after

    def changed(self, reward: float, terminated: bool) -> float:
        after = 0.0 if terminated else self._phi(1)
        return reward + self._discount * after - self._phi(0)

    def _phi(self, ahead: int) -> float:
        """Phi of the state that is `ahead` steps further."""
        angle = 2.0 * math.pi * (self.episode_steps + ahead) / self._period
        sign = -1.0 if self.steps + ahead >= self._reverse_after else 1.0
        return sign * self._potential * math.cos(angle)


class DriftRewards(ChangedRewards):
    """r' = m_n r at step n = 0, 1, ... of this environment; m_n = start (end / start)^min(n / steps, 1).

    Within an episode the drift acts as a discount that is larger by (end / start)^(1 / steps).
    """

    def __init__(self, env: gymnasium.Env, steps: int, start: float, end: float):
        super().__init__(env)
        self._until, self._start, self._end = steps, start, end

    def changed(self, reward: float, terminated: bool) -> float:
        return self._start * (self._end / self._start) ** min(self.steps / self._until, 1.0) * reward
