"""Distributions over bins against NumPy in float64: supports, projections, means, cross-entropies and gradients."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.scalings import ErrorContext, HLGauss, TwoHot
from tests.agents.scalings.episodes import SUPPORTS, expected_projection, softmax

H = 2
SCALINGS = [TwoHot, HLGauss]


def context(mask):
    mask = tf.constant(mask, tf.float32)
    zeros = tf.zeros((*mask.shape, H))
    return ErrorContext(zeros, zeros, mask, zeros)


@pytest.mark.parametrize("kind", SCALINGS)
@settings(deadline=None, max_examples=25)
@given(
    x=st.floats(-2e3, 2e3) | st.floats(-1.0, 1.0) | st.sampled_from([0.0, -1e12, 1e12, 10.0, -10.0, 400.0])
)
def test_projections(kind, x):
    x = float(np.float32(x))
    found = kind(H).project(tf.constant([x])).numpy()[0].astype(np.float64)
    assert found.min() >= 0.0 and found.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(found, expected_projection(kind, x), atol=3e-6)


@pytest.mark.parametrize("kind", SCALINGS)
def test_bins_and_values(kind):
    scaling, support = kind(H), SUPPORTS[kind]
    assert scaling.outputs_per_action == len(support)
    np.testing.assert_allclose(scaling.support, support, rtol=1e-6, atol=1e-6)
    logits = 2 * np.random.default_rng(0).normal(size=(4, 3, H, len(support))).astype(np.float32)
    expected, largest = softmax(logits.astype(np.float64)) @ support, np.abs(support).max()
    np.testing.assert_allclose(scaling.decode(logits), expected, rtol=1e-5, atol=1e-6 * largest)
    np.testing.assert_allclose(scaling.decode(logits + 500.0), expected, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("kind", [*SCALINGS, lambda heads: HLGauss(heads, -1.0, 5.0, bins=6)])
def test_uniform_distributions(kind):
    scaling = kind(H)
    middle = np.float32((scaling.support[0] + scaling.support[-1]) / 2)
    decode = tf.function(scaling.decode, jit_compile=True)
    for found in (f(tf.fill((5, scaling.outputs_per_action), 0.7)) for f in (decode, scaling.decode)):
        np.testing.assert_array_equal(found, np.full(5, middle))


@pytest.mark.parametrize("kind", SCALINGS)
def test_losses_and_gradients(kind):
    scaling, rng = kind(H), np.random.default_rng(1)
    logits = tf.Variable(rng.normal(size=(4, 3, H, scaling.outputs_per_action)).astype(np.float32))
    targets = tf.constant(rng.normal(size=(4, 3, H)) * 5.0, tf.float32)
    mask = np.array(rng.uniform(size=(4, 3)) < 0.7, np.float32)

    def losses_and_gradient():
        with tf.GradientTape() as tape:
            losses = scaling.losses(targets, targets, logits, context(mask))
            total = tf.reduce_sum(losses)
        return losses, tape.gradient(total, logits)

    losses, gradient = losses_and_gradient()
    compiled = tf.function(losses_and_gradient, jit_compile=True)()
    np.testing.assert_allclose(compiled[0], losses, rtol=1e-5)
    np.testing.assert_allclose(compiled[1], gradient, atol=1e-6)
    wanted = np.array([expected_projection(kind, x) for x in targets.numpy().ravel().astype(np.float64)])
    wanted = wanted.reshape(logits.shape)
    probabilities = softmax(logits.numpy().astype(np.float64))
    expected = -(wanted * np.log(probabilities)).sum(axis=-1) * mask[..., None]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, (probabilities - wanted) * mask[..., None, None], atol=3e-6)


@pytest.mark.parametrize("kind", SCALINGS)
def test_huge_targets(kind):
    scaling = kind(H)
    logits = tf.Variable(tf.zeros((1, 1, H, scaling.outputs_per_action)))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(scaling.losses(None, tf.fill((1, 1, H), 1e30), logits, context([[1.0]])))
    gradient = tape.gradient(total, logits).numpy()
    assert np.isfinite(total) and np.abs(gradient).max() <= 1.0 and gradient[0, 0, 0, -1] < -0.7


def test_errors_of_two_hot():
    """Rewards ten times as large, far from 0, have the same errors."""
    targets, outputs = tf.constant([[[1e5, -3.0]]]), tf.constant([[[1e4, 3.0]]])
    found = TwoHot(H).errors(targets, outputs, context([[1.0]]))
    np.testing.assert_allclose(found, [[[math.log(100001.0 / 10001.0), -2 * math.log(4.0)]]], rtol=1e-5)
