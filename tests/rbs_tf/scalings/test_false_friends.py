"""The three false friends: what each is, and the paper's scenarios in which it fails."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings.false_friends import Horizon, ReturnStd, RewardStd, return_variance
from tests.rbs_tf.scalings.episodes import SHAPE, H, context

FALSE_FRIENDS = pytest.mark.parametrize("false_friend", [RewardStd, ReturnStd, Horizon])
STANDARD_DEVIATIONS = pytest.mark.parametrize("false_friend", [RewardStd, ReturnStd])
WAVE = np.sin(2 * np.pi * np.arange(100) / 50)


def episode(rewards, gamma=0.97):
    """Moments of one episode for H heads alike; the last step is terminal."""
    discounts = np.append(np.full(len(rewards) - 1, gamma), 0.0)
    return ReturnMoments.from_episode(np.repeat(np.c_[rewards], H, 1), np.repeat(np.c_[discounts], H, 1))


def shuffled_in_time(rewards, gamma=0.97):
    """Rewards of an episode whose returns are those of `rewards`, in another order."""
    discounts = np.append(np.full(len(rewards) - 1, gamma), 0.0)
    returns = discounted_returns(rewards, discounts)[(37 * np.arange(len(rewards)) + 11) % len(rewards)]
    return returns - discounts * np.append(returns[1:], 0.0)


def scale(false_friend, moments, **options):
    """What errors are divided by, of the first head, after these statistics."""
    scaling = false_friend(H, **options)
    scaling.observe(moments)
    return (
        1.0
        / scaling.errors(tf.ones(SHAPE, tf.float64), tf.zeros(SHAPE, tf.float64), context()).numpy()[0, 0, 0]
    )


def factor(false_friend, variant):
    """Scale of a variant against that of the reference, a wave of 100 steps with discount 0.97."""
    return scale(false_friend, variant) / scale(false_friend, episode(WAVE))


@FALSE_FRIENDS
def test_before_any_statistics_errors_are_finite(false_friend):
    errors = false_friend(H).errors(tf.ones(SHAPE), tf.zeros(SHAPE), context())
    np.testing.assert_allclose(errors, 1.0 if false_friend is Horizon else 100.0)


@FALSE_FRIENDS
@pytest.mark.parametrize("reward", [0.0, 1e-30])
def test_the_floor_takes_the_place_of_a_smaller_scale(false_friend, reward):
    assert scale(false_friend, episode([reward], gamma=0.0), sigma_v=7.0) == pytest.approx(7.0)


@FALSE_FRIENDS
def test_a_floor_that_is_not_positive_is_refused(false_friend):
    with pytest.raises(ValueError, match="sigma_v must be a positive number"):
        false_friend(H, sigma_v=0.0)


@FALSE_FRIENDS
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), gamma=st.sampled_from([0.0, 0.9, 0.999, 1.0]))
def test_statistics_in_parts_are_statistics_of_the_whole(false_friend, seed, gamma):
    rng = np.random.default_rng(seed)
    parts = [episode(rng.normal(100.0, 1.0, rng.integers(1, 50)), gamma) for _ in range(4)]
    whole = ReturnMoments.empty(H)
    in_parts = false_friend(H)
    for part in parts:
        in_parts.observe(part)
        whole = ReturnMoments.merge(part, whole)
    np.testing.assert_allclose(in_parts.scale[0], scale(false_friend, whole), rtol=1e-8)


@FALSE_FRIENDS
def test_values_and_rewards_stay_in_reward_units(false_friend):
    scaling, targets = false_friend(H), tf.random.normal(SHAPE)
    scaling.observe(episode(WAVE))
    np.testing.assert_array_equal(scaling.values(targets), targets)
    np.testing.assert_array_equal(scaling.rewards(targets), targets)


@STANDARD_DEVIATIONS
@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-6, 12), sign=st.sampled_from([-1.0, 1.0]), gamma=st.floats(0, 1))
def test_standard_deviations_are_homogeneous(false_friend, exponent, sign, gamma):
    by = 10.0**exponent
    expected = by * scale(false_friend, episode(WAVE, gamma))
    found = scale(false_friend, episode(sign * by * WAVE, gamma), sigma_v=1e-30)
    assert found == pytest.approx(expected, rel=1e-7)


def test_they_are_the_population_deviations_of_rewards_and_of_returns():
    rewards = np.random.default_rng(0).normal(5.0, 1.0, 40)
    returns = discounted_returns(rewards, np.append(np.full(39, 0.97), 0.0))
    assert scale(RewardStd, episode(rewards)) == pytest.approx(rewards.std(), rel=1e-9)
    assert scale(RewardStd, episode(rewards + 1e6)) == pytest.approx(rewards.std(), rel=1e-9)
    assert scale(ReturnStd, episode(rewards)) == pytest.approx(returns.std(), rel=1e-9)


# The paper's scenarios: b an offset, c returns shuffled in time, e other discounts.


def test_the_deviation_of_rewards_sees_neither_offset_nor_discounts_and_overrates_rewards_that_cancel():
    assert factor(RewardStd, episode(WAVE + 1.0)) == pytest.approx(1.0)
    assert factor(RewardStd, episode(WAVE, gamma=0.999)) == pytest.approx(1.0)
    assert factor(RewardStd, episode(shuffled_in_time(WAVE))) == pytest.approx(12.2, abs=0.05)


def test_the_deviation_of_returns_does_not_see_the_order_in_time():
    assert factor(ReturnStd, episode(shuffled_in_time(WAVE))) == pytest.approx(1.0)
    assert factor(ReturnStd, episode(WAVE + 1.0)) == pytest.approx(2.01, abs=0.005)
    low, high = (scale(ReturnStd, episode(WAVE, gamma)) for gamma in (0.9, 0.999))
    assert high / low == pytest.approx(1.21, abs=0.005)


@pytest.mark.parametrize(
    "variant", [10.0 * WAVE, WAVE + 1.0, shuffled_in_time(WAVE), np.arange(100) == 99], ids="abcd"
)
def test_the_horizon_sees_no_rewards(variant):
    assert factor(Horizon, episode(np.asarray(variant, np.float64))) == pytest.approx(1.0)


def test_the_horizon_grows_a_hundredfold_where_errors_grow_by_a_sixth():
    low, high = (scale(Horizon, episode(WAVE, gamma)) for gamma in (0.9, 0.999))
    assert high / low == pytest.approx(100.0)


def test_until_an_episode_has_ended_the_floor_stands_in_for_the_deviation_of_returns():
    steps = ReturnMoments.from_steps(np.random.default_rng(0).normal(size=(50, H)), np.full((50, H), 0.9))
    assert scale(ReturnStd, steps) == pytest.approx(1e-2)


@settings(max_examples=200, deadline=None)
@given(value=st.floats(-1e12, 1e12), count=st.integers(1, 50))
def test_equal_returns_have_no_negative_variance(value, count):
    variance = return_variance(ReturnMoments.from_returns(np.full((count, H), value))).numpy()
    assert (variance >= 0.0).all() and (variance <= 1e-13 * value**2).all()


@settings(max_examples=50, deadline=None)
@given(gamma=st.floats(0.0, 0.9999), lengths=st.lists(st.integers(2, 300), min_size=1, max_size=5))
def test_the_horizon_is_that_of_the_discount_inside_episodes_however_many_ends_there_are(gamma, lengths):
    moments = ReturnMoments.empty(H)
    for length in lengths:
        moments = ReturnMoments.merge(moments, episode(np.zeros(length), gamma))
    assert scale(Horizon, moments) == pytest.approx(1.0 / (1.0 - gamma), rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=8).filter(lambda x: max(x) > 1))
def test_without_discount_the_horizon_is_the_mean_length_of_episodes(lengths):
    moments = ReturnMoments.empty(H)
    for length in lengths:
        moments = ReturnMoments.merge(moments, episode(np.zeros(length), 1.0))
    assert scale(Horizon, moments) == pytest.approx(np.mean(lengths), rel=1e-9)


def test_without_discount_and_without_an_end_the_horizon_is_the_number_of_steps():
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
