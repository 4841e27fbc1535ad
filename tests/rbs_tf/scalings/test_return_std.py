"""The spread of returns as a scale: what it is, and the scenarios in which it fails."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings.return_std import ReturnStd, return_variance
from tests.rbs_tf.scalings.test_false_friends import WAVE, H, episode, factor, scale, shuffled_in_time


def test_it_is_the_population_deviation_of_returns():
    rewards = np.random.default_rng(0).normal(5.0, 1.0, 40)
    returns = discounted_returns(rewards, np.append(np.full(39, 0.97), 0.0))
    assert scale(ReturnStd, episode(rewards)) == pytest.approx(returns.std(), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-6, 12), sign=st.sampled_from([-1.0, 1.0]), gamma=st.floats(0, 1))
def test_it_is_homogeneous(exponent, sign, gamma):
    by = 10.0**exponent
    expected = by * scale(ReturnStd, episode(WAVE, gamma))
    assert scale(ReturnStd, episode(sign * by * WAVE, gamma), sigma_v=1e-30) == pytest.approx(
        expected, rel=1e-7
    )


def test_it_does_not_see_the_order_in_time():
    assert factor(ReturnStd, episode(shuffled_in_time(WAVE))) == pytest.approx(1.0)


def test_the_papers_other_scenarios():
    assert factor(ReturnStd, episode(WAVE + 1.0)) == pytest.approx(2.01, abs=0.005)
    low, high = (scale(ReturnStd, episode(WAVE, gamma)) for gamma in (0.9, 0.999))
    assert high / low == pytest.approx(1.21, abs=0.005)


def test_until_an_episode_has_ended_the_floor_stands_in():
    steps = ReturnMoments.from_steps(np.random.default_rng(0).normal(size=(50, H)), np.full((50, H), 0.9))
    assert scale(ReturnStd, steps) == pytest.approx(1e-2)


@settings(max_examples=200, deadline=None)
@given(value=st.floats(-1e12, 1e12), count=st.integers(1, 50))
def test_equal_returns_have_no_negative_variance(value, count):
    variance = return_variance(ReturnMoments.from_returns(np.full((count, H), value))).numpy()
    assert (variance >= 0.0).all() and (variance <= 1e-13 * value**2).all()
