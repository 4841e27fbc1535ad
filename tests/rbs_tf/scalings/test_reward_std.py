"""The spread of rewards as a scale: what it is, and the scenarios in which it fails."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings.reward_std import RewardStd
from tests.rbs_tf.scalings.test_false_friends import WAVE, episode, factor, scale, shuffled_in_time


def test_it_is_the_population_deviation_of_rewards():
    rewards = np.random.default_rng(0).normal(1e6, 1.0, 40)
    assert scale(RewardStd, episode(rewards)) == pytest.approx(rewards.std(), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-6, 12), sign=st.sampled_from([-1.0, 1.0]), gamma=st.floats(0, 1))
def test_it_is_homogeneous(exponent, sign, gamma):
    by = 10.0**exponent
    expected = by * scale(RewardStd, episode(WAVE, gamma))
    assert scale(RewardStd, episode(sign * by * WAVE, gamma), sigma_v=1e-30) == pytest.approx(
        expected, rel=1e-9
    )


def test_it_does_not_see_an_offset():
    assert factor(RewardStd, episode(WAVE + 1.0)) == pytest.approx(1.0)


def test_it_does_not_see_discounts():
    assert factor(RewardStd, episode(WAVE, gamma=0.999)) == pytest.approx(1.0)


def test_it_overrates_rewards_that_cancel_in_the_returns():
    assert factor(RewardStd, episode(shuffled_in_time(WAVE))) == pytest.approx(12.2, abs=0.05)
