"""The three false friends: what each is, and the paper's scenarios in which it fails."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.scalings.false_friends import Horizon, ReturnStd, RewardStd, return_variance
from rbs_tf import ReturnMoments, discounted_returns
from tests.agents.scalings.episodes import SHAPE, H, alike, context

FALSE_FRIENDS = pytest.mark.parametrize("false_friend", [RewardStd, ReturnStd, Horizon])


def episode(rewards, gamma=0.97):
    return ReturnMoments.from_episode(*alike(rewards, gamma))


def scale(false_friend, moments, **options):
    """What errors are divided by, of the first head, after these statistics."""
    scaling = false_friend(H, **options)
    scaling.observe(moments)
    return (
        1.0
        / scaling.errors(tf.ones(SHAPE, tf.float64), tf.zeros(SHAPE, tf.float64), context()).numpy()[0, 0, 0]
    )


@FALSE_FRIENDS
@pytest.mark.parametrize("reward", [0.0, 1e-30])
def test_the_floor(false_friend, reward):
    assert scale(false_friend, episode([reward], gamma=0.0), sigma_v=7.0) == pytest.approx(7.0)


@settings(max_examples=25, deadline=None)
@given(value=st.floats(-1e12, 1e12), count=st.integers(1, 50))
def test_no_negative_variance(value, count):
    variance = return_variance(ReturnMoments.from_returns(np.full((count, H), value))).numpy()
    assert (variance >= 0.0).all() and (variance <= 1e-13 * value**2).all()


@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-6, 12), sign=st.sampled_from([-1.0, 1.0]), offset=st.sampled_from([0.0, 1e6]))
def test_standard_deviations(exponent, sign, offset):
    rewards = sign * 10.0**exponent * (np.random.default_rng(0).normal(5.0, 1.0, 40) + offset)
    returns = discounted_returns(rewards, np.append(np.full(39, 0.97), 0.0))
    for kind, values in ((RewardStd, rewards), (ReturnStd, returns)):
        assert scale(kind, episode(rewards), sigma_v=1e-30) == pytest.approx(values.std(), rel=1e-9)


def test_the_floor_before_the_first_return():
    steps = ReturnMoments.from_steps(np.random.default_rng(0).normal(size=(50, H)), np.full((50, H), 0.9))
    assert scale(ReturnStd, steps) == pytest.approx(1e-2)


@settings(max_examples=10, deadline=None)
@given(
    gamma=st.floats(0.0, 0.9999),
    lengths=st.lists(st.integers(2, 300), min_size=1, max_size=5),
    reports=st.sampled_from([1, 30]),
)
def test_horizons(gamma, lengths, reports):
    """However many ends there are, and however often rounding might make a 1 look like a discount."""
    for discount, expected in ((gamma, 1.0 / (1.0 - gamma)), (1.0, np.mean(lengths))):
        moments, scaling = ReturnMoments.empty(H), Horizon(H)
        for length in lengths * reports:
            moments = ReturnMoments.merge(moments, episode(np.zeros(length), discount))
        scaling.observe(moments)
        np.testing.assert_allclose(scaling.scale, expected, rtol=1e-9)


def test_extreme_horizons():
    """Before the first step, of episodes of one step, and of one without an end."""
    assert Horizon(H).scale[0].numpy() == 1.0
    assert [scale(Horizon, episode([5.0], gamma)) for gamma in (0.0, 1.0)] == [1.0] * 2
    endless = ReturnMoments.from_steps(np.zeros((500, H)), np.ones((500, H)))
    assert scale(Horizon, endless) == pytest.approx(500.0)
