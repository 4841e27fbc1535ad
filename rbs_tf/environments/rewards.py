"""Wrappers that change rewards and nothing else: what a scale of rewards has to be held against.

Plain Gymnasium, for any agent. With r the reward of the step from s to s', r' what the wrapper makes of it:

    ScaleRewards   r' = M r
    MixedRewards   r' = f_k r                       f cycles through 1, 10, 100 with the rewards of an episode
    SpikeRewards   r' = r + z                       z = +-size with a small probability, else 0
    ShapedRewards  r' = r + gamma Phi(s') - Phi(s)  Phi a function of time only, whose sign turns in mid-run
    DriftRewards   r' = m_n r                       m drifts with the environment's own steps n

Observations, actions, ends and the game's own randomness stay what they are. With Gymnasium's statistics beneath,
`info["episode"]` is of the clean game:

    game = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    env = SpikeRewards(game, size=1e4, probability=1e-3)

Wrappers count the steps of their own environment: one of N that step together sees 1/N of all steps. A `reset` with a
seed starts everything again, these counts included; one without goes on. They are pickled with the environment beneath.
Each raises ValueError for arguments outside their ranges.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium
import numpy as np

from rbs_tf.settings import Setting, refusal, settings_of

_POSITIVE, _SHARE = Setting(above=0, example=10.0), Setting(least=0, most=1)
_STEPS = Setting("environment steps", least=1, example=100_000)
_SPIKES = 1  # sets the stream of spikes apart from the game's, which has the same seed


class _ChangedRewards(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs, abc.ABC):
    """What the wrappers have in common: counts of steps, and one hook."""

    def __init__(self, env: gymnasium.Env, **arguments: Any):
        for name, declared in settings_of(type(self)).items():
            if not declared.fits(arguments[name]):
                raise ValueError(refusal(name, arguments[name], declared))
        gymnasium.utils.RecordConstructorArgs.__init__(self, **arguments)
        gymnasium.Wrapper.__init__(self, env)
        self._steps = 0  # before the next one, since the last reset with a seed
        self._episode_steps = 0  # likewise, of the episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._episode_steps = 0
        if seed is not None:
            self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = self._changed(float(reward), terminated)
        self._steps += 1
        self._episode_steps += 1
        return observation, reward, terminated, truncated, info

    @abc.abstractmethod
    def _changed(self, reward: float, terminated: bool) -> float:
        """r' from r."""


class ScaleRewards(_ChangedRewards):
    """r' = scale r. Every policy's value is multiplied by `scale`: which one is best does not change.

    Args:
      env: the game.
      scale: M, above 0.
    """

    def __init__(self, env: gymnasium.Env, scale: Annotated[float, _POSITIVE]):
        super().__init__(env, scale=scale)
        self._scale = scale

    def _changed(self, reward: float, terminated: bool) -> float:
        return self._scale * reward


