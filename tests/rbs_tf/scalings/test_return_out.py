"""Outputs in units of the return, without an agent."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.return_scaling import batch_sigma
from rbs_tf.scalings import ErrorContext, ReturnBasedScaling
from rbs_tf.scalings.return_out import ReturnOut
from tests.rbs_tf.scalings.test_pop_art import LastLayers

H = 2
GAMMAS = np.array([0.9, 1.0])


def episode(seed=0, size=1.0, length=20):
    """Rewards and discounts [T, H]."""
    rewards = size * np.random.default_rng(seed).normal(0.3, 1.0, (length, 1)).repeat(H, axis=1)
    return rewards, GAMMAS * (np.arange(length) < length - 1)[:, None]


def moments(seed=0, size=1.0):
    return ReturnMoments.from_episode(*episode(seed, size))


def context(seed=0, size=1.0):
    rewards, discounts = (tf.constant(x[:, None].repeat(3, axis=1), tf.float32) for x in episode(seed, size))
    mask = tf.ones(rewards.shape[:2])
    return ErrorContext(rewards, discounts, mask, tf.zeros_like(rewards), tf.zeros_like(rewards))


def some_outputs(seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=(20, 3, H)), tf.float32)


def observed(*reports, layers=None):
    """A scaling that has seen the reports, with an update after each."""
    scaling, layers = ReturnOut(H), layers or LastLayers()
    for report in reports:
        scaling.observe(report)
        scaling.before_update(layers, None)
    return scaling


def largest_root(report):
    return np.sqrt(np.maximum(report.return_mean_square, report.reward_variance + report.reward_mean**2))


def test_values_are_outputs_times_the_root_mean_square_of_returns():
    scaling = observed(moments(size=50.0))
    expected = np.sqrt(moments(size=50.0).return_mean_square)
    np.testing.assert_allclose(scaling.values(tf.ones(H)), expected, rtol=1e-6)


def test_where_no_episode_has_ended_or_rewards_exceed_returns_the_rewards_count():
    rewards, discounts = episode(size=10.0)
    scaling = observed(ReturnMoments.from_steps(rewards, discounts))
    np.testing.assert_allclose(scaling.online.scale, np.sqrt(np.square(rewards).mean(axis=0)))
    alternating = np.tile([[1.0], [-1.0]], (10, H))
    scaling = observed(ReturnMoments.from_episode(alternating, np.full((20, H), 0.9)))
    np.testing.assert_allclose(scaling.online.scale, 1.0)


def test_statistics_move_the_units_before_the_next_update_and_not_at_once():
    scaling = observed(moments(size=1.0))
    old = scaling.online.scale.numpy()
    scaling.observe(moments(seed=1, size=100.0))
    np.testing.assert_array_equal(scaling.online.scale, old)
    scaling.before_update(LastLayers(), None)
    assert (scaling.online.scale.numpy() > 10 * old).all()


def test_the_first_scale_is_taken_over_without_rewriting_by_both_networks():
    layers = LastLayers()
    outputs = layers().numpy()
    nothing = ReturnMoments.from_episode(np.zeros((5, H)), np.ones((5, H)))
    scaling = observed(nothing, layers=layers)
    np.testing.assert_array_equal(scaling.values(layers()), np.zeros_like(outputs))
    scaling.observe(moments(size=40.0))
    scaling.before_update(layers, None)
    np.testing.assert_array_equal(layers(), outputs)
    assert (scaling.online.scale.numpy() > 1.0).all()
    np.testing.assert_array_equal(scaling.target.scale, scaling.online.scale)


def test_heads_get_their_first_scale_one_by_one():
    rewards, discounts = episode(size=5.0)
    layers = LastLayers()
    outputs = layers().numpy()
    scaling = observed(ReturnMoments.from_episode(rewards * [1.0, 0.0], discounts), layers=layers)
    assert scaling.online.scale[0] > 0.0 and scaling.online.scale[1] == 0.0
    scaling.observe(moments(seed=1, size=50.0))
    value = scaling.values(layers()).numpy()
    scaling.before_update(layers, None)
    np.testing.assert_allclose(scaling.values(layers())[:, 0], value[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(layers()[:, 1], outputs[:, 1])


def test_later_changes_preserve_values_and_the_target_keeps_its_units_until_it_is_replaced():
    layers = LastLayers()
    scaling = observed(moments(), layers=layers)
    copied = layers()
    scaling.target_updated()
    values = scaling.values(layers()).numpy()
    for seed in range(1, 20):
        scaling.observe(moments(seed, size=1e6 if seed == 7 else 1.0))
        scaling.before_update(layers, None)
        np.testing.assert_allclose(scaling.values(layers()), values, atol=1e-5)
        np.testing.assert_array_equal(scaling.values(copied, target=True), values)
    assert (scaling.online.scale.numpy() > 1e4 * scaling.target.scale.numpy()).all()
    scaling.target_updated()
    np.testing.assert_array_equal(scaling.target.scale, scaling.online.scale)


def test_errors_are_divided_by_the_largest_of_sigma_the_floor_and_the_batch():
    scaling, outputs, targets = observed(moments(size=10.0)), some_outputs(), 10.0 * some_outputs(1)
    delta = targets - scaling.values(outputs)
    seen = moments(size=10.0)
    np.testing.assert_allclose(
        scaling.errors(targets, outputs, context(size=0.01)), delta / seen.sigma.astype(np.float32), rtol=1e-4
    )
    large = context(size=1e5)
    of_batch = batch_sigma(large.rewards, large.discounts, large.mask)
    np.testing.assert_allclose(
        scaling.errors(targets, outputs, large), delta / tf.cast(of_batch, tf.float32), rtol=1e-5
    )
    scaling.layer.sigma_v.assign([7.0, 8.0])
    floor = np.float32([7.0, 8.0]) * largest_root(seen).astype(np.float32)
    np.testing.assert_allclose(scaling.errors(targets, outputs, context(size=0.01)), delta / floor, rtol=1e-5)


def test_sigma_v_is_measured_in_network_units():
    scaling, outputs = observed(moments(size=1000.0)), some_outputs()
    scaling.initialise(outputs, tf.ones((20, 3)))
    np.testing.assert_allclose(scaling.layer.sigma_v, tf.math.reduce_std(outputs, axis=(0, 1)), rtol=1e-5)


def test_with_unit_outputs_of_the_right_size_errors_are_those_of_return_based_scaling():
    seen, batch = moments(size=10.0), context(size=10.0)
    scaling, plain = observed(seen), ReturnBasedScaling(H)
    plain.observe(seen)
    outputs, targets = some_outputs(), 10.0 * some_outputs(1)
    np.testing.assert_allclose(
        scaling.errors(targets, outputs, batch),
        plain.errors(targets, scaling.values(outputs), batch),
        rtol=1e-4,
    )


@settings(deadline=None, max_examples=40)
@example(-100, 1, 1.0)
@example(100, 1, 1.0)
@given(exponent=st.integers(-100, 100), reports=st.integers(0, 3), sizes=st.floats(1e-3, 1e3))
def test_rewards_times_a_power_of_two_leave_errors_and_weights_as_they_are_to_the_last_bit(
    exponent, reports, sizes
):
    """From the very first priorities on, for which there are no statistics yet."""
    found = []
    for factor in (1.0, 2.0**exponent):
        layers = LastLayers()
        scaling = observed(*(moments(seed, factor * sizes**seed) for seed in range(reports)), layers=layers)
        outputs = some_outputs()
        scaling.initialise(outputs, tf.ones((20, 3)))
        batch = context(5, factor)
        found.append((scaling.errors(batch.rewards, outputs, batch), layers()))
    for plain, large in zip(*found, strict=True):
        np.testing.assert_array_equal(large, plain)


@pytest.mark.parametrize("size", [0.0, 1.0], ids=["no rewards", "constant rewards"])
@pytest.mark.parametrize("seen", [False, True], ids=["nothing seen", "not updated yet"])
def test_first_priorities_do_not_know_the_unit_where_the_rewards_of_a_batch_do_not_vary(size, seen):
    found = []
    for factor in (1.0, 2.0**-10):
        scaling, rewards = ReturnOut(H), tf.fill([20, 3, H], np.float32(factor * size))
        if seen:
            scaling.observe(moments(size=factor))
        batch = context()._replace(rewards=rewards, discounts=tf.zeros_like(rewards))
        found.append(scaling.errors(rewards, some_outputs(), batch).numpy())
    np.testing.assert_array_equal(*found)


def test_a_batch_without_rewards_before_all_statistics_has_finite_errors():
    batch = context(size=0.0)
    errors = ReturnOut(H).errors(batch.rewards, some_outputs(), batch)
    assert np.isfinite(errors).all() and np.abs(errors).max() > 0


def test_only_the_outputs_carry_gradients():
    scaling, outputs = observed(moments()), tf.Variable(some_outputs())
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(scaling.errors(some_outputs(1), outputs, context()))
    assert (tape.gradient(total, outputs).numpy() < 0).all()


def test_xla_computes_the_same():
    found = []
    for jit_compile in (False, True):
        scaling, layers = ReturnOut(H), LastLayers()
        before_update = tf.function(scaling.before_update, jit_compile=jit_compile)
        errors = tf.function(scaling.errors, jit_compile=jit_compile)
        for seed in range(3):
            scaling.observe(moments(seed, 10.0**seed))
            before_update(layers, None)
        found.append((errors(some_outputs(), some_outputs(1), context()), scaling.values(layers())))
    for compiled, plain in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_resumes_statistics_and_units(tmp_path):
    scaling = observed(moments(), moments(1, 30.0))
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnOut(H)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for target in (False, True):
        np.testing.assert_array_equal(restored.values(tf.ones(H), target), scaling.values(tf.ones(H), target))
    for name, value in scaling.summaries().items():
        assert value.shape == (H,) and value.dtype == tf.float64
        np.testing.assert_array_equal(restored.summaries()[name], value, err_msg=name)
