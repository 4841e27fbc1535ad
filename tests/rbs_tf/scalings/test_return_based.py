"""The two scalings behind the interface, without an agent."""

import numpy as np
import pytest
import tensorflow as tf

from rbs_tf import ReturnMoments
from rbs_tf.scalings import ErrorContext, ReturnBasedScaling, Scaling


def context(rewards, discounts=None, mask=None):
    rewards = tf.constant(rewards, tf.float32)
    discounts = tf.ones_like(rewards) if discounts is None else tf.constant(discounts, tf.float32)
    mask = tf.ones(rewards.shape[:2]) if mask is None else tf.constant(mask, tf.float32)
    return ErrorContext(rewards, discounts, mask, tf.zeros_like(rewards), tf.zeros_like(rewards))


NO_REWARDS = context(np.zeros((4, 2, 2)))


def test_no_scaling_leaves_errors_values_and_rewards_as_they_are():
    scaling = Scaling(2)
    targets, outputs = tf.random.normal((4, 2, 2)), tf.random.normal((4, 2, 2))
    np.testing.assert_array_equal(scaling.errors(targets, outputs, NO_REWARDS), targets - outputs)
    np.testing.assert_array_equal(scaling.values(outputs), outputs)
    np.testing.assert_array_equal(scaling.rewards(targets), targets)
    assert scaling.summaries() == {}


def test_before_any_statistics_errors_are_divided_by_the_floor():
    scaling = ReturnBasedScaling(2, sigma_v=0.5)
    errors = scaling.errors(tf.ones((4, 2, 2)), tf.zeros((4, 2, 2)), NO_REWARDS)
    np.testing.assert_allclose(errors, 2.0)


def test_each_head_is_divided_by_its_own_sigma():
    scaling = ReturnBasedScaling(2)
    rewards, discounts = np.random.default_rng(0).normal(size=(50, 2)) * [1.0, 1000.0], np.full((50, 2), 0.9)
    moments = ReturnMoments.from_episode(rewards, discounts)
    scaling.observe(moments)
    errors = scaling.errors(tf.ones((4, 2, 2)), tf.zeros((4, 2, 2)), NO_REWARDS)
    np.testing.assert_allclose(errors[0, 0], 1 / moments.sigma, rtol=1e-6)


def test_the_first_large_reward_is_harmless_before_the_statistics_have_it():
    """sigma_batch sees it in the batch itself."""
    rewards = np.zeros((4, 2, 2))
    rewards[1, 0] = 1e6
    scaling = ReturnBasedScaling(2)
    targets = tf.constant(rewards, tf.float32)
    assert np.abs(scaling.errors(targets, tf.zeros_like(targets), context(rewards))).max() < 4
    assert np.abs(scaling.errors(targets, tf.zeros_like(targets), NO_REWARDS)).max() > 1e7


def test_sigma_v_is_the_masked_spread_of_values_over_states_per_head():
    scaling = ReturnBasedScaling(2)
    values = np.random.default_rng(1).normal(size=(6, 3, 2)).astype(np.float32) * [0.01, 5.0]
    mask = np.ones((6, 3))
    mask[4:, 1] = 0
    values[4:, 1] = 1e9
    scaling.initialise(tf.constant(values, tf.float32), tf.constant(mask, tf.float32))
    np.testing.assert_allclose(scaling.layer.sigma_v, values[mask.astype(bool)].std(axis=0), rtol=1e-6)


def test_values_that_do_not_vary_leave_the_floor_as_it_was():
    scaling = ReturnBasedScaling(2, sigma_v=0.3)
    scaling.initialise(tf.ones((4, 2, 2)), tf.ones((4, 2)))
    np.testing.assert_allclose(scaling.layer.sigma_v, 0.3)


def test_only_the_outputs_carry_gradients():
    scaling = ReturnBasedScaling(2)
    rewards = tf.Variable(tf.random.normal((4, 2, 2)))
    outputs = tf.Variable(tf.zeros((4, 2, 2)))
    with tf.GradientTape() as tape:
        batch = NO_REWARDS._replace(rewards=rewards)
        total = tf.reduce_sum(scaling.errors(tf.ones((4, 2, 2)), outputs, batch))
    into_rewards, into_outputs = tape.gradient(total, (rewards, outputs))
    assert into_rewards is None and np.all(into_outputs.numpy() < 0)


def test_a_checkpoint_holds_statistics_and_floor(tmp_path):
    scaling = ReturnBasedScaling(2)
    scaling.observe(ReturnMoments.from_episode(np.arange(10.0)[:, None] * [1, 2], np.full((10, 2), 0.9)))
    scaling.initialise(tf.random.normal((4, 2, 2)), tf.ones((4, 2)))
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnBasedScaling(2)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for name, value in scaling.summaries().items():
        assert restored.summaries()[name].numpy() == pytest.approx(value.numpy(), rel=0), name
