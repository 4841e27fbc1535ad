"""Environments of Stable-Baselines3 that play given episodes, and the statistics that these have."""

import functools

import numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv

from rbs_tf import ReturnMoments
from tests.scripted import Script

# Rewards of each episode in turn, and whether its last step is terminal or a time-out; float32 holds the rewards.
EPISODES = (([1.0, 5.0, -2.0], True), ([3.0], True), (list(range(7)), False), ([0.5, 0.25], False))


STARTS = (0, 2, 3)


def replayed(steps, gammas, cut=()):
    """Moments of so many steps of each environment; open episodes have no returns yet unless a reset cut them."""
    gammas, moments = np.atleast_1d(gammas), ReturnMoments.empty(np.size(gammas))
    for start in STARTS:
        left, number = steps, start
        while left:
            rewards, terminal = EPISODES[number % len(EPISODES)]
            ends = left >= len(rewards)
            rewards = np.repeat(np.array(rewards[:left], float)[:, None], len(gammas), axis=1)
            discounts = np.broadcast_to(gammas, rewards.shape).copy()
            discounts[-1] *= not (terminal and ends)
            make = ReturnMoments.from_episode if ends or cut else ReturnMoments.from_steps
            moments = ReturnMoments.merge(moments, make(rewards, discounts))
            left, number = left - len(rewards), number + 1
    return moments


def made(kind):
    episodes = [(*EPISODES[start:], *EPISODES[:start]) for start in STARTS]
    makers = [functools.partial(Script, *own, forever=True) for own in episodes]
    return kind(makers, start_method="fork") if kind is SubprocVecEnv else kind(makers)
