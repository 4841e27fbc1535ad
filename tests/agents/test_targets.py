"""n-step targets, priorities and importance weights against loops in NumPy float64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.targets import importance_weights, n_step_targets, sequence_priorities


def looped_target(values, rewards, discounts, valid, n, t):
    """Forward sum over at most n transitions, then the bootstrap; one sequence, one head."""
    target, weight, row = 0.0, 1.0, t
    for _ in range(n):
        if row == len(rewards) or not valid[row]:
            break
        target += weight * rewards[row]
        weight *= discounts[row]
        row += 1
    return target + weight * values[row]


@settings(max_examples=60)
@given(st.integers(1, 7), st.integers(1, 12), st.integers(0, 2**31))
def test_recursion_equals_the_forward_sum_with_cuts_and_padding(n, length, seed):
    rng = np.random.default_rng(seed)
    batch, heads = 3, 2
    values = rng.normal(size=(length + 1, batch, heads))
    rewards = rng.normal(size=(length, batch, heads))
    discounts = rng.choice([0.0, 0.9, 1.0], size=(length, batch, heads))
    # Each sequence may end anywhere: an episode's final row, then padding.
    ends = rng.integers(0, length + 1, size=batch)
    valid = np.arange(length)[:, None] < ends
    got = n_step_targets(
        *(tf.constant(x, tf.float32) for x in (values, rewards, discounts)), tf.constant(valid), n
    ).numpy()
    for t in range(length):
        for b in range(batch):
            for h in range(heads):
                expected = looped_target(
                    values[:, b, h], rewards[:, b, h], discounts[:, b, h], valid[:, b], n, t
                )
                assert got[t, b, h] == pytest.approx(expected, abs=1e-4)


def test_priority_mixes_maximum_and_mean_of_unmasked_steps():
    errors = tf.constant([[[1.0, -3.0]], [[4.0, 4.0]], [[100.0, 100.0]]])  # [T=3, B=1, H=2]
    mask = tf.constant([[1.0], [1.0], [0.0]])
    assert float(sequence_priorities(errors, mask, 0.9)[0]) == pytest.approx(0.9 * 4.0 + 0.1 * 3.0)


def test_a_fully_masked_sequence_has_priority_zero():
    assert float(sequence_priorities(tf.ones((3, 1, 2)), tf.zeros((3, 1)), 0.9)[0]) == 0.0


def test_importance_weights_follow_the_formula():
    probability, size = tf.constant([0.5, 0.125, 0.01]), tf.constant([100, 100, 100], tf.int64)
    expected = (100 * np.array([0.5, 0.125, 0.01])) ** -0.6
    np.testing.assert_allclose(
        importance_weights(probability, size, 0.6), expected / expected.max(), rtol=1e-6
    )


def test_draws_without_probabilities_weigh_alike():
    np.testing.assert_array_equal(
        importance_weights(tf.zeros(3), tf.constant([5, 5, 5], tf.int64), 0.6), [1, 1, 1]
    )
