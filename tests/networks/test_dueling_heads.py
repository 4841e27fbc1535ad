import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from networks import DuelingHeads

N, IN, HIDDEN, H, A = 6, 5, 4, 3, 7
INPUTS = np.random.default_rng(0).normal(size=(N, IN)).astype(np.float32)


def built_heads(num_heads=H, inputs=IN, hidden=HIDDEN, **kwargs):
    heads = DuelingHeads(num_heads, A, hidden, **{"seed": 0, **kwargs})
    heads.build(tf.TensorShape((None, inputs)))
    biases = np.random.default_rng(1)
    for bias in (heads.b1, heads.bv, heads.ba):
        bias.assign(biases.normal(size=bias.shape))
    return heads


def relu(x):
    return np.maximum(x, 0.0)


def test_every_head_is_a_dueling_network_of_its_own():
    heads = built_heads()
    W1, b1, Wv, bv, Wa, ba = (weights.numpy() for weights in heads.weights)
    q_values = heads(INPUTS)
    assert q_values.shape == (N, H, A) and q_values.dtype == tf.float32
    for h in range(H):
        value = relu(INPUTS @ W1[h] + b1[h]) @ Wv[h] + bv[h]
        advantage = relu(INPUTS @ W1[H + h] + b1[H + h]) @ Wa[h] + ba[h]
        expected = value + advantage - advantage.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(q_values[:, h], expected, atol=1e-5)


def test_leading_dimensions_are_kept():
    heads = built_heads()
    sequences = INPUTS.reshape(2, 3, IN)
    np.testing.assert_array_equal(heads(sequences), tf.reshape(heads(INPUTS), (2, 3, H, A)))


def test_heads_with_equal_weights_give_what_one_head_gives():
    one, many = built_heads(num_heads=1), built_heads()
    for single, packed in zip(one.weights, many.weights, strict=True):
        packed.assign(tf.repeat(single, H, axis=0))
    np.testing.assert_allclose(many(INPUTS), np.repeat(one(INPUTS), H, axis=1), atol=1e-6)


def gradients_of(heads):
    inputs = tf.constant(INPUTS)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = heads(inputs)
        loss = tf.reduce_sum(tf.square(outputs))
    return outputs, tape.gradient(loss, [inputs, *heads.trainable_variables])


def test_only_the_gradient_into_the_input_is_divided_by_sqrt_h():
    outputs, (into_input, *into_weights) = gradients_of(built_heads())
    plain_outputs, (plain_into_input, *plain_into_weights) = gradients_of(built_heads(scale_gradient=False))
    np.testing.assert_array_equal(outputs, plain_outputs)
    np.testing.assert_allclose(into_input, plain_into_input / np.sqrt(H), rtol=1e-6)
    for scaled, plain in zip(into_weights, plain_into_weights, strict=True):
        np.testing.assert_array_equal(scaled, plain)


def test_the_gradient_of_one_head_stays_as_it_is():
    _, (into_input, *_) = gradients_of(built_heads(num_heads=1))
    _, (plain_into_input, *_) = gradients_of(built_heads(num_heads=1, scale_gradient=False))
    np.testing.assert_array_equal(into_input, plain_into_input)


@pytest.mark.parametrize("num_heads", [1, 10])
def test_each_head_starts_with_the_variance_of_its_own_fan_in(num_heads):
    heads = DuelingHeads(num_heads, num_actions=50, hidden=60, seed=0)
    heads.build(tf.TensorShape((None, 100)))
    for packed, fan_in in ((heads.W1, 100), (heads.Wa, 60)):
        for weights in packed.numpy():
            assert np.var(weights) == pytest.approx(1 / fan_in, rel=0.1)
    assert np.var(heads.Wv) == pytest.approx(1 / 60, rel=0.5 if num_heads == 1 else 0.15)
    assert not any(np.any(biases) for biases in (heads.b1, heads.bv, heads.ba))


def test_no_two_heads_start_equal():
    heads = built_heads()
    for packed in (heads.W1, heads.Wv, heads.Wa):
        assert len({weights.tobytes() for weights in packed.numpy()}) == packed.shape[0]


