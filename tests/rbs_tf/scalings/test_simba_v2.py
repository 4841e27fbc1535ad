"""Rewards bounded as SimbaV2 does it, against its wrapper written down again in NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import discounted_returns
from rbs_tf.scalings import GymnasiumNormalise, MomentsWithMaxima, SimbaV2

H = 2


def observe(scaling, rewards, gamma):
    """One episode, rewards [T], for H heads alike; what comes at its end comes a moment later."""
    discounts = np.append(np.full(len(rewards) - 1, gamma), 0.0)
    rewards, discounts = (np.repeat(np.c_[x], H, axis=1) for x in (rewards, discounts))
    scaling.observe(MomentsWithMaxima.from_steps(rewards, discounts))
    scaling.observe(MomentsWithMaxima.from_returns(discounted_returns(rewards, discounts)))


def scale(episodes, gamma, **options):
    scaling = SimbaV2(H, **options)
    for rewards in episodes:
        observe(scaling, rewards, gamma)
    return scaling.scale.numpy()[0]


def wrappers_scale(episodes, gamma, g_max=5.0, epsilon=1e-8):
    """`RewardNormalizer._scale_reward`'s denominator, but that a trace ends behind an episode and not before its last
    reward: one stream, all samples of the trace at once."""
    trace, traces = 0.0, []
    for rewards in episodes:
        for reward in rewards:
            trace = gamma * trace + reward
            traces.append(trace)
        trace = 0.0
    # What its RunningMeanStd starts with: 1e-4 samples of mean 0 and variance 1.
    weights = np.append(np.ones(len(traces)), 1e-4)
    mean = np.append(traces, 0.0) @ weights / weights.sum()
    variance = (np.append(np.square(traces - mean), 1.0 + mean**2) @ weights) / weights.sum()
    return max(np.sqrt(variance + epsilon), np.abs(traces).max() / g_max)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000), exponent=st.floats(-6, 6), spike=st.floats(0, 1000), offset=st.floats(-9, 9)
)
def test_without_a_future_it_is_the_wrapper_exactly(seed, exponent, spike, offset):
    rng = np.random.default_rng(seed)
    episodes = [10.0**exponent * rng.normal(offset, 1.0, rng.integers(1, 30)) for _ in range(3)]
    episodes[1][0] += 10.0**exponent * spike
    assert scale(episodes, 0.0) == pytest.approx(wrappers_scale(episodes, 0.0), rel=1e-6)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_for_constant_rewards_in_episodes_of_one_length_it_is_the_wrapper(gamma):
    """Sums and returns are then the same numbers in another order; V[R] and max abs(R) are smaller."""
    for episodes in ([np.full(20, 3.0)] * 50, [np.full(20, 0.01)] * 500 + [np.full(20, 3.0)]):
        assert scale(episodes, gamma) == pytest.approx(wrappers_scale(episodes, gamma), rel=1e-9)


def test_each_of_the_two_may_be_the_larger():
    rare, even = [np.zeros(10)] * 200 + [np.full(10, 1.0)], [np.linspace(-1.0, 1.0, 10)] * 5
    assert scale(rare, 1.0) == pytest.approx(10.0 / 5.0)
    assert scale(even, 0.0) > 1.0 / 5.0
    assert scale(rare, 1.0, max_return=10.0) == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), gamma=st.sampled_from([0.0, 0.9, 1.0]), size=st.floats(0.1, 1e6))
def test_no_return_that_is_known_exceeds_the_bound(seed, gamma, size):
    rng = np.random.default_rng(seed)
    episodes = [size * rng.standard_t(1.5, rng.integers(1, 40)) for _ in range(4)]
    s = scale(episodes, gamma)
    for rewards in episodes:
        discounts = np.append(np.full(len(rewards) - 1, gamma), 0.0)
        assert np.abs(discounted_returns(rewards / s, discounts)).max() <= 5.0 * (1 + 1e-9)


def test_a_large_reward_is_bounded_before_its_return_is_known():
    scaling, rewards = SimbaV2(H), np.zeros((10_000, H))
    rewards[50] = 1e6
    scaling.observe(MomentsWithMaxima.from_steps(rewards, np.full_like(rewards, 0.9)))
    np.testing.assert_allclose(scaling.rewards(tf.fill((1, 1, H), 1e6)), 5.0, rtol=1e-6)


def test_without_a_bound_it_is_gymnasiums():
    plain, unbounded = GymnasiumNormalise(H), SimbaV2(H, max_return=np.inf)
    for seed in range(3):
        rewards = np.random.default_rng(seed).normal(size=(30, H))
        for scaling in (plain, unbounded):
            scaling.observe(MomentsWithMaxima.from_episode(rewards, np.full((30, H), 0.9)))
    np.testing.assert_array_equal(unbounded.scale, plain.scale)


def test_options_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"max_return must be positive, got 0.0. SimbaV2's is 5"):
        SimbaV2(H, max_return=0.0)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        SimbaV2(H, epsilon=-1.0)
