"""Rewards normalised as Gymnasium does it, against the wrapper itself where the two are to agree."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings.gymnasium_normalise import GymnasiumNormalise
from tests.agents.small_agent import as_sequence, make_agent, random_windows, some_moments
from tests.rbs_tf.scalings.episodes import SHAPE, H, context
from tests.rbs_tf.scalings.test_false_friends import WAVE, episode


class Stream(gymnasium.Env):
    """Pays the rewards of one episode after the other."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, episodes):
        self._episodes = iter(episodes)

    def reset(self, *, seed=None, options=None):
        self._rewards = list(next(self._episodes))
        return 0, {}

    def step(self, action):
        reward = self._rewards.pop(0)
        return 0, reward, not self._rewards, False, {}


def wrapper_scale(episodes, gamma):
    """sqrt(var + epsilon) of the wrapper after these episodes."""
    env = gymnasium.wrappers.NormalizeReward(Stream(episodes), gamma=gamma)
    for _ in episodes:
        env.reset()
        terminated = False
        while not terminated:
            _, _, terminated, _, _ = env.step(0)
    return np.sqrt(env.return_rms.var + env.epsilon).item()


def scale(episodes, gamma):
    scaling = GymnasiumNormalise(H)
    for rewards in episodes:
        scaling.observe(episode(rewards, gamma))
    return scaling.scale.numpy()[0]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), exponent=st.floats(-6, 6), offset=st.floats(-10, 10))
def test_without_a_future_it_is_the_wrapper_exactly(seed, exponent, offset):
    rng = np.random.default_rng(seed)
    episodes = [10.0**exponent * rng.normal(offset, 1.0, rng.integers(1, 9)) for _ in range(3)]
    assert scale(episodes, 0.0) == pytest.approx(wrapper_scale(episodes, 0.0), rel=1e-6)


def test_for_constant_rewards_it_is_the_wrapper_but_for_its_first_episode():
    episodes = [np.full(20, 3.0)] * 200
    assert scale(episodes, 0.9) == pytest.approx(wrapper_scale(episodes, 0.9), rel=5e-3)


def test_for_independent_rewards_it_is_about_the_wrapper():
    episodes = np.random.default_rng(0).normal(1.0, 5.0, (200, 30))
    assert scale(episodes, 0.9) == pytest.approx(wrapper_scale(episodes, 0.9), rel=0.05)


def test_rewards_in_one_part_of_an_episode_are_where_the_two_differ():
    """Forward sums carry the first reward through the episode; returns have forgotten it after one step."""
    first_step = [np.eye(30)[0]] * 200
    assert scale(first_step, 0.9) < 0.8 * wrapper_scale(first_step, 0.9)


def test_before_anything_is_known_rewards_are_left_as_they_are():
    rewards = tf.random.normal(SHAPE)
    np.testing.assert_allclose(GymnasiumNormalise(H).rewards(rewards), rewards, rtol=1e-6)


def test_a_large_reward_is_harmless_before_its_return_is_known():
    scaling = GymnasiumNormalise(H)
    scaling.observe(episode(np.zeros(10_000)))
    rewards = np.zeros((100, H))
    rewards[50] = 1e6
    scaling.observe(ReturnMoments.from_steps(rewards, np.full((100, H), 0.9)))
    assert scaling.rewards(tf.fill(SHAPE, 1e6)).numpy().max() < 110


@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(0, 12), gamma=st.sampled_from([0.0, 0.9, 1.0]))
def test_normalised_rewards_do_not_depend_on_the_size_of_rewards_once_that_is_known(exponent, gamma):
    by = 10.0**exponent
    normalised = []
    for size in (1.0, by):
        scaling = GymnasiumNormalise(H)
        scaling.observe(episode(size * WAVE, gamma))
        normalised.append(scaling.rewards(tf.fill(SHAPE, np.float32(size))))
    np.testing.assert_allclose(*normalised, rtol=1e-5)


def test_rewards_are_normalised_inside_a_target_and_bootstraps_are_not():
    """The target is linear in the rewards; what the target network adds is in normalised units already."""
    agent, windows = make_agent(scaling=GymnasiumNormalise), random_windows()

    def targets(rewards):
        found = agent.sequence_errors(as_sequence(windows)._replace(steps=steps._replace(reward=rewards)))
        return found.targets.numpy()

    # The network sees the previous reward too: rewards beyond its clipping, so that it sees the same.
    steps = as_sequence(windows).steps
    one = tf.where(steps.reward == 0.0, 0.0, tf.sign(steps.reward))
    raw = targets(2.0 * one) - targets(one)
    agent.observe(some_moments())
    assert (agent.scaling.scale.numpy() > 1.01).any()
    normalised = targets(2.0 * one) - targets(one)
    np.testing.assert_allclose(normalised, raw / agent.scaling.scale, rtol=1e-4, atol=1e-5)


def test_errors_and_values_are_left_alone():
    scaling = GymnasiumNormalise(H)
    scaling.observe(episode(1e3 * WAVE))
    targets, outputs = tf.random.normal(SHAPE), tf.random.normal(SHAPE)
    np.testing.assert_array_equal(scaling.errors(targets, outputs, context()), targets - outputs)
    np.testing.assert_array_equal(scaling.values(outputs), outputs)


def test_an_epsilon_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="epsilon must be positive"):
        GymnasiumNormalise(H, epsilon=0.0)
