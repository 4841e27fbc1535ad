import numpy as np
import pytest
import tensorflow as tf

from networks import ConvTorso, MlpTorso, atari_torso, dqn_torso, small_torso
from networks.torsos import choose_torso


def tiny_torso(**kwargs):
    return ConvTorso(channels=(2, 3), kernel_sizes=(3, 2), strides=(2, 1), units=5, **kwargs)


def pixels(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_torsos_have_the_published_layers():
    """Of Mnih et al. 2013."""
    torso = dqn_torso()
    features = torso(tf.zeros((2, 84, 84, 4), tf.bool))
    assert features.shape == (2, 256) and features.dtype == tf.float32
    kernels = [tuple(variable.shape) for variable in torso.variables[::2]]
    assert kernels == [(8, 8, 4, 16), (4, 4, 16, 32), (9 * 9 * 32, 256)]


def test_pixels_are_divided_by_255_and_all_else_is_taken_as_it_is():
    torso = tiny_torso(seed=1)
    frames = pixels(3, 6, 6, 2)
    np.testing.assert_allclose(torso(frames), torso(frames.astype(np.float32) / 255.0), rtol=1e-6)
    for dtype in (bool, np.int32, np.float64):
        flags = (frames > 127).astype(dtype)
        np.testing.assert_array_equal(torso(flags), torso(flags.astype(np.float32)))


def built(centred, seed=3):
    torso = tiny_torso(seed=seed, padding="valid")
    if centred:
        torso.centre()
    torso(tf.zeros((1, 9, 9, 2), tf.uint8))
    return torso


def layers(torso, frames):
    """What each layer with weights gets, and its sums: computed from the torso's variables."""
    features = tf.constant(frames, tf.float32) / 255.0
    centres = [centre.mean for centre in torso._centres]
    for centre, stage, strides in zip(centres, (0, 1, 3), (2, 1, None), strict=True):
        inputs = features - centre
        kernel, bias = torso._stages[stage].kernel, torso._stages[stage].bias
        sums = tf.nn.conv2d(inputs, kernel, strides, "VALID") if strides else inputs @ kernel
        yield inputs.numpy(), (sums + bias).numpy()
        features = tf.nn.relu(sums + bias)
        if stage == 1:
            features = tf.reshape(features, (len(frames), -1))


def test_a_torso_that_is_set_centres_what_each_layer_gets():
    torso, frames = built(centred=True), 100 + pixels(40, 9, 9, 2) // 8
    torso.activations(tf.constant(frames), setting=True)
    outputs = torso.activations(frames)
    for (inputs, sums), output in zip(layers(torso, frames), outputs, strict=True):
        np.testing.assert_allclose(output, np.maximum(sums, 0.0), atol=1e-5)
        np.testing.assert_allclose(inputs.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_array_equal(torso(frames), outputs[-1])


def test_until_it_is_set_a_centred_torso_is_the_plain_one():
    plain, centred = built(centred=False), built(centred=True)
    frames = pixels(5, 9, 9, 2)
    np.testing.assert_allclose(centred(frames), plain(frames), rtol=1e-4, atol=1e-6)
    centred.activations(tf.constant(frames), setting=True)
    assert not np.allclose(centred(frames), plain(frames))


def test_vectors_go_through_linear_layers_with_relu():
    torso = MlpTorso(units=(4, 3), seed=0)
    observations = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    features = torso(observations)
    expected = observations
    for kernel, bias in zip(torso.variables[::2], torso.variables[1::2], strict=True):
        expected = np.maximum(expected @ kernel.numpy() + bias.numpy(), 0.0)
    np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-6)


def test_a_bfloat16_torso_is_close_to_float32_and_keeps_float32_variables():
    frames = pixels(16, 10, 10, 3)
    exact, narrow = small_torso(seed=2), small_torso(compute_dtype="bfloat16", seed=2)
    narrow.build(frames.shape)

    @tf.function(jit_compile=True)  # oneDNN has no bfloat16 where it is told to leave out newer instructions
    def run():
        with tf.GradientTape() as tape:
            features = narrow(frames)
        return features, tape.gradient(features, narrow.trainable_variables)

    features, gradients = run()
    assert features.dtype == tf.float32
    assert {variable.dtype for variable in narrow.variables} == {tf.float32}
    assert {gradient.dtype for gradient in gradients} == {tf.float32}
    difference = np.linalg.norm(features - exact(frames)) / np.linalg.norm(exact(frames))
    assert 0.0 < difference < 0.01  # bfloat16 has 8 significant bits


@pytest.mark.parametrize(
    "shape, torso",
    [
        ((210, 160, 3), atari_torso),
        ((160, 128, 3), atari_torso),
        ((127, 160, 3), dqn_torso),
        ((42, 84, 1), dqn_torso),
        ((41, 84, 1), small_torso),
        ((10, 10, 6), small_torso),
        ((4,), MlpTorso),
    ],
)
def test_observations_choose_their_torso(shape, torso):
    assert choose_torso(tf.TensorSpec(shape, tf.uint8)) is torso


def test_wrong_arguments_are_named():
    for build, complaint in (
        (lambda: small_torso(compute_dtype="float16"), "compute_dtype"),
        (lambda: ConvTorso((1, 2), kernel_sizes=(3,), strides=(1,), units=4), "one number per convolution"),
        (lambda: small_torso()(tf.zeros((2, 4))), r"shape \(4,\).*MlpTorso"),
    ):
        with pytest.raises(ValueError, match=complaint):
            build()
