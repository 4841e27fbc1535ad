"""sigma of one sampled batch of sequences; `test_vectors` holds its formula."""

import numpy as np
import pytest
import tensorflow as tf

from rbs_tf import ReturnMoments, batch_sigma


def batch(seed, steps=9, sequences=4, heads=3):
    """Rewards, discounts and mask [T, B(, H)] with terminal steps, and padding at any place."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(1.0, 3.0, (steps, sequences, heads))
    alive = rng.uniform(size=(steps, sequences)) < 0.8
    discounts = alive[..., None] * np.linspace(0.0, 1.0, heads)
    return rewards, discounts, rng.uniform(size=(steps, sequences)) < 0.8


def test_padding_and_powers_of_two():
    rewards, discounts, mask = batch(0)
    found = batch_sigma(rewards, discounts, mask)
    garbage = [np.where(mask[..., None], x, value) for x, value in ((rewards, np.inf), (discounts, np.nan))]
    np.testing.assert_array_equal(batch_sigma(*garbage, mask), found)
    np.testing.assert_allclose(ReturnMoments.from_batch(*garbage, mask).sigma, found, rtol=1e-12)
    np.testing.assert_array_equal(batch_sigma(rewards, discounts, np.zeros_like(mask)), np.zeros(3))
    small, found = rewards.astype(np.float32), []
    for exponent in (-100, 0, 100):  # only float64 holds the squares
        of_factor = batch_sigma(small * np.float32(2.0**exponent), discounts, mask)
        found.append(of_factor.numpy() / 2.0**exponent)
    np.testing.assert_array_equal(found, [found[0]] * 3)


def test_in_graphs():
    """Also where the number of steps is known only when the graph runs; columns do not spread over it then."""
    compiled = tf.function(batch_sigma, jit_compile=True)
    np.testing.assert_allclose(compiled(*map(tf.constant, batch(0))), batch_sigma(*batch(0)), rtol=1e-12)
    unknown = tf.TensorSpec([None, None, 3])
    traced = tf.function(batch_sigma, input_signature=[unknown, unknown, tf.TensorSpec([None, None])])
    for steps in (1, 7):
        rewards, discounts, mask = map(np.float32, batch(1, steps=steps))
        found = traced(rewards, discounts, mask)
        assert found.dtype == tf.float64
        np.testing.assert_allclose(found, batch_sigma(rewards, discounts, mask), rtol=1e-12)
    for wrong in ((rewards, discounts[:1], mask), (rewards, discounts, mask[:1])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="rewards and discounts and mask"):
            traced(*wrong)


def test_no_gradient():
    rewards, discounts, mask = batch(3)
    rewards = tf.Variable(rewards)
    with tf.GradientTape() as tape:
        sigma = batch_sigma(rewards, discounts, mask)
    assert tape.gradient(sigma, rewards) is None


def test_what_does_not_fit_is_refused():
    for shapes in (((3, 2), (3, 2), (3, 2)), ((3, 2, 1), (3, 2, 2), (3, 2)), ((3, 2, 1), (3, 2, 1), (2, 3))):
        for found in (batch_sigma, ReturnMoments.from_batch):
            with pytest.raises(ValueError, match=r"rewards \[T, B, H\], discounts"):
                found(*map(np.ones, shapes))
    rewards, discounts, mask = batch(0)
    rewards[3, 1, 2], mask[3, 1] = np.inf, True
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"rewards must be finite; .* at step .*3 1.* head .*2"
    ):
        batch_sigma(rewards, discounts, mask)
    with pytest.raises(ValueError, match="reward_mean must be finite"):
        ReturnMoments.from_batch(rewards, discounts, mask)
