import gin
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import BoundedTensorSpec

from networks import RecurrentQNetwork, atari_torso
from tests.networks.tiny import (
    ACTION,
    FIRST,
    MID,
    REWARD,
    SPEC,
    A,
    B,
    H,
    T,
    batch,
    some_state,
    tiny_network,
)


def shared_variables(network):
    """Trainable variables of torso, core and the linear layer after it: all heads share them."""
    return [
        *network.torso_variables,
        *network.variables_behind_torso[: -len(network.heads.trainable_variables)],
    ]


def conv(kernel, channels_in, channels_out):
    return kernel * kernel * channels_in * channels_out + channels_out


def linear(units_in, units_out):
    return units_in * units_out + units_out


def test_the_papers_network_has_the_papers_layers():
    spec = (tf.TensorSpec((210, 160, 3), tf.uint8), ACTION, REWARD)
    network = RecurrentQNetwork(spec, num_actions=18, num_heads=10)
    q_spec = network.create_variables()
    convolutions = conv(7, 3, 32) + conv(5, 32, 64) + conv(5, 64, 128) + conv(3, 128, 128)
    torso = convolutions + linear(14 * 10 * 128, 512)
    lstm = 4 * linear(512 + 18 + 1 + 512, 512)
    shared = torso + lstm + linear(512, 256)
    head = 2 * linear(256, 256) + linear(256, 1) + linear(256, 18)
    assert q_spec == tf.TensorSpec((10, 18), tf.float32)
    assert shared == 11_853_504 and head == 136_467
    assert sum(np.prod(variable.shape) for variable in shared_variables(network)) == shared
    assert sum(np.prod(variable.shape) for variable in network.trainable_variables) == shared + 10 * head


def test_an_unroll_is_a_chain_of_single_steps_of_sequences_that_do_not_see_each_other():
    network = tiny_network()
    inputs, step_type = batch(B, T)
    q_values, last = network(inputs, step_type, some_state())
    assert q_values.shape == (B, T, H, A) and q_values.dtype == tf.float32
    for nest in (last, network.get_initial_state(B)):
        tf.nest.assert_same_structure(network.state_spec, nest)
    state = some_state()
    for t in range(T):
        row = tuple(part[:, t] for part in inputs)
        step_values, state = network(row, step_type[:, t], state)
        np.testing.assert_allclose(q_values[:, t], step_values, atol=1e-5)
    np.testing.assert_allclose(last, state, atol=1e-5)
    for b in range(B):
        row = slice(b, b + 1)
        state = tuple(part[row] for part in some_state())
        alone, _ = network(tuple(part[row] for part in inputs), step_type[row], state)
        np.testing.assert_allclose(q_values[row], alone, atol=1e-5)


def test_no_state_means_zeros_no_step_types_mean_no_reset_and_a_first_step_forgets_the_state():
    network, outer = tiny_network(), (B, T)
    inputs, _ = batch(*outer)
    implicit, _ = network(inputs)
    explicit, _ = network(inputs, tf.fill(outer, MID), network.get_initial_state(B))
    np.testing.assert_array_equal(implicit, explicit)
    forgotten, _ = network(inputs, tf.fill(outer, FIRST), some_state())
    np.testing.assert_array_equal(forgotten, network(inputs, tf.fill(outer, FIRST))[0])


def with_part(inputs, index, value):
    return tuple(tf.fill(part.shape, value) if i == index else part for i, part in enumerate(inputs))


def test_no_previous_action_is_none_of_the_actions():
    network = tiny_network()
    inputs, _ = batch(B)
    values = [network(with_part(inputs, 1, action))[0].numpy() for action in range(-1, A)]
    assert len({value.tobytes() for value in values}) == A + 1
    # With the weights of all actions set to zero, every action is what -1 was before.
    core_weights = next(variable for variable in network.variables if "recurrent_core/W" in variable.name)
    rows_of_actions = np.zeros(core_weights.shape, bool)
    rows_of_actions[7 : 7 + A] = True
    core_weights.assign(tf.where(rows_of_actions, 0.0, core_weights))
    np.testing.assert_array_equal(network(with_part(inputs, 1, 2))[0], values[0])


def test_the_previous_reward_is_clipped():
    network, inputs = tiny_network(), batch(B)[0]
    low, least, some, most, high = (
        network(with_part(inputs, 2, x))[0].numpy() for x in (-9.0, -1.0, 0.5, 1.0, 1e6)
    )
    np.testing.assert_array_equal((low, high), (least, most))
    assert not np.array_equal(some, most)


def values_and_gradients(network, inputs, step_type, state):
    with tf.GradientTape() as tape:
        q_values, _ = network(inputs, step_type, state)
        loss = tf.reduce_sum(tf.square(q_values))
    return [q_values, *tape.gradient(loss, network.trainable_variables)]


