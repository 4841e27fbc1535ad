"""`CollectReturns` feeds exactly what the episodes were, in portions."""

import re

import gymnasium
import numpy as np
import pytest

from rbs_tf import CollectReturns, ReturnMoments, ReturnScaling


class Script(gymnasium.Env):
    """Plays the given episodes in turn: rewards, and whether the last step is terminal or a time-out."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *episodes):
        self._episodes = iter(episodes)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rewards, self._terminal = next(self._episodes)
        self._rewards = list(rewards)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward, over = self._rewards.pop(0), not self._rewards
        return np.zeros(1, np.float32), reward, over and self._terminal, over and not self._terminal, {}


class Sum:
    """What `merge_state` was given, all of it."""

    def __init__(self, num_heads=1):
        self.moments, self.portions = ReturnMoments.empty(num_heads), []

    def merge_state(self, moments):
        self.moments = ReturnMoments.merge(self.moments, moments)
        self.portions.append(moments)


def play(env, steps=None):
    """Whole episodes until the script ends, or so many steps."""
    try:
        env.reset()
        while steps != 0:
            _, _, terminated, truncated, _ = env.step(0)
            steps = steps and steps - 1
            if terminated or truncated:
                env.reset()
    except StopIteration:
        pass


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


@pytest.mark.parametrize("gammas", [0.9, [0.0, 0.9, 1.0]])
@pytest.mark.parametrize("report_steps", [1, 3, 100])
def test_portions_add_up_to_the_episodes(gammas, report_steps):
    seen = Sum(np.size(gammas))
    play(CollectReturns(Script(A, B, C, A), seen, gammas, report_steps=report_steps))
    assert_equal(seen.moments, expected(gammas, A, B, C, A))


def test_rewards_arrive_before_the_episode_has_ended_and_returns_after():
    seen = Sum()
    play(CollectReturns(Script(C), seen, 0.9, report_steps=3), steps=6)
    assert seen.moments.count == 6 and seen.moments.return_count == 0
    np.testing.assert_allclose(seen.moments.reward_mean, np.mean(C[0][:6]))


def test_a_reset_in_mid_episode_cuts_it_like_a_time_out():
    seen = Sum()
    env = CollectReturns(Script(C, A), seen, 0.9)
    play(env, steps=4)
    play(env)
    assert_equal(seen.moments, expected(0.9, (C[0][:4], False), A))


def test_an_episode_without_end_reports_all_the_same():
    seen = Sum()
    play(CollectReturns(Script(C), seen, 0.9, max_report_steps=3), steps=6)
    assert_equal(seen.moments, expected(0.9, (C[0][:3], False), (C[0][3:6], False)))


def test_environments_of_one_process_share_a_layer():
    scaling = ReturnScaling()
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda script=script: CollectReturns(Script(*script), scaling, 0.9) for script in ([C, C], [C, C])]
    )
    envs.reset(seed=0)
    for _ in range(len(C[0])):
        envs.step(np.zeros(2, int))
    np.testing.assert_allclose(scaling.sigma, expected(0.9, C, C).sigma)
    np.testing.assert_allclose(scaling.mean_return, expected(0.9, C, C).mean_return)


@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e200])
def test_a_reward_that_cannot_be_counted_is_refused_and_leaves_no_trace(reward):
    seen = Sum()
    env = CollectReturns(Script(([1.0, reward, 2.0], True), A), seen, 0.9)
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match=f"reward is {re.escape(str(reward))} at step 1"):
        env.step(0)
    env.step(0)
    play(env)
    assert_equal(seen.moments, expected(0.9, ([1.0, 2.0], True), A))


def test_one_gamma_serves_all_heads_of_a_layer():
    scaling = ReturnScaling(num_heads=3)
    play(CollectReturns(Script(A, B), scaling, 0.9))
    np.testing.assert_allclose(scaling.sigma, expected([0.9] * 3, A, B).sigma)


@pytest.mark.parametrize("gamma", [[0.9], [0.9, 0.9, 0.9], []])
def test_gammas_of_another_number_of_heads_are_refused_at_once(gamma):
    with pytest.raises(ValueError, match="gamma must be"):
        CollectReturns(Script(A), ReturnScaling(num_heads=2), gamma)


@pytest.mark.parametrize("scaling", [None, 3, ReturnMoments.empty(1)])
def test_a_scaling_that_takes_no_moments_is_refused_at_once(scaling):
    with pytest.raises(TypeError, match="scaling must be a ReturnScaling"):
        CollectReturns(Script(A), scaling, 0.9)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"gamma": 1.5}, "gamma must be"),
        ({"gamma": [[0.9]]}, "gamma must be"),
        ({"gamma": 0.9, "report_steps": 0}, "at least 1"),
        ({"gamma": 0.9, "max_report_steps": 0}, "at least 1"),
    ],
)
def test_wrong_settings_are_named(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        CollectReturns(Script(A), Sum(), **settings)


def test_it_is_an_environment_like_any_other():
    env = CollectReturns(gymnasium.make("CartPole-v1"), ReturnScaling(), 0.99)
    assert env.unwrapped.spec.id == "CartPole-v1" and env.action_space.n == 2
    env.reset(seed=1)
    observation, reward, terminated, truncated, _ = env.step(0)
    assert observation.shape == (4,) and reward == 1.0 and not (terminated or truncated)
