"""The layer: what it remembers, what it divides by, and what it refuses."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import rbs_tf
from rbs_tf import ReturnMoments, ReturnScaling, discounted_returns


def episodes(shape=(12, 2, 3), offset=5.0, seed=0):
    """Rewards, discounts, returns and a mask over a batch of episodes, time first."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(offset, 2.0, shape)
    discounts = np.full(shape, np.linspace(0.5, 0.9, shape[-1]))
    discounts[-1] = 0.0
    flat = discounted_returns(rewards.reshape(len(rewards), -1), discounts.reshape(len(rewards), -1))
    return rewards, discounts, flat.reshape(shape), rng.uniform(size=shape[:-1]) < 0.7


def in_numpy(rewards, discounts, returns, mask=None):
    keep = np.ones(rewards.shape[:-1], bool) if mask is None else mask
    steps = ReturnMoments.from_steps(rewards[keep], discounts[keep])
    return ReturnMoments.merge(steps, ReturnMoments.from_returns(returns[keep]))


def feed(layer, rewards, discounts, returns, mask=None):
    layer.update_state(rewards, discounts, mask)
    layer.update_returns(returns, mask)


MODES = {
    "eager": lambda function: function,
    "graph": tf.function,
    "xla": lambda function: tf.function(function, jit_compile=True),
}


@pytest.fixture(params=MODES.values(), ids=MODES)
def mode(request):
    return request.param


@pytest.mark.parametrize("masked", [False, True])
def test_it_holds_the_moments_that_numpy_finds(mode, masked):
    *arrays, mask = episodes()
    mask = mask if masked else None
    layer = ReturnScaling(3)
    mode(lambda: feed(layer, *arrays, mask))()
    expected = in_numpy(*arrays, mask)
    np.testing.assert_allclose(layer.statistics, expected.to_array(), rtol=1e-12)
    np.testing.assert_allclose(layer.sigma, expected.sigma, rtol=1e-12)
    np.testing.assert_allclose(layer.mean_return, expected.mean_return, rtol=1e-12)
    assert layer.sigma.dtype == layer.mean_return.dtype == tf.float64


def test_step_by_step_equals_all_at_once(mode):
    rewards, discounts, returns, mask = episodes(offset=1e4)
    layer = ReturnScaling(3)
    update = mode(lambda *columns: feed(layer, *columns))
    for row in zip(rewards, discounts, returns, mask, strict=True):
        update(*map(tf.constant, row))
    expected = in_numpy(rewards, discounts, returns, mask).to_array()
    np.testing.assert_allclose(layer.statistics, expected, rtol=1e-11, atol=1e-12)


def test_moments_of_another_process_are_added_as_they_are(mode):
    *arrays, _ = episodes()
    more = ReturnMoments.from_episode(np.ones((4, 3)), np.zeros((4, 3)))
    layer = ReturnScaling(3)
    feed(layer, *arrays)
    mode(lambda: layer.merge_state(more))()
    expected = ReturnMoments.merge(in_numpy(*arrays), more)
    np.testing.assert_allclose(layer.statistics, expected.to_array(), rtol=1e-12)
    np.testing.assert_allclose(layer.moments.to_array(), expected.to_array(), rtol=1e-12)


def test_errors_are_divided_by_the_largest_of_the_three_scales(mode):
    layer = ReturnScaling(3, sigma_v=[1.0, 4.0, 1.0])
    # sigma = 2 per head: V[R] = 4, no future.
    layer.update_state(np.repeat([[1.0], [5.0]], 3, axis=1), np.zeros((2, 3)))
    errors = tf.fill((5, 2, 3), 8.0)
    np.testing.assert_array_equal(mode(layer)(errors)[0, 0], [4.0, 2.0, 4.0])
    with_batch = mode(lambda: layer(errors, batch_sigma=tf.constant([1.0, 1.0, 16.0], tf.float64)))()
    np.testing.assert_array_equal(with_batch[4, 1], [4.0, 2.0, 0.5])


def test_sigma_v_is_the_papers_until_something_has_been_seen():
    np.testing.assert_allclose(ReturnScaling(2)(tf.ones((1, 2))), [[100.0, 100.0]], rtol=1e-6)
    np.testing.assert_array_equal(ReturnScaling(2).sigma, [0.0, 0.0])


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_layer_that_has_seen_nothing_says_so_once(mode, caplog):
    layer = ReturnScaling(2, sigma_v=[0.5, 0.02])
    scaled = mode(layer)
    for rows in (1, 2):
        scaled(tf.ones((rows, 2)))  # another shape is another graph
    (said,) = warnings_of(caplog)
    assert "its floor sigma_v multiplies errors by up to 50. Call update_state" in said and "\n" not in said


