"""Rewards divided by the largest so far, against NumPy that divides the rewards themselves."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings import MaxReward, MomentsWithMaxima
from tests.rbs_tf.scalings.episodes import ROWS, SHAPE, H, context, episode, normal, steps


def one_step_errors(scaling, rewards, outputs, next_outputs):
    """As the agent computes them: discount 0.9, the target network's outputs after each step."""
    targets = scaling.rewards(tf.constant(rewards)) + 0.9 * scaling.values(tf.constant(next_outputs), True)
    batch = context(rewards=np.concatenate([rewards, rewards[:2]]))
    return scaling.errors(targets, tf.constant(outputs), batch).numpy()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-4, 6), min_size=1, max_size=4))
def test_it_divides_rewards_by_the_largest_of_all_so_far(exponents):
    scaling, largest = MaxReward(H), np.zeros(H)
    for seed, exponent in enumerate(exponents):
        rewards, discounts = steps(seed, size=10.0**exponent)
        scaling.observe(MomentsWithMaxima.from_episode(rewards, discounts))
        largest = np.maximum(largest, np.abs(rewards).max(axis=0))
        rewards, q, q_next = (normal((seed, n)) for n in range(3))
        expected = rewards / largest + 0.9 * q_next - q
        found = one_step_errors(scaling, rewards, q, q_next)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(scaling.summaries()["reward_scale"], largest)


def test_a_head_that_has_seen_no_reward_has_values_of_0():
    scaling, q = MaxReward(H), normal(0)
    scaling.observe(episode(size=[0.0, 3.0]))
    np.testing.assert_array_equal(scaling.values(q)[..., 0], 0.0)
    assert (scaling.values(q)[..., 1].numpy() != 0.0).all()
    errors = one_step_errors(scaling, np.zeros(SHAPE, np.float32), q, normal(1))
    np.testing.assert_array_equal(errors[..., 0], -q[..., 0])


def test_first_priorities_are_in_units_of_their_batch_without_its_padding():
    rewards, mask = normal(0, shape=ROWS), np.ones(ROWS[:2])
    mask[3:, 1] = 0
    rewards[3:, 1] = np.inf
    found = MaxReward(H).errors(rewards[:5], normal(1), context(rewards=rewards, mask=mask)).numpy()
    unit = np.sqrt(np.square(rewards[mask == 1], dtype=np.float64).mean(axis=0))
    expected = (rewards[:5] / unit - normal(1))[mask[:5] == 1]
    np.testing.assert_allclose(found[mask[:5] == 1], expected, rtol=1e-4, atol=1e-5)
