"""Return-based scaling with the mean error of a batch as one more floor, for rewards that never vary."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings import ReturnBasedScaling
from tests.rbs_tf.scalings.episodes import ROWS, SHAPE, H, context, episode, observe, some_steps


def divisors(scaling, errors, batch):
    """What such errors, float [T', B, H], are divided by: [H]."""
    scaled = scaling.errors(tf.constant(errors, tf.float32), tf.zeros(errors.shape), batch).numpy()
    return errors[0, 0] / scaled[0, 0]


@pytest.mark.parametrize("reward", [-1.0, 7.0])
@pytest.mark.parametrize("learned", [0.0, 0.75, 1.0, 3.0])
def test_rewards_that_never_vary_are_scaled_by_the_mean_error(reward, learned):
    """As in Skiing: no episode has ended, and the head of gamma 0 would wait for such an end in vain."""
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, mean_error=True)
    for scaling in (plain, other):
        scaling.observe(ReturnMoments.from_steps(np.full((40, H), reward), np.full((40, H), [0.0, 0.9])))
        np.testing.assert_array_equal(scaling.layer.sigma, [0.0, 0.0])
    batch = context(rewards=np.full(ROWS, reward))._replace(discounts=tf.ones(ROWS) * [0.0, 0.9])
    targets, outputs = tf.fill(SHAPE, reward), tf.fill(SHAPE, learned * reward)
    offset = (1.0 - learned) * reward
    np.testing.assert_allclose(plain.errors(targets, outputs, batch), np.full(SHAPE, 100.0 * offset))
    np.testing.assert_array_equal(other.errors(targets, outputs, batch), np.full(SHAPE, np.sign(offset)))


def test_the_mean_error_is_that_of_the_errors_own_real_steps():
    scaling, mask = ReturnBasedScaling(H, mean_error=True), np.ones(ROWS[:2])
    errors = np.random.default_rng(1).normal(size=SHAPE) + [3.0, -400.0]
    mask[3:, 1] = 0
    errors[3:, 1] = [np.nan, 1e9]
    expected = np.abs(errors[mask[:5] == 1].mean(axis=0))
    np.testing.assert_allclose(divisors(scaling, errors, context(mask=mask)), expected, rtol=1e-6)
    nothing = scaling.errors(tf.ones(SHAPE), tf.zeros(SHAPE), context(mask=np.zeros(ROWS[:2])))
    np.testing.assert_allclose(nothing, np.full(SHAPE, 100.0))


@pytest.mark.parametrize("options", [{}, {"target_network_term": True}, {"n_step": True}, {"half_life": 20}])
@pytest.mark.parametrize("offset", [0.1, 1e5])
def test_the_mean_error_is_one_more_lower_bound_whatever_else_counts(options, offset):
    plain, other = ReturnBasedScaling(H, **options), ReturnBasedScaling(H, **options, mean_error=True)
    rng = np.random.default_rng(2)
    gaps, errors = rng.normal(size=SHAPE) * 50.0, rng.normal(size=SHAPE) + [offset, -1.0]
    batch = context(gaps, rewards=rng.normal(size=ROWS))._replace(n_step=3)
    for scaling in (plain, other):
        observe(scaling, *some_steps(), n=3)
    bounds = divisors(plain, errors, batch), np.abs(errors.mean(axis=(0, 1)))
    assert (bounds[0] < bounds[1]).tolist() == [offset > 1.0, False]
    np.testing.assert_allclose(divisors(other, errors, batch), np.maximum(*bounds), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(exponent=st.integers(-2, 6), seed=st.integers(0, 1000))
def test_with_the_mean_error_the_scale_is_homogeneous(exponent, seed):
    factor, rng = 10.0**exponent, np.random.default_rng(seed)
    errors, in_batch = rng.normal(size=SHAPE) + [30.0, 0.0], rng.normal(size=ROWS)
    found = []
    for by in (1.0, factor):
        scaling = ReturnBasedScaling(H, sigma_v=1e-9, mean_error=True)
        scaling.observe(episode(seed, size=(by, 100.0 * by)))
        found.append(divisors(scaling, by * errors, context(rewards=by * in_batch)))
    np.testing.assert_allclose(found[1], factor * found[0], rtol=1e-5)


def test_no_gradient_flows_through_the_mean_error():
    scaling, outputs = ReturnBasedScaling(H, mean_error=True), tf.Variable(tf.random.normal(SHAPE, seed=2))
    with tf.GradientTape() as tape:
        errors = scaling.errors(tf.fill(SHAPE, 50.0), outputs, context())
    expected = -1.0 / np.abs(np.mean(50.0 - outputs.numpy(), axis=(0, 1)))
    np.testing.assert_allclose(tape.gradient(errors, outputs), np.broadcast_to(expected, SHAPE), rtol=1e-5)


def test_errors_without_a_mean_are_left_bit_for_bit():
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, mean_error=True)
    errors = np.random.default_rng(5).normal(size=SHAPE).astype(np.float32) * 1e6
    errors[:, 1], errors[:, 2] = -errors[:, 0], 0.0
    for seed in range(3):
        found = [s.errors(tf.constant(errors), tf.zeros(SHAPE), context()) for s in (plain, other)]
        np.testing.assert_array_equal(*found)
        for scaling in (plain, other):
            scaling.observe(episode(seed))


def test_xla_equals_eager_with_the_mean_error():
    scaling = ReturnBasedScaling(H, mean_error=True)
    scaling.observe(episode())
    targets, mask = tf.random.normal(SHAPE, 5.0, seed=1), np.ones(ROWS[:2])
    mask[2:, 0] = 0
    arguments = targets * [1.0, 1e4], tf.zeros(SHAPE), context(mask=mask)
    eager, compiled = scaling.errors(*arguments), tf.function(scaling.errors, jit_compile=True)(*arguments)
    assert (divisors(scaling, arguments[0].numpy(), arguments[-1]) > scaling.layer.sigma.numpy()).all()
    np.testing.assert_allclose(compiled, eager, rtol=1e-6)
