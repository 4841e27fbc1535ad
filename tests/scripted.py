"""Gymnasium environments that play given episodes, and the statistics that these have."""

import functools
import itertools

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rbs_tf import ReturnMoments


class Script(gymnasium.Env):
    """Plays the given episodes in turn: rewards, and whether the last step is terminal or a time-out."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *episodes, forever=False):
        self._episodes = itertools.cycle(episodes) if forever else iter(episodes)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rewards, self._terminal = next(self._episodes)
        self._rewards = list(rewards)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward, over = self._rewards.pop(0), not self._rewards
        return np.zeros(1, np.float32), reward, over and self._terminal, over and not self._terminal, {}


def expected(gammas, *episodes):
    gammas, moments = np.atleast_1d(gammas), ReturnMoments.empty(np.size(gammas))
    for rewards, terminal in episodes:
        rewards = np.repeat(np.array(rewards)[:, None], len(gammas), axis=1)
        discounts = np.broadcast_to(gammas, rewards.shape).copy()
        discounts[-1] *= not terminal
        moments = moments.merge(moments, ReturnMoments.from_episode(rewards, discounts))
    return moments


def assert_equal(a, b):
    np.testing.assert_allclose(a.to_array(), b.to_array(), rtol=1e-12, atol=1e-12)


A, B, C = ([1.0, 5.0, -2.0], True), ([3.0], True), (np.arange(7.0), False)
D = (-np.ones(130), True)  # longer than the first buffer


def vector(kind, mode, *scripts):
    """Scripts that start again when they are through, an environment each."""
    return kind([functools.partial(Script, *script, forever=True) for script in scripts], autoreset_mode=mode)


def stepped(envs, count):
    for _ in range(count):
        envs.step(np.zeros(envs.num_envs, int))


def shown(mode, scripts, steps):
    """The episodes that so many vector steps show, the last ones cut by the reset that follows."""
    for script in scripts:
        left = steps
        for rewards, terminal in itertools.cycle(script):
            seen = rewards[: max(left, 0)]
            if len(seen):
                yield seen, terminal and len(seen) == len(rewards)
            left -= len(rewards) + (mode == AutoresetMode.NEXT_STEP)
            if left <= 0:
                break
