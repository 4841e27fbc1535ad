"""The effective horizon as a scale: recovered from the statistics, and the scenarios in which it fails."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings.horizon import Horizon
from tests.rbs_tf.scalings.test_false_friends import WAVE, H, episode, factor, scale, shuffled_in_time


@settings(max_examples=50, deadline=None)
@given(gamma=st.floats(0.0, 0.9999), lengths=st.lists(st.integers(2, 300), min_size=1, max_size=5))
def test_it_is_that_of_the_discount_inside_episodes_however_many_ends_there_are(gamma, lengths):
    moments = ReturnMoments.empty(H)
    for length in lengths:
        moments = ReturnMoments.merge(moments, episode(np.zeros(length), gamma))
    assert scale(Horizon, moments) == pytest.approx(1.0 / (1.0 - gamma), rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=8).filter(lambda x: max(x) > 1))
def test_without_discount_it_is_the_mean_length_of_episodes(lengths):
    moments = ReturnMoments.empty(H)
    for length in lengths:
        moments = ReturnMoments.merge(moments, episode(np.zeros(length), 1.0))
    assert scale(Horizon, moments) == pytest.approx(np.mean(lengths), rel=1e-9)


def test_without_discount_and_without_an_end_it_is_the_number_of_steps():
    steps = ReturnMoments.from_steps(np.zeros((500, H)), np.ones((500, H)))
    assert scale(Horizon, steps) == pytest.approx(500.0)


def test_many_small_reports_do_not_make_rounding_look_like_a_discount():
    scaling = Horizon(H)
    for _ in range(2000):
        scaling.observe(episode(np.zeros(7), 1.0))
    np.testing.assert_allclose(scaling.scale, 7.0, rtol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.97, 1.0])
def test_episodes_of_one_step_leave_no_horizon(gamma):
    assert scale(Horizon, episode([5.0], gamma)) == 1.0


@pytest.mark.parametrize(
    "variant", [10.0 * WAVE, WAVE + 1.0, shuffled_in_time(WAVE), np.arange(100) == 99], ids="abcd"
)
def test_it_sees_no_rewards(variant):
    assert factor(Horizon, episode(np.asarray(variant, np.float64))) == pytest.approx(1.0)


def test_it_grows_a_hundredfold_where_errors_grow_by_a_sixth():
    low, high = (scale(Horizon, episode(WAVE, gamma)) for gamma in (0.9, 0.999))
    assert high / low == pytest.approx(100.0)