def test_the_seed_decides_the_weights():
    np.testing.assert_array_equal(built_heads(seed=1)(INPUTS), built_heads(seed=1)(INPUTS))
    assert not np.array_equal(built_heads(seed=1)(INPUTS), built_heads(seed=2)(INPUTS))


sizes = st.floats(1e-3, 1e3)
shifts = st.floats(-1e3, 1e3)


@settings(deadline=None, max_examples=40)
@given(ratio=st.lists(sizes, min_size=H, max_size=H), shift=st.lists(shifts, min_size=H, max_size=H))
def test_rescaled_outputs_are_ratio_times_old_plus_shift(ratio, shift):
    heads = built_heads()
    ratio, shift = np.array(ratio), np.array(shift)
    expected = ratio[:, None] * heads(INPUTS).numpy() + shift[:, None]
    heads.rescale_outputs(ratio, shift)
    tolerance = 1e-6 * (20.0 * ratio + np.abs(shift))[:, None]  # float32, with streams of size up to about 20
    assert np.all(np.abs(heads(INPUTS) - expected) <= tolerance)


def test_rescaling_by_powers_of_two_is_exact_to_the_last_bit():
    heads = built_heads()
    old = heads(INPUTS).numpy()
    ratio = np.array((0.25, 1.0, 1024.0))
    heads.rescale_outputs(ratio, np.zeros(H))
    np.testing.assert_array_equal(heads(INPUTS), ratio[:, None] * old)


def test_the_shift_moves_the_value_stream_alone():
    heads = built_heads()
    advantage = heads.Wa.numpy(), heads.ba.numpy()
    heads.rescale_outputs(np.ones(H), np.arange(H))
    np.testing.assert_array_equal(heads.Wa, advantage[0])
    np.testing.assert_array_equal(heads.ba, advantage[1])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_rescaling_works_in_graphs(jit_compile):
    heads, eager = built_heads(), built_heads()
    ratio, shift = tf.constant((0.5, 2.0, 3.0), tf.float64), tf.constant((1.0, 0.0, -1.0), tf.float64)
    tf.function(heads.rescale_outputs, jit_compile=jit_compile)(ratio, shift)
    eager.rescale_outputs(ratio, shift)
    np.testing.assert_allclose(heads(INPUTS), eager(INPUTS), atol=1e-6)


K = 5


def categorical_heads(**options):
    """With last layers that are not 0."""
    heads = built_heads(outputs_per_action=K, **options)
    rng = np.random.default_rng(2)
    for weights in (heads.Wv, heads.Wa):
        weights.assign(rng.normal(size=weights.shape))
    return heads


def test_each_of_several_outputs_is_a_dueling_network_of_its_own():
    heads = categorical_heads()
    logits = heads(INPUTS.reshape(2, 3, IN))
    assert logits.shape == (2, 3, H, A, K)
    for output in range(K):
        one = built_heads()
        columns = heads.Wa.numpy().reshape(H, HIDDEN, A, K), heads.ba.numpy().reshape(H, A, K)
        wanted = heads.Wv[..., output : output + 1], heads.bv[:, output : output + 1], *columns
        values = heads.W1, heads.b1, *wanted[:2], *(x[..., output] for x in wanted[2:])
        for variable, value in zip(one.weights, values, strict=True):
            variable.assign(value)
        np.testing.assert_allclose(
            tf.reshape(logits, (N, H, A, K))[..., output], one(INPUTS), atol=1e-5, err_msg=str(output)
        )


def test_several_outputs_start_at_zero_and_hidden_layers_as_ever():
    heads = DuelingHeads(H, A, HIDDEN, seed=0, outputs_per_action=K)
    one = DuelingHeads(H, A, HIDDEN, seed=0)
    np.testing.assert_array_equal(heads(INPUTS), np.zeros((N, H, A, K)))
    one(INPUTS)
    np.testing.assert_array_equal(heads.W1, one.W1)