@pytest.mark.parametrize(
    "feed_first",
    [
        lambda layer: layer.update_state([1.0, 5.0], [0.0, 0.0]),
        lambda layer: layer.merge_state(ReturnMoments.from_episode([1.0, 5.0], [0.9, 0.0])),
        lambda layer: layer.statistics.assign(np.ones((8, 1))),
    ],
    ids=["update_state", "merge_state", "restored"],
)
def test_a_layer_that_has_seen_something_is_silent(mode, feed_first, caplog):
    layer = ReturnScaling()
    feed_first(layer)
    mode(layer)(tf.ones(3))
    assert not warnings_of(caplog)


def test_what_is_fed_in_the_same_graph_counts(mode, caplog):
    layer = ReturnScaling()

    def step(rewards, discounts):
        layer.update_state(rewards, discounts)
        return layer(rewards)

    rewards = tf.constant([1.0, 5.0])
    np.testing.assert_array_equal(mode(step)(rewards, tf.zeros(2)), rewards / 2.0)
    assert not warnings_of(caplog)


def test_with_returns_alone_there_is_still_only_the_floor(caplog):
    layer = ReturnScaling()
    layer.update_returns([7.0])
    layer(tf.ones(1))
    assert len(warnings_of(caplog)) == 1


def test_the_scale_of_a_batch_stands_in_for_statistics(mode, caplog):
    layer = ReturnScaling(2)
    mode(lambda: layer(tf.ones((1, 2)), batch_sigma=tf.ones(2)))()
    assert not warnings_of(caplog)


def test_a_model_may_be_built_before_its_data_but_not_run(caplog):
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, ReturnScaling(3)(inputs))
    assert not warnings_of(caplog)
    for _ in range(2):
        model.predict(np.ones((2, 3)), verbose=0)
    assert len(warnings_of(caplog)) == 1


def test_graphs_read_what_the_variables_hold_now(mode):
    """Unlike keras.layers.Normalization, whose statistics are frozen into a graph when it is traced."""
    layer = ReturnScaling(1)
    scaled = mode(lambda: layer(tf.constant([8.0])))
    assert float(scaled()[0]) == pytest.approx(800.0)
    layer.update_state([1.0, 5.0], [0.0, 0.0])
    assert float(scaled()[0]) == 4.0
    layer.sigma_v.assign([16.0])
    assert float(scaled()[0]) == 0.5


def test_the_gradient_goes_through_the_errors_alone():
    layer = ReturnScaling(2, sigma_v=4.0)
    errors, batch_sigma = tf.Variable([[1.0, 2.0]]), tf.Variable([8.0, 1.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(errors, batch_sigma=batch_sigma))
    gradient, through_scale = tape.gradient(loss, [errors, batch_sigma])
    np.testing.assert_array_equal(gradient, [[0.125, 0.25]])
    assert through_scale is None
    assert layer.trainable_variables == []


def test_reset_forgets_the_data_but_not_the_network():
    layer = ReturnScaling(3)
    feed(layer, *episodes()[:3])
    layer.sigma_v.assign([1.0, 2.0, 3.0])
    layer.reset_state()
    np.testing.assert_array_equal(layer.statistics, np.zeros((8, 3)))
    np.testing.assert_array_equal(layer.sigma_v, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["rewards", "discounts", "returns"])
def test_what_is_not_finite_never_enters(mode, name, value):
    """Refused by step, head and value; XLA cannot raise, so there the whole update is dropped."""
    layer = ReturnScaling(3)
    *arrays, _ = episodes()
    feed(layer, *arrays)
    before = layer.statistics.numpy()
    columns = dict(zip(["rewards", "discounts", "returns"], arrays, strict=True))
    columns[name][7, 1, 2] = value
    update = layer.update_returns if name == "returns" else layer.update_state
    names = ["returns"] if name == "returns" else ["rewards", "discounts"]
    # As arguments: on constants TensorFlow would not try its rewriting of comparisons, which forgets NaN.
    arguments = [tf.constant(columns[n]) for n in names]
    if mode is MODES["xla"]:
        mode(update)(*arguments)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError) as refused:
            mode(update)(*arguments)
        words = str(refused.value).translate(str.maketrans("", "", "[]"))
        assert f"{name} must be finite; got {value} at step 7 1 head 2" in words
    np.testing.assert_array_equal(layer.statistics, before)


def test_masked_steps_may_hold_anything(mode):
    *arrays, mask = episodes()
    layer = ReturnScaling(3)
    with_garbage = [np.where(mask[..., None], column, np.nan) for column in arrays]
    mode(lambda: feed(layer, *with_garbage, mask))()
    np.testing.assert_allclose(layer.statistics, in_numpy(*arrays, mask).to_array(), rtol=1e-12)


@pytest.mark.parametrize("mask", [np.zeros((12, 2)), None])
def test_an_update_without_steps_changes_nothing(mode, mask):
    *arrays, _ = episodes()
    layer = ReturnScaling(3)
    feed(layer, *arrays)
    before = layer.statistics.numpy()
    mode(lambda: feed(layer, *(a if mask is not None else a[:0] for a in arrays), mask))()
    np.testing.assert_array_equal(layer.statistics, before)


