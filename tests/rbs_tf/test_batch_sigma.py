"""sigma of one sampled batch of sequences."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, batch_sigma


def batch(seed, steps=9, sequences=4, heads=3):
    """Rewards, discounts and mask [T, B(, H)] with terminal steps, and padding at any place."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(1.0, 3.0, (steps, sequences, heads))
    alive = rng.uniform(size=(steps, sequences)) < 0.8
    discounts = alive[..., None] * np.linspace(0.0, 1.0, heads)
    return rewards, discounts, rng.uniform(size=(steps, sequences)) < 0.8


def in_numpy(rewards, discounts, mask):
    """The same, one stretch of real steps after the other."""
    total = ReturnMoments.empty(rewards.shape[-1])
    for b in range(rewards.shape[1]):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask[:, b].astype(int), [0]])))
        for start, end in edges.reshape(-1, 2):
            stretch = rewards[start:end, b], discounts[start:end, b]
            total = ReturnMoments.merge(total, ReturnMoments.from_episode(*stretch))
    return total.sigma


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(-100, 100))
def test_the_formula(seed, exponent):
    """Returns are cut at padding; and it is homogeneous to the last bit for powers of two, whose squares only
    float64 holds."""
    rewards, discounts, mask = batch(seed)
    found = batch_sigma(rewards, discounts, mask)
    np.testing.assert_allclose(found, in_numpy(rewards, discounts, mask), rtol=1e-12)
    np.testing.assert_allclose(ReturnMoments.from_batch(rewards, discounts, mask).sigma, found, rtol=1e-12)
    garbage = [np.where(mask[..., None], x, value) for x, value in ((rewards, np.inf), (discounts, np.nan))]
    np.testing.assert_array_equal(batch_sigma(*garbage, mask), found)
    np.testing.assert_allclose(ReturnMoments.from_batch(*garbage, mask).sigma, found, rtol=1e-12)
    small, factor = rewards.astype(np.float32), 2.0**exponent
    found = batch_sigma(small * np.float32(factor), discounts, mask)
    np.testing.assert_array_equal(found, factor * batch_sigma(small, discounts, mask).numpy())


def test_in_graphs():
    """Also where the number of steps is known only when the graph runs; columns do not spread over it then."""
    compiled = tf.function(batch_sigma, jit_compile=True)
    np.testing.assert_allclose(compiled(*map(tf.constant, batch(0))), in_numpy(*batch(0)), rtol=1e-12)
    unknown = tf.TensorSpec([None, None, 3])
    traced = tf.function(batch_sigma, input_signature=[unknown, unknown, tf.TensorSpec([None, None])])
    for steps in (1, 7):
        arrays = batch(1, steps=steps)
        found = traced(*map(np.float32, arrays))
        assert found.dtype == tf.float64
        np.testing.assert_allclose(found, in_numpy(*arrays), rtol=1e-5)
    rewards, discounts, mask = map(np.float32, arrays)
    for wrong in ((rewards, discounts[:1], mask), (rewards, discounts, mask[:1])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="rewards and discounts and mask"):
            traced(*wrong)


def test_padding_only_and_gradients():
    rewards, discounts, mask = batch(3)
    np.testing.assert_array_equal(batch_sigma(rewards, discounts, np.zeros_like(mask)), np.zeros(3))
    rewards = tf.Variable(rewards)
    with tf.GradientTape() as tape:
        sigma = batch_sigma(rewards, discounts, mask)
    assert tape.gradient(sigma, rewards) is None


def test_wrong_shapes():
    for shapes in (((3, 2), (3, 2), (3, 2)), ((3, 2, 1), (3, 2, 2), (3, 2)), ((3, 2, 1), (3, 2, 1), (2, 3))):
        with pytest.raises(ValueError, match=r"batch_sigma takes rewards \[T, B, H\]"):
            batch_sigma(*map(np.ones, shapes))
        with pytest.raises(ValueError, match=r"must all be \[T\]|a batch is rewards \[T, B, H\]"):
            ReturnMoments.from_batch(*map(np.ones, shapes))


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e200])
def test_what_is_not_finite_is_refused(value):
    rewards, discounts, mask = batch(0)
    rewards[3, 1, 2], mask[3, 1] = value, True
    said = r"batch_sigma: rewards must be finite; .* at step \[?3 1\]? head 2"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        batch_sigma(rewards, discounts, mask)