class MixedRewards(_ChangedRewards):
    """r' = factors[k mod K] r at the rewards k = 0, 1, ... of an episode, not counting those of 0.

    Any game allows it, it is deterministic, and who remembers the rewards of the episode can predict it.

    The best policy is nearly the same. With rewards of one size, no discount and the default factors, one reward more
    is always worth more, and the policy with the best mixed return collects on average fewer than 2 rewards per episode
    less than the best of the game. With a discount, or rewards of several sizes or signs, there is no such bound.

    Args:
      env: the game.
      factors: K numbers above 0.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        factors: Annotated[Sequence[float], Setting("factors", above=0)] = (1.0, 10.0, 100.0),
    ):
        super().__init__(env, factors=factors)
        self._factors = tuple(factors)
        self._rewards = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._rewards = 0
        return super().reset(seed=seed, options=options)

    def _changed(self, reward: float, terminated: bool) -> float:
        if reward == 0.0:
            return reward
        factor = self._factors[self._rewards % len(self._factors)]
        self._rewards += 1
        return factor * reward


class SpikeRewards(_ChangedRewards):
    """r' = r + z; z is `size` or -`size`, each with half of `probability`, else 0.

    z is drawn at every step, independent of states, actions and all other draws, and has mean 0: the value of every
    policy stays what it is for every discount, and so does the best one. V[R] grows by probability size^2.

    z comes from a stream of its own, which `reset(seed=...)` seeds: the game draws what it would draw without.

    Args:
      env: the game.
      size: of a spike, in rewards; above 0.
      probability: of a spike at a step.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        size: Annotated[float, _POSITIVE] = 1e4,
        probability: Annotated[float, _SHARE] = 1e-3,
    ):
        super().__init__(env, size=size, probability=probability)
        self._size, self._probability = size, probability
        self._random = _spikes_of(None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._random = _spikes_of(seed)
        return super().reset(seed=seed, options=options)

    def _changed(self, reward: float, terminated: bool) -> float:
        draw = self._random.random()
        if draw >= self._probability:
            return reward
        return reward + (self._size if draw < 0.5 * self._probability else -self._size)


class ShapedRewards(_ChangedRewards):
    """r' = r + gamma Phi(s') - Phi(s): shaped by a potential of time only, whose sign turns in mid-run.

    Phi = potential cos(2 pi t / period) after t steps of an episode, Phi = potential without a period, and 0 once the
    episode has terminated (not where it is cut). From step `reverse_after` of this environment on it is -Phi.

    Potentials leave the best policies what they are (Ng, Harada and Russell 1999), and so do potentials that change
    with time (Devlin and Kudenko 2012): from any state, returns of discount gamma become G' = G - Phi(s), whatever the
    policy does. With a constant potential that is an offset: -(1 - gamma) potential at each step, and what all steps to
    come would have paid, -potential, at the terminal one.

    It is exact for a value function whose discount is `discount` itself, and for no other. With discount g, and T steps
    from s to the terminal one,

        G' = G - Phi(s) + (gamma - g) sum_{k=1}^{T-1} g^(k-1) Phi(s_k)

    whose last term depends on how long the episode goes on, and so rewards either surviving or dying: by at most
    potential abs(gamma - g) / (1 - g) under a constant potential, potential abs(gamma - g) period / 2 with a period.

    Args:
      env: the game.
      potential: in rewards; above 0.
      discount: gamma, from 0 to 1.
      period: of Phi in steps of an episode, at least 2; None: Phi is constant.
      reverse_after: steps of this environment after which the sign turns; None: it does not.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        potential: Annotated[float, _POSITIVE],
        discount: Annotated[float, _SHARE] = 0.99,
        period: Annotated[float | None, Setting("steps", least=2, example=20)] = None,
        reverse_after: Annotated[int | None, _STEPS] = None,
    ):
        super().__init__(
            env, potential=potential, discount=discount, period=period, reverse_after=reverse_after
        )
        self._potential, self._discount = potential, discount
        self._period, self._reverse_after = period, reverse_after

    def _changed(self, reward: float, terminated: bool) -> float:
        after = 0.0 if terminated else self._phi(1)
        return reward + self._discount * after - self._phi(0)

    def _phi(self, ahead: int) -> float:
        """Phi of the state that is `ahead` steps further."""
        angle = 0.0 if self._period is None else 2.0 * math.pi * (self._episode_steps + ahead) / self._period
        reversed_ = self._reverse_after is not None and self._steps + ahead >= self._reverse_after
        return (-1.0 if reversed_ else 1.0) * self._potential * math.cos(angle)


class DriftRewards(_ChangedRewards):
    """r' = m_n r at step n = 0, 1, ... of this environment, over all its episodes.

        m_n = start (end / start)^min(n / steps, 1)     gradual
        m_n = start for n < steps / 2, else end         not gradual

    Within an episode a gradual drift acts as a discount that is larger by (end / start)^(1 / steps), 1.000007 for a
    factor of 1000 over a million steps: the best policy stays the same but for that. A sudden change matters in the
    one episode that it falls into.

    Args:
      env: the game.
      steps: of this environment until the end is reached.
      start: first multiplier, above 0.
      end: last multiplier, above 0.
      gradual: drift geometrically; False: change at half of `steps`, at once.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        steps: Annotated[int, _STEPS],
        start: Annotated[float, _POSITIVE] = 1.0,
        end: Annotated[float, _POSITIVE] = 1e3,
        gradual: Annotated[bool, Setting()] = True,
    ):
        super().__init__(env, steps=steps, start=start, end=end, gradual=gradual)
        self._until, self._start, self._end, self._gradual = steps, start, end, gradual

    @property
    def multiplier(self) -> float:
        """m_n of the next step."""
        if not self._gradual:
            return self._start if 2 * self._steps < self._until else self._end
        return self._start * (self._end / self._start) ** min(self._steps / self._until, 1.0)

    def _changed(self, reward: float, terminated: bool) -> float:
        return self.multiplier * reward


def _spikes_of(seed: int | None) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_SPIKES,))))
