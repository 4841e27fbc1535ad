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
    sequences = INPUTS.reshape(2, 3, IN)
    np.testing.assert_array_equal(heads(sequences), tf.reshape(q_values, (2, 3, H, A)))


def gradients_of(heads):
    inputs = tf.constant(INPUTS)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = heads(inputs)
        loss = tf.reduce_sum(tf.square(outputs))
    return outputs, tape.gradient(loss, [inputs, *heads.trainable_variables])


def test_only_the_gradient_into_the_input_is_divided_by_sqrt_h():
    outputs, (into_input, *into_weights) = gradients_of(built_heads(scale_gradient=True))
    plain_outputs, (plain_into_input, *plain_into_weights) = gradients_of(built_heads(scale_gradient=False))
    np.testing.assert_allclose(into_input, plain_into_input / np.sqrt(H), rtol=1e-6)
    for one, other in zip([outputs, *into_weights], [plain_outputs, *plain_into_weights], strict=True):
        np.testing.assert_array_equal(one, other)


def test_each_head_starts_with_the_variance_of_its_own_fan_in_and_as_the_seed_says():
    def initial(seed):
        heads = DuelingHeads(10, num_actions=50, hidden=60, seed=seed)
        heads.build(tf.TensorShape((None, 100)))
        assert not any(np.any(biases) for biases in (heads.b1, heads.bv, heads.ba))
        return [weights.numpy() for weights in (heads.W1, heads.Wa, heads.Wv)]

    for packed, again, other, fan_in in zip(initial(0), initial(0), initial(1), (100, 60, 60), strict=True):
        assert np.var(packed) == pytest.approx(1 / fan_in, rel=0.15)
        assert len({weights.tobytes() for weights in packed}) == len(packed), "no two heads start equal"
        np.testing.assert_array_equal(packed, again)
        assert not np.array_equal(packed, other)


sizes = st.floats(1e-3, 1e3)
shifts = st.floats(-1e3, 1e3)


@settings(deadline=None, max_examples=10)
@given(ratio=st.lists(sizes, min_size=H, max_size=H), shift=st.lists(shifts, min_size=H, max_size=H))
def test_rescaled_outputs_are_ratio_times_old_plus_shift(ratio, shift):
    heads = built_heads()
    ratio, shift, advantage = np.array(ratio), np.array(shift), heads.ba.numpy()
    old = heads(INPUTS).numpy()
    heads.rescale_outputs(ratio, shift)
    tolerance = 1e-6 * (20.0 * ratio + np.abs(shift))[:, None]  # float32, with streams of size up to about 20
    assert np.all(np.abs(heads(INPUTS) - (ratio[:, None] * old + shift[:, None])) <= tolerance)
    # The shift moves the value stream only.
    np.testing.assert_allclose(heads.ba, ratio[:, None] * advantage, rtol=1e-6)


def test_ratios_work_in_graphs_and_by_powers_of_two_to_the_last_bit():
    heads, ratio = built_heads(), tf.constant((0.25, 1.0, 1024.0), tf.float64)
    old = heads(INPUTS).numpy()
    tf.function(heads.rescale_outputs, jit_compile=True)(ratio, tf.zeros(H, tf.float64))
    np.testing.assert_array_equal(heads(INPUTS), ratio.numpy()[:, None] * old)


K = 5


def test_each_of_several_outputs_is_a_dueling_network_of_its_own():
    heads, rng = built_heads(outputs_per_action=K), np.random.default_rng(2)
    for weights, shape in ((heads.Wv, (H, HIDDEN, K)), (heads.Wa, (H, HIDDEN, A * K))):
        np.testing.assert_array_equal(weights, np.zeros(shape))
        weights.assign(rng.normal(size=shape))
    logits, one = heads(INPUTS.reshape(2, 3, IN)), built_heads()
    assert logits.shape == (2, 3, H, A, K)
    of_actions = heads.Wa.numpy().reshape(H, HIDDEN, A, K), heads.ba.numpy().reshape(H, A, K)
    for output in range(K):
        of_values = heads.Wv[..., output : output + 1], heads.bv[:, output : output + 1]
        wanted = heads.W1, heads.b1, *of_values, *(x[..., output] for x in of_actions)
        for variable, value in zip(one.weights, wanted, strict=True):
            variable.assign(value)
        found = tf.reshape(logits, (N, H, A, K))[..., output]
        np.testing.assert_allclose(found, one(INPUTS), atol=1e-5)