def test_moments_beyond_float64_are_refused():
    layer = ReturnScaling(1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be finite; got 1e\+200"):
        layer.update_state([1e200, -1e200], [0.0, 0.0])
    np.testing.assert_array_equal(layer.statistics, np.zeros((8, 1)))


@pytest.mark.parametrize("shape, mask_shape", [((5,), (5,)), ((5, 1), (5,)), ((5, 2), (5, 2)), ((), ())])
def test_one_head_needs_no_axis(mode, shape, mask_shape):
    rewards, mask = np.arange(np.prod(shape)).reshape(shape), np.ones(mask_shape)
    layer = ReturnScaling()
    mode(lambda: feed(layer, rewards, np.ones(shape), rewards, mask))()
    np.testing.assert_allclose(layer.moments.reward_mean, [rewards.mean()])
    np.testing.assert_allclose(layer.moments.reward_variance, [rewards.var()])
    assert layer(tf.ones(shape), batch_sigma=tf.ones(1)).shape == shape


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32])
def test_errors_come_out_in_float32_at_least(dtype):
    layer = ReturnScaling(2, sigma_v=1e6)
    scaled = layer(tf.ones((3, 2), dtype))
    assert scaled.dtype == (tf.float64 if dtype == tf.float64 else tf.float32)
    np.testing.assert_allclose(scaled, 1e-6, rtol=1e-6)  # 0 in float16


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "float64"])
def test_statistics_stay_float64_under_every_dtype_policy(policy):
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        layer = ReturnScaling(3)
        *arrays, _ = episodes(offset=1e6)
        feed(layer, *arrays)
        inputs = tf.keras.Input((3,), dtype=tf.float16)
        model = tf.keras.Model(inputs, layer(inputs))
        assert model(tf.ones((1, 3), tf.float16)).dtype == model.output.dtype == tf.float32
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert {tf.as_dtype(v.dtype) for v in layer.variables} == {tf.float64} and layer.sigma.dtype == tf.float64
    np.testing.assert_allclose(layer.sigma, in_numpy(*arrays).sigma, rtol=1e-12)


class HalfPrecisionLayer(tf.keras.layers.Layer):
    """It casts the variables that are read while it is called, unless they forbid it."""

    def __init__(self):
        super().__init__(dtype="mixed_float16")
        self.scaling = ReturnScaling(3, dtype="mixed_float16")

    def call(self, rewards):
        self.scaling.update_state(rewards, tf.zeros_like(rewards))
        return self.scaling.sigma


def test_statistics_stay_float64_within_a_half_precision_layer():
    rewards = tf.constant(np.random.default_rng(0).normal(1e4, 1.0, (50, 3)), tf.float16)
    sigma = HalfPrecisionLayer()(rewards)
    assert sigma.dtype == tf.float64
    np.testing.assert_allclose(sigma, rewards.numpy().astype(np.float64).std(axis=0), rtol=1e-12)


def test_shapes_that_do_not_fit_are_refused_with_what_to_type():
    layer = ReturnScaling(3)
    with pytest.raises(ValueError, match=r"rewards must have shape \[..., 3\].*np.repeat"):
        layer.update_state(np.ones(6), np.ones(6))
    with pytest.raises(ValueError, match=r"td_errors must have shape \[..., 3\]"):
        layer(tf.ones((6, 1)))
    with pytest.raises(ValueError, match="rewards and discounts and mask must agree"):
        layer.update_state(np.ones((4, 3)), np.ones((5, 3)))
    with pytest.raises(ValueError, match="rewards and discounts and mask must agree"):
        layer.update_state(np.ones((4, 2, 3)), np.ones((4, 2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="equally many heads merge; got 3 and 2"):
        layer.merge_state(ReturnMoments.empty(2))


@pytest.mark.parametrize(
    "sigma_v", [0.0, -1.0, np.nan, np.inf, 1e-320, 1e39, [1.0, 2.0], [1.0, 0.0, 1.0], np.eye(3)]
)
def test_a_floor_that_is_none_is_refused(sigma_v):
    with pytest.raises(
        ValueError, match="sigma_v must be a positive number that float32 can hold, or 3 of them"
    ) as refused:
        ReturnScaling(3, sigma_v=sigma_v)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("num_heads", [0, -1, 2.0, "2", None])
def test_a_number_of_heads_that_is_none_is_refused(num_heads):
    with pytest.raises(ValueError) as refused:
        ReturnScaling(num_heads=num_heads)
    assert str(refused.value) == f"num_heads must be a whole number of at least 1, got {num_heads!r}"


def test_the_packages_names_are_what_its_modules_define():
    assert rbs_tf.batch_sigma is rbs_tf.return_scaling.batch_sigma
    assert {getattr(rbs_tf, name).__name__ for name in rbs_tf.__all__} == set(rbs_tf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rbs_tf.nothing


def test_a_single_step_of_a_single_head_needs_no_place_in_the_message():
    with pytest.raises(tf.errors.InvalidArgumentError, match="got nan for head 0 - mask"):
        ReturnScaling().update_state(np.nan, 0.9)
