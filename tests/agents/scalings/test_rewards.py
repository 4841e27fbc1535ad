"""Scalings of rewards, and the largest of them: against NumPy and against the wrappers that they are taken from."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.scalings import ClippedRewards, GymnasiumNormalise
from rbs_tf import ReturnMoments
from tests.agents.scalings.episodes import SHAPE, H, alike, context, episode
from tests.agents.small_agent import as_sequence, make_agent, random_windows, some_moments
from tests.scripted import Script


def scale(scaling, episodes, gamma):
    for rewards in episodes:
        rewards, discounts = alike(rewards, gamma)
        scaling.observe(ReturnMoments.from_episode(rewards, discounts))
    return scaling.scale.numpy()[0]


def test_clipping():
    rewards = np.float32([-1e30, -1.0, -0.5, 0.0, 1e-30, 3.0])[:, None, None]
    np.testing.assert_array_equal(ClippedRewards(1).rewards(rewards), np.clip(rewards, -1, 1))


@pytest.mark.parametrize("kind", [ClippedRewards, GymnasiumNormalise])
def test_errors_and_values_are_left_alone(kind):
    scaling = kind(H)
    scaling.observe(episode(size=1e3))
    targets, outputs = 1e3 * tf.random.normal(SHAPE), 1e3 * tf.random.normal(SHAPE)
    np.testing.assert_array_equal(scaling.errors(targets, outputs, context()), targets - outputs)
    np.testing.assert_array_equal(scaling.values(outputs), outputs)


def gymnasiums_scale(episodes, gamma):
    """sqrt(var + epsilon) of the wrapper after these episodes."""
    env = gymnasium.wrappers.NormalizeReward(Script(*((rewards, True) for rewards in episodes)), gamma=gamma)
    for rewards in episodes:
        env.reset()
        for _ in rewards:
            env.step(0)
    return np.sqrt(env.return_rms.var + env.epsilon).item()


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1000), exponent=st.floats(-6, 6), spike=st.floats(0, 1000), offset=st.floats(-9, 9)
)
def test_without_a_future_it_is_the_wrapper(seed, exponent, spike, offset):
    rng = np.random.default_rng(seed)
    episodes = [10.0**exponent * rng.normal(offset, 1.0, rng.integers(1, 20)) for _ in range(3)]
    episodes[1][0] += 10.0**exponent * spike
    expected = gymnasiums_scale(episodes, 0.0)
    assert scale(GymnasiumNormalise(H), episodes, 0.0) == pytest.approx(expected, rel=1e-6)


def test_it_is_about_the_wrapper():
    """Sums forwards and returns are the same numbers in another order."""
    episodes = np.random.default_rng(0).normal(1.0, 5.0, (100, 30))
    expected = gymnasiums_scale(episodes, 0.9)
    assert scale(GymnasiumNormalise(H), episodes, 0.9) == pytest.approx(expected, rel=0.05)


def test_before_returns_are_known():
    """Rewards are left as they are before any step, and a large one is harmless."""
    scaling, rewards = GymnasiumNormalise(H), tf.random.normal(SHAPE)
    np.testing.assert_allclose(scaling.rewards(rewards), rewards, rtol=1e-6)
    steps = np.zeros((10_000, H))
    steps[50] = 1e6
    scaling.observe(ReturnMoments.from_steps(steps, np.full_like(steps, 0.9)))
    assert scaling.rewards(tf.fill(SHAPE, 1e6)).numpy().max() < 110.0


def test_targets_and_bootstraps():
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
