import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from networks import RewardInput
from tests.networks.tiny import B, T, batch, some_state, tiny_network


def built(*observed):
    """A layer that has been told of these stretches of rewards."""
    layer = RewardInput()
    layer.build(tf.TensorShape(()))
    for rewards in observed:
        layer.observe(len(rewards), np.mean(np.square(rewards)))
    return layer


def expected(rewards, observed):
    """In float64."""
    relative = np.asarray(rewards, np.float64) / np.sqrt(np.mean(np.square(observed, dtype=np.float64)))
    relative = np.clip(relative, -1e4, 1e4)
    return np.sign(relative) * np.log(1.0 + np.abs(relative))


@pytest.mark.parametrize("rewards", [np.array([0.5, -3.0, 0.0]), np.array([[1e7, -1e30], [3e-4, np.inf]])])
def test_the_input_follows_its_formula(rewards):
    observed = [0.0, 0.0, 2.0, -7.0]
    found = built(observed)(tf.constant(rewards, tf.float32))
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected(rewards, observed), rtol=1e-6)


@pytest.mark.parametrize("observed", [(), ([0.0, 0.0],)])
def test_before_any_reward_but_0_the_input_is_0(observed):
    np.testing.assert_array_equal(built(*observed)(tf.constant([5.0, 0.0, -1e9])), 0.0)


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5), min_size=1, max_size=5))
@settings(max_examples=20)
def test_statistics_are_the_mean_square_of_all_rewards_in_whatever_stretches(stretches):
    together = np.concatenate(stretches)
    steps, mean_square = built(*stretches).statistics.numpy()
    assert steps == len(together)
    np.testing.assert_allclose(mean_square, np.mean(np.square(together)), rtol=1e-12)


def observed_network(**options):
    network = tiny_network(reward_input="rms", **options)
    network.reward_input.observe(10, 400.0)
    return network


def test_the_core_sees_it_where_it_would_see_the_clipped_reward():
    (observation, action, reward), step_type = batch(B, T)
    reward = 20.0 * tf.clip_by_value(reward, -1.5, 1.5)
    found, _ = observed_network()((observation, action, reward), step_type, some_state())
    seen = tf.constant(expected(reward, [20.0]), tf.float32)
    np.testing.assert_array_less(np.abs(seen), 1.0)  # the other network clips nothing
    same, _ = tiny_network()((observation, action, seen), step_type, some_state())
    np.testing.assert_allclose(found, same, atol=1e-6)


def test_statistics_are_saved_with_the_weights_and_not_trained():
    network, clipping = observed_network(), tiny_network()
    assert len(network.variables) == len(clipping.variables) + 1
    assert len(network.trainable_variables) == len(clipping.trainable_variables)
    (extra,) = network.non_trainable_variables
    assert extra is network.reward_input.statistics and extra.dtype == tf.float64
    copy = network.copy(name="target_network")
    copy.create_variables()
    assert copy.reward_input.statistics is not extra and not copy.reward_input.statistics.numpy().any()
