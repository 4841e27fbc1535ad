"""What the three false friends have in common, and episodes of the paper's scenarios to tell them apart."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings import ErrorContext
from rbs_tf.scalings.horizon import Horizon
from rbs_tf.scalings.return_std import ReturnStd
from rbs_tf.scalings.reward_std import RewardStd

H = 2
SHAPE = (4, 3, H)
FALSE_FRIENDS = pytest.mark.parametrize("false_friend", [RewardStd, ReturnStd, Horizon])
NOTHING = ErrorContext(*[tf.zeros(SHAPE)] * 2, tf.ones(SHAPE[:2]), *[tf.zeros(SHAPE)] * 2)
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
        / scaling.errors(tf.ones(SHAPE, tf.float64), tf.zeros(SHAPE, tf.float64), NOTHING).numpy()[0, 0, 0]
    )


def factor(false_friend, variant):
    """Scale of a variant against that of the reference, a wave of 100 steps with discount 0.97."""
    return scale(false_friend, variant) / scale(false_friend, episode(WAVE))


@FALSE_FRIENDS
def test_before_any_statistics_errors_are_finite(false_friend):
    errors = false_friend(H).errors(tf.ones(SHAPE), tf.zeros(SHAPE), NOTHING)
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
def test_heads_have_scales_of_their_own(false_friend):
    rewards = np.random.default_rng(0).normal(size=(50, H)) * [1.0, 1000.0]
    discounts = np.full((50, H), [0.9, 0.99])
    scaling = false_friend(H)
    scaling.observe(ReturnMoments.from_episode(rewards, discounts))
    errors = scaling.errors(tf.ones(SHAPE), tf.zeros(SHAPE), NOTHING)
    np.testing.assert_allclose(errors[0, 0], 1.0 / scaling.scale, rtol=1e-6)
    assert scaling.scale[1] > 5 * scaling.scale[0]


@FALSE_FRIENDS
def test_values_and_rewards_stay_in_reward_units_and_only_outputs_carry_gradients(false_friend):
    scaling, targets = false_friend(H), tf.Variable(tf.random.normal(SHAPE))
    scaling.observe(episode(WAVE))
    np.testing.assert_array_equal(scaling.values(targets), targets)
    np.testing.assert_array_equal(scaling.rewards(targets), targets)
    outputs = tf.Variable(tf.zeros(SHAPE))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(scaling.errors(targets, outputs, NOTHING))
    np.testing.assert_allclose(tape.gradient(total, outputs)[0, 0], -1.0 / scaling.scale, rtol=1e-6)


@FALSE_FRIENDS
def test_summaries_show_what_errors_are_divided_by(false_friend):
    scaling = false_friend(H)
    scaling.observe(episode(WAVE))
    assert list(scaling.summaries()) == ["scale"]
    np.testing.assert_allclose(
        scaling.summaries()["scale"], [scale(false_friend, episode(WAVE))] * H, rtol=1e-14
    )


@FALSE_FRIENDS
def test_a_restored_scaling_goes_on_as_if_it_had_never_stopped(false_friend, tmp_path):
    scaling, restored = false_friend(H), false_friend(H, sigma_v=1.0)
    scaling.observe(episode(WAVE))
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for each in (scaling, restored):
        each.observe(episode(100.0 * WAVE, gamma=1.0))
    np.testing.assert_array_equal(restored.scale, scaling.scale)


@FALSE_FRIENDS
def test_xla_equals_eager_and_reads_statistics_anew(false_friend):
    scaling = false_friend(H)
    compiled = tf.function(scaling.errors, jit_compile=True)
    targets, outputs = tf.random.normal(SHAPE, seed=1), tf.random.normal(SHAPE, seed=2)
    for moments in (episode(WAVE), episode(100.0 * WAVE, gamma=1.0)):
        scaling.observe(moments)
        expected = scaling.errors(targets, outputs, NOTHING)
        np.testing.assert_allclose(compiled(targets, outputs, NOTHING), expected, rtol=1e-6)
