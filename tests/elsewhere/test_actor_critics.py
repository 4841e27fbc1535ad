"""docs/actor_critics.md's programs run as they stand; Stable-Baselines3's vector environments feed what they play."""

import gymnasium
import numpy as np
import pytest

from rbs_tf import CollectReturns, ReturnMoments, Scale

pytest.importorskip("stable_baselines3", reason="make test-adopting runs these in .venv-rivals")

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

# Rewards of each episode in turn, and whether its last step is terminal or a time-out; float32 holds the rewards.
EPISODES = (([1.0, 5.0, -2.0], True), ([3.0], True), (list(range(7)), False), ([0.5, 0.25], False))


class Script(gymnasium.Env):
    """Plays the episodes in turn, the first one first or, as `start` says, a later one."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, start):
        self._next = start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rewards, self._terminal = EPISODES[self._next % len(EPISODES)]
        self._next, self._rewards = self._next + 1, list(rewards)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward, over = self._rewards.pop(0), not self._rewards
        return (
            np.zeros(1, np.float32),
            float(reward),
            over and self._terminal,
            over and not self._terminal,
            {},
        )


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
    makers = [lambda start=start: Script(start) for start in STARTS]
    return kind(makers, start_method="fork") if kind is SubprocVecEnv else kind(makers)


@pytest.mark.parametrize("gamma", [0.9, [0.5, 0.99]])
@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_vec_envs_statistics_are_those_of_a_replay_of_their_episodes(kind, gamma):
    scale = Scale(num_heads=np.size(gamma))
    envs = CollectReturns(made(kind), scale, gamma, report_steps=4)
    envs.reset()
    for _ in range(24):
        observations, rewards, dones, infos = envs.step(np.zeros(len(STARTS), int))
    assert observations.shape == (3, 1) and rewards.shape == dones.shape == (3,) and len(infos) == 3
    np.testing.assert_allclose([*scale.moments], [*replayed(24, gamma)], rtol=1e-12, atol=1e-12)
    assert scale.moments.discount_variance.min() > 0.0  # some ends were terminal, and others were not
    envs.reset()
    np.testing.assert_allclose([*scale.moments], [*replayed(24, gamma, cut=True)], rtol=1e-12, atol=1e-12)
    envs.close()


def test_a_vec_env_feeds_a_scaling_once_and_other_wrappers_may_stand_around_it():
    scale = Scale()
    inner = CollectReturns(made(DummyVecEnv), scale, 0.9)
    for env in (inner, VecMonitor(inner), VecNormalize(VecMonitor(inner))):
        with pytest.raises(ValueError, match="Wrap it once"):
            CollectReturns(env, scale, 0.9)
    own = DummyVecEnv([lambda: CollectReturns(Script(0), scale, 0.9)])
    with pytest.raises(ValueError, match="Wrap it once"):
        CollectReturns(own, scale, 0.9)
    CollectReturns(own, Scale(), 0.9)


def test_what_is_no_environment_is_named():
    with pytest.raises(TypeError, match="or a Stable-Baselines3 VecEnv; got 3"):
        CollectReturns(3, Scale(), 0.9)
    with pytest.raises(ValueError, match="one per environment, 3"):
        CollectReturns(made(DummyVecEnv), Scale(num_heads=2), 0.9, head=[0, 1])


def test_environments_of_a_vec_env_may_be_tasks():
    scale = Scale(num_heads=2)
    envs = CollectReturns(made(DummyVecEnv), scale, 0.9, head=[0, 1, 1])
    envs.reset()
    for _ in range(6):
        envs.step(np.zeros(3, int))
    assert scale.moments.count.tolist() == [6, 12]
