"""sigma of one sampled batch of sequences."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
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


@given(st.integers(0, 2**32 - 1))
def test_it_is_the_formula_over_all_real_steps_with_returns_cut_at_padding(seed):
    arrays = batch(seed)
    np.testing.assert_allclose(batch_sigma(*arrays), in_numpy(*arrays), rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(-100, 100))
def test_rewards_times_a_power_of_two_multiply_it_to_the_last_bit(seed, exponent):
    """float32 rewards, whose squares only float64 holds."""
    rewards, discounts, mask = batch(seed)
    rewards, factor = rewards.astype(np.float32), 2.0**exponent
    found = batch_sigma(rewards * np.float32(factor), discounts, mask)
    np.testing.assert_array_equal(found, factor * batch_sigma(rewards, discounts, mask).numpy())


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_graphs_it_is_the_same(jit_compile):
    arrays = batch(0)
    found = tf.function(batch_sigma, jit_compile=jit_compile)(*map(tf.constant, arrays))
    np.testing.assert_allclose(found, in_numpy(*arrays), rtol=1e-12)


def test_the_number_of_steps_may_be_unknown_to_the_graph():
    unknown = tf.TensorSpec([None, None, 3])
    traced = tf.function(batch_sigma, input_signature=[unknown, unknown, tf.TensorSpec([None, None])])
    for steps in (1, 7):
        rewards, discounts, mask = batch(1, steps=steps)
        found = traced(rewards.astype(np.float32), discounts.astype(np.float32), mask.astype(np.float32))
        assert found.dtype == tf.float64
        np.testing.assert_allclose(found, in_numpy(rewards, discounts, mask), rtol=1e-5)


def test_padding_may_hold_anything():
    rewards, discounts, mask = batch(2)
    garbage = [np.where(mask[..., None], x, value) for x, value in ((rewards, np.inf), (discounts, np.nan))]
    np.testing.assert_array_equal(batch_sigma(*garbage, mask), batch_sigma(rewards, discounts, mask))


def test_a_batch_of_nothing_but_padding_has_no_scale():
    rewards, discounts, mask = batch(3)
    np.testing.assert_array_equal(batch_sigma(rewards, discounts, np.zeros_like(mask)), np.zeros(3))


def test_a_large_mean_does_not_drown_the_spread():
    """Without a future, sigma is the spread of rewards, here 1 around 1e6."""
    rewards = np.float32([1e6 - 1, 1e6 + 1]).reshape(2, 1, 1)
    np.testing.assert_array_equal(batch_sigma(rewards, np.zeros((2, 1, 1)), np.ones((2, 1))), [1.0])


def test_no_gradient_flows_through_it():
    rewards, discounts, mask = batch(4)
    rewards = tf.Variable(rewards)
    with tf.GradientTape() as tape:
        sigma = batch_sigma(rewards, discounts, mask)
    assert tape.gradient(sigma, rewards) is None


@pytest.mark.parametrize(
    "shapes", [((3, 2), (3, 2), (3, 2)), ((3, 2, 1), (3, 2, 2), (3, 2)), ((3, 2, 1), (3, 2, 1), (3,))]
)
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(ValueError, match=r"batch_sigma takes rewards \[T, B, H\]"):
        batch_sigma(*map(np.ones, shapes))


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e200])
def test_what_cannot_be_counted_is_refused_unless_it_is_masked_out(value):
    rewards, discounts, mask = batch(0)
    rewards[3, 1, 2], mask[3, 1] = value, False
    batch_sigma(rewards, discounts, mask)
    mask[3, 1] = True
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"batch_sigma: rewards must be finite; .* at step \[?3 1\]? head 2",
    ):
        batch_sigma(rewards, discounts, mask)
