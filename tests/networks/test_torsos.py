import gin
import numpy as np
import pytest
import tensorflow as tf

from networks import ConvTorso, MlpTorso, atari_torso, dqn_torso, small_torso
from networks.block_convolution import BlockConv2D, blocks_of
from networks.torsos import torso_for


@pytest.fixture(autouse=True)
def _no_gin_bindings_left():
    yield
    gin.clear_config()


def tiny_torso(**kwargs):
    return ConvTorso(channels=(2, 3), kernel_sizes=(3, 2), strides=(2, 1), units=5, **kwargs)


def pixels(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_the_small_torso_is_one_convolution_and_128_units():
    torso = small_torso()
    features = torso(tf.zeros((2, 10, 10, 4), tf.bool))
    assert features.shape == (2, 128) and features.dtype == tf.float32
    assert [variable.shape.as_list() for variable in torso.variables] == [
        [3, 3, 4, 16],
        [16],
        [1600, 128],
        [128],
    ]


def test_convolutions_pad_to_ceil_of_size_over_stride():
    torso = tiny_torso()
    torso(tf.zeros((1, 7, 5, 1)))
    assert torso.variables[-2].shape == (4 * 3 * 3, 5)  # ceil(7 / 2) x ceil(5 / 2) x 3 channels


def test_pixels_are_divided_by_255():
    torso = tiny_torso(seed=1)
    frames = pixels(3, 6, 6, 2)
    np.testing.assert_allclose(torso(frames), torso(frames.astype(np.float32) / 255.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float64])
def test_what_is_no_pixel_is_taken_as_it_is(dtype):
    torso = tiny_torso(seed=1)
    frames = (pixels(3, 6, 6, 2) > 127).astype(dtype)
    np.testing.assert_array_equal(torso(frames), torso(frames.astype(np.float32)))


def test_the_dqn_torso_is_that_of_2013():
    torso = dqn_torso()
    assert torso(pixels(2, 84, 84, 4)).shape == (2, 256)
    shapes = [(8, 8, 4, 16), (16,), (4, 4, 16, 32), (32,), (9 * 9 * 32, 256), (256,)]
    assert [tuple(variable.shape) for variable in torso.variables] == shapes


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("size", [(84, 84), (61, 43)])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_over_blocks_sums_and_gradients_are_those_of_strided_convolutions_with_the_same_weights(
    padding, size, channels
):
    strided, blocks = (dqn_torso_with(padding, over_blocks) for over_blocks in (False, True))
    frames = pixels(3, *size, channels)
    results = []
    for torso in (strided, blocks):
        torso(frames)
        for weights, source in zip(torso.variables, strided.variables, strict=True):
            weights.assign(source)
        with tf.GradientTape() as tape:
            features = torso(frames)
        results.append([features, *tape.gradient(features, torso.trainable_variables)])
    for one, other in zip(*results, strict=True):
        scale = np.abs(one).max()
        assert scale > 0
        np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)


def dqn_torso_with(padding, over_blocks):
    sizes = dict(channels=(16, 32), kernel_sizes=(8, 4), strides=(4, 2), units=64)
    return ConvTorso(**sizes, padding=padding, over_blocks=over_blocks, seed=5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 2])
def test_blocks_are_those_of_space_to_depth(dtype, channels):
    images = pixels(2, 12, 8, channels).astype(dtype)
    np.testing.assert_array_equal(blocks_of(tf.constant(images), 4), tf.nn.space_to_depth(images, 4))


def test_convolutions_whose_stride_does_not_divide_their_kernel_stay_strided():
    torso = ConvTorso((2, 2), (5, 4), (2, 2), 3, over_blocks=True, seed=0)
    kinds = [type(stage) for stage in torso._stages]
    assert kinds[:2] == [tf.keras.layers.Conv2D, BlockConv2D]
    with pytest.raises(ValueError, match="multiple of its stride"):
        BlockConv2D(2, 5, 2)


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
    exact, narrow = small_torso(seed=2), small_torso("bfloat16", seed=2)
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


def test_weights_start_with_variance_one_over_fan_in():
    torso = MlpTorso(units=(300,), seed=0)
    torso(tf.zeros((1, 200)))
    assert np.var(torso.variables[0]) == pytest.approx(1 / 200, rel=0.03)


def test_the_seed_decides_the_weights_of_every_layer():
    def kernels(seed):
        torso = MlpTorso(units=(4, 4), seed=seed)
        torso(tf.zeros((1, 4)))
        return [kernel.numpy() for kernel in torso.variables[::2]]

    np.testing.assert_array_equal(kernels(3), kernels(3))
    assert not np.array_equal(kernels(3), kernels(4))
    assert not np.array_equal(*kernels(3)), "layers of equal shape must not start equal"
    assert not np.array_equal(kernels(None), kernels(None))


def test_gin_reaches_factories_and_classes():
    gin.parse_config("networks.atari_torso.compute_dtype = 'bfloat16'\nnetworks.MlpTorso.units = (7,)")
    assert atari_torso().compute_dtype == "bfloat16"
    assert MlpTorso()(tf.zeros((2, 3))).shape == (2, 7)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="compute_dtype.*'float16'"):
        small_torso("float16")
    with pytest.raises(ValueError, match="one number per convolution"):
        ConvTorso(channels=(1, 2), kernel_sizes=(3,), strides=(1,), units=4)
    with pytest.raises(ValueError, match="30 x 15 pixels are too small"):
        dqn_torso()(pixels(1, 30, 15, 1))
    with pytest.raises(ValueError, match=r"shape \(4,\).*MlpTorso"):
        small_torso()(tf.zeros((2, 4)))


@pytest.mark.parametrize(
    "shape, torso",
    [
        ((210, 160, 3), atari_torso),
        ((84, 84, 4), dqn_torso),
        ((64, 64, 1), dqn_torso),
        ((10, 10, 6), small_torso),
        ((4,), MlpTorso),
        ((), MlpTorso),
    ],
)
def test_observations_choose_their_torso(shape, torso):
    assert torso_for(tf.TensorSpec(shape, tf.uint8)) is torso


def test_a_choice_for_images_is_for_images_alone():
    assert torso_for(tf.TensorSpec((84, 84, 4), tf.uint8), small_torso) is small_torso
    for shape in ((), (4,), (10, 5)):
        assert torso_for(tf.TensorSpec(shape, tf.float32), small_torso) is MlpTorso