def test_the_shared_gradient_alone_is_divided_by_sqrt_h_and_reaches_every_weight():
    arguments = (*batch(B, T), some_state())
    network = tiny_network()
    assert [v.name for v in (*shared_variables(network), *network.heads.variables)] == [
        v.name for v in network.variables
    ]
    shared = {variable.ref() for variable in shared_variables(network)}
    scaled = values_and_gradients(network, *arguments)[1:]
    plain = values_and_gradients(tiny_network(scale_gradient=False), *arguments)[1:]
    for variable, own, other in zip(network.trainable_variables, scaled, plain, strict=True):
        factor = H**-0.5 if variable.ref() in shared else 1.0
        np.testing.assert_allclose(own, factor * other, rtol=1e-4, atol=1e-5)
        assert np.any(own != 0.0)


def test_a_copy_has_variables_of_its_own_that_start_equal():
    network = tiny_network()
    copy = network.copy(name="target_network")
    copy.create_variables()
    assert copy.name == "target_network"
    for own, other in zip(network.variables, copy.variables, strict=True):
        assert own is not other
        np.testing.assert_array_equal(own, other)


def test_the_seed_decides_all_weights():
    same, again, other = ([v.numpy() for v in tiny_network(seed=seed).variables] for seed in (1, 1, 2))
    for a, b, c in zip(same, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.ndim == 1 or not np.any(a) or not np.array_equal(a, c)


def test_dead_units_are_those_that_put_out_nothing_anywhere_and_features_spread_over_observations():
    network = tiny_network()
    observation = batch(B, T)[0][0]
    (layer, *_), outputs = network.torso_layers, network.features(observation).numpy().reshape(B * T, -1)
    dead, spread = network.torso_activity(observation)
    assert dead.shape == (len(network.torso_layers),) and layer.startswith("conv")
    assert dead[-1].numpy() == pytest.approx(np.mean((outputs == 0.0).all(axis=0)))
    assert spread.numpy() == pytest.approx(outputs.std(axis=0).mean(), rel=1e-5)
    network._torso._stages[-1].bias.assign(tf.fill(outputs.shape[1:], -1e6))
    dead, spread = network.torso_activity(observation)
    assert dead[-1] == 1.0 and spread == 0.0 and dead[0] < 1.0


class OwnTorso(tf.keras.layers.Layer):
    def call(self, observation):
        return tf.cast(tf.reshape(observation, (-1, 32)), tf.float32)


def test_a_torso_of_ones_own_shows_its_features():
    network = tiny_network(torso=lambda seed: OwnTorso())
    dead, _ = network.torso_activity(tf.zeros((3, 4, 4, 2), tf.uint8))
    assert network.torso_layers == ["features"] and dead.numpy().tolist() == [1.0]


def test_a_copy_of_a_normalised_network_is_set_by_its_variables():
    network = tiny_network(normalise_torso="centre")
    copy = network.copy()
    copy.create_variables()
    inputs, step_type = batch(B, T)
    network.set_torso_from(inputs[0])
    assert network.torso_is_centred and not np.allclose(
        copy(inputs, step_type)[0], network(inputs, step_type)[0]
    )
    for variable, source in zip(copy.variables, network.variables, strict=True):
        variable.assign(source)
    np.testing.assert_array_equal(copy(inputs, step_type)[0], network(inputs, step_type)[0])


@pytest.mark.parametrize("maximum, divisor", [(1, 1.0), (255, 255.0)])
def test_the_spec_tells_flags_from_pixels(maximum, divisor):
    bounded = BoundedTensorSpec((4, 4, 2), tf.uint8, 0, maximum)
    inputs, step_type = batch(B, T)
    observation = inputs[0] // (256 // (maximum + 1))
    q_values, _ = tiny_network((bounded, ACTION, REWARD))((observation, *inputs[1:]), step_type)
    as_floats = (tf.cast(observation, tf.float32) / divisor, *inputs[1:])
    float_spec = (tf.TensorSpec((4, 4, 2), tf.float32), ACTION, REWARD)
    expected, _ = tiny_network(float_spec)(as_floats, step_type)
    np.testing.assert_allclose(q_values, expected, atol=1e-6)


def test_vectors_get_linear_layers_unless_a_torso_is_given():
    vector = tf.TensorSpec((4,), tf.float32), ACTION, REWARD
    gin.parse_config("MlpTorso.units = (3,)")
    network = RecurrentQNetwork(vector, A, H, lstm_units=2)
    refused = RecurrentQNetwork(vector, A, H, torso=atari_torso)
    network.create_variables()
    assert network.torso_variables[0].shape == (4, 3)
    with pytest.raises(ValueError, match=r"atari_torso takes images.*shape \(4,\).*RecurrentQNetwork.torso"):
        refused.create_variables()


def test_wrong_arguments_are_named():
    for build, error, complaint in (
        (lambda: RecurrentQNetwork(SPEC[0], A, H), ValueError, "input_tensor_spec"),
        (lambda: tiny_network(reward_input="sign"), ValueError, "reward_input"),
        (lambda: tiny_network(normalise_torso="sign"), ValueError, "normalise_torso"),
        (lambda: RecurrentQNetwork(SPEC, A, H, torso=atari_torso()), TypeError, "torso.* factory"),
        (
            lambda: tiny_network(torso=lambda seed: OwnTorso(), normalise_torso="centre"),
            ValueError,
            "normalise_torso.* OwnTorso",
        ),
    ):
        with pytest.raises(error, match=complaint):
            build()
