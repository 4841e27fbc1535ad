"""The layer: what it remembers, what it divides by, and what it refuses."""

import functools
import logging

import numpy as np
import pytest
import tensorflow as tf

import rbs_tf
from rbs_tf import ReturnMoments, ReturnScaling, discounted_returns
from rbs_tf.numpy import ReturnScaling as NumpyScaling


def episodes(offset=5.0, seed=0):
    """Rewards, discounts, returns and a mask over a batch of episodes, time first."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(offset, 2.0, (12, 2, 3))
    discounts = np.full(rewards.shape, np.linspace(0.5, 0.9, 3))
    discounts[-1] = 0.0
    flat = discounted_returns(rewards.reshape(12, -1), discounts.reshape(12, -1))
    return rewards, discounts, flat.reshape(rewards.shape), rng.uniform(size=(12, 2)) < 0.7


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


def test_moments(mode):
    """Those that NumPy finds, with garbage in masked steps, at once, step by step and from another process."""
    *arrays, mask = episodes(offset=1e4)
    garbage = [np.where(mask[..., None], column, np.nan) for column in arrays]
    layer, expected = ReturnScaling(3), in_numpy(*arrays, mask)
    update = mode(lambda *columns: feed(layer, *columns))
    for rows in ([(*garbage, mask)], [*zip(*garbage, mask, strict=True)]):
        layer.reset_state()
        for row in rows:
            update(*map(tf.constant, row))
        np.testing.assert_allclose(layer.statistics, expected.to_array(), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(layer.sigma, expected.sigma, rtol=1e-11)
        np.testing.assert_allclose(layer.mean_return, expected.mean_return, rtol=1e-12)
        assert layer.sigma.dtype == layer.mean_return.dtype == tf.float64
    before = layer.statistics.numpy()
    update(*map(tf.constant, (*arrays, np.zeros_like(mask))))
    feed(layer, *(array[:0] for array in arrays))
    np.testing.assert_array_equal(layer.statistics, before)
    more = ReturnMoments.from_episode(np.ones((4, 3)), np.zeros((4, 3)))
    mode(lambda: layer.merge_state(more))()
    np.testing.assert_allclose(
        layer.moments.to_array(), expected.merge(expected, more).to_array(), rtol=1e-11
    )


def test_errors_are_divided_by_the_largest_scale(mode):
    """As the variables hold them now: keras.layers.Normalization freezes its statistics into a graph."""
    layer, errors = ReturnScaling(3, sigma_v=[1.0, 4.0, 1.0]), tf.fill((5, 2, 3), 8.0)
    scaled = mode(layer)
    np.testing.assert_array_equal(scaled(errors)[0, 0], [8.0, 2.0, 8.0])
    # sigma = 2 per head: V[R] = 4, no future.
    layer.update_state(np.repeat([[1.0], [5.0]], 3, axis=1), np.zeros((2, 3)))
    np.testing.assert_array_equal(scaled(errors)[0, 0], [4.0, 2.0, 4.0])
    with_batch = mode(lambda: layer(errors, batch_sigma=tf.constant([1.0, 1.0, 16.0], tf.float64)))
    np.testing.assert_array_equal(with_batch()[4, 1], [4.0, 2.0, 0.5])
    layer.sigma_v.assign([16.0, 1.0, 1.0])
    np.testing.assert_array_equal(scaled(errors)[0, 0], [0.5, 4.0, 4.0])
    layer.reset_state()
    np.testing.assert_array_equal(scaled(errors)[0, 0], [0.5, 8.0, 8.0])
    np.testing.assert_array_equal(ReturnScaling().sigma_v, [1e-2])


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["eager", "graph"])
def test_what_has_seen_nothing_says_so_once(mode, caplog):
    layer = ReturnScaling(2, sigma_v=[0.5, 0.02])
    layer.update_returns([[7.0, 7.0]])  # of no known steps
    scaled = mode(layer)
    for rows in (1, 2):
        scaled(tf.ones((rows, 2)))  # another shape is another graph
    (said,) = warnings_of(caplog)
    assert (
        "its floor sigma_v multiplies errors by up to 50. Before the errors, play in the environment that"
        in said
        and "or call update_state" in said
        and "\n" not in said
    )
    caplog.clear()
    more = ReturnMoments.from_episode([1.0], [0.0])
    for use in (
        lambda layer: layer.update_state([1.0, 5.0], [0.0, 0.0]) or layer(tf.ones(3)),  # in the same graph
        lambda layer: layer.merge_state(more) or layer(tf.ones(3)),
        lambda layer: layer(tf.ones(3), batch_sigma=tf.ones(1)),
    ):
        mode(functools.partial(use, ReturnScaling()))()
    assert not warnings_of(caplog)


def test_a_model_may_be_built_before_its_data(caplog):
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, ReturnScaling(3)(inputs))
    assert not warnings_of(caplog)
    for _ in range(2):
        model.predict(np.ones((2, 3)), verbose=0)
    assert len(warnings_of(caplog)) == 1


def test_gradients_flow_through_errors_only():
    layer = ReturnScaling(2, sigma_v=4.0)
    errors, batch_sigma = tf.Variable([[1.0, 2.0]]), tf.Variable([8.0, 1.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(errors, batch_sigma=batch_sigma))
    gradient, through_scale = tape.gradient(loss, [errors, batch_sigma])
    np.testing.assert_array_equal(gradient, [[0.125, 0.25]])
    assert through_scale is None
    assert layer.trainable_variables == []


@pytest.mark.parametrize(("name", "value"), [("discounts", np.inf), ("returns", np.nan), ("rewards", 1e200)])
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


def test_threads(at_once):
    layer = ReturnScaling()
    more = ReturnMoments.from_episode([1.0, 2.0], [0.9, 0.0])

    def feed_once():
        layer.update_state([1.0, 2.0], [0.9, 0.0])
        layer.update_returns([1.0 + 0.9 * 2.0, 2.0])
        layer.merge_state(more)

    at_once(lambda: [feed_once() for _ in range(5)])
    np.testing.assert_array_equal(layer.moments.count, [4 * 5 * 4])
    np.testing.assert_array_equal(layer.moments.return_count, [4 * 5 * 4])
    np.testing.assert_allclose(layer.sigma, more.sigma, rtol=1e-12)


@pytest.mark.parametrize("shape, mask_shape", [((5, 1), (5,)), ((5, 2), (5, 2)), ((), ())])
def test_one_head_needs_no_axis(shape, mask_shape):
    rewards, mask = np.arange(np.prod(shape)).reshape(shape), np.ones(mask_shape)
    layer = ReturnScaling()
    feed(layer, rewards, np.ones(shape), rewards, mask)
    np.testing.assert_allclose(layer.moments.reward_mean, [rewards.mean()])
    np.testing.assert_allclose(layer.moments.reward_variance, [rewards.var()])
    assert layer(tf.ones(shape), batch_sigma=tf.ones(1)).shape == shape


def test_statistics_stay_float64_under_dtype_policies():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        layer = ReturnScaling(3)
        *arrays, _ = episodes(offset=1e6)
        feed(layer, *arrays)
        inputs = tf.keras.Input((3,), dtype=tf.float16)
        model = tf.keras.Model(inputs, layer(inputs))
        assert model(tf.ones((1, 3), tf.float16)).dtype == model.output.dtype == tf.float32
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert {tf.as_dtype(v.dtype) for v in layer.variables} == {tf.float64}
    np.testing.assert_allclose(layer.sigma, in_numpy(*arrays).sigma, rtol=1e-12)


def test_errors_are_float32_at_least():
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32):
        scaled = ReturnScaling(2, sigma_v=1e6)(tf.ones((3, 2), dtype))
        assert scaled.dtype == (tf.float64 if dtype == tf.float64 else tf.float32)
        np.testing.assert_allclose(scaled, 1e-6, rtol=1e-6)  # 0 in float16


def test_errors_may_be_numbers_and_lists():
    for errors in (4.0, -3, [4.0, -1.0], (4, -1), [[4.0], [-1.0]], [np.float32(4), 2.0]):
        np.testing.assert_array_equal(ReturnScaling(sigma_v=2.0)(errors), np.array(errors) / 2.0)
    np.testing.assert_array_equal(ReturnScaling(2, sigma_v=2.0)(td_errors=[[4.0, -1.0]]), [[2.0, -0.5]])


class HalfPrecisionLayer(tf.keras.layers.Layer):
    """It casts the variables that are read while it is called, unless they forbid it."""

    def __init__(self):
        super().__init__(dtype="mixed_float16")
        self.scaling = ReturnScaling(3, dtype="mixed_float16")

    def call(self, rewards):
        self.scaling.update_state(rewards, tf.zeros_like(rewards))
        return self.scaling.sigma


def test_statistics_stay_float64_in_a_half_precision_layer():
    rewards = tf.constant(np.random.default_rng(0).normal(1e4, 1.0, (50, 3)), tf.float16)
    sigma = HalfPrecisionLayer()(rewards)
    assert sigma.dtype == tf.float64
    np.testing.assert_allclose(sigma, rewards.numpy().astype(np.float64).std(axis=0), rtol=1e-12)


def test_what_does_not_fit_is_refused():
    layer, ones, agree = ReturnScaling(3), np.ones, "and mask must agree"
    for call, complaint in (
        (lambda: layer.update_state(ones(6), ones(6)), r"rewards must have shape \[..., 3\].*Repeat values"),
        (lambda: layer(tf.ones((6, 1))), r"td_errors must have shape \[..., 3\]"),
        (lambda: layer.update_state(ones((4, 3)), ones((5, 3))), f"rewards and discounts {agree}"),
        (lambda: layer.update_state(*ones((2, 4, 2, 3)), ones((2, 4))), agree),
        (lambda: layer.merge_state(ReturnMoments.empty(2)), "equally many heads merge; got 3 and 2"),
    ):
        with pytest.raises(ValueError, match=complaint):
            call()
    with pytest.raises(tf.errors.InvalidArgumentError):  # one for the batch is none for the heads
        layer(tf.ones((6, 3)), batch_sigma=tf.ones(6))
    with pytest.raises(tf.errors.InvalidArgumentError, match="got nan .* head 0 - mask"):
        ReturnScaling().update_state(np.nan, 0.9)


@pytest.mark.parametrize(
    "heads, rewards, discounts, mask",
    [
        ((), (3,), (1,), (3,)),
        ((2,), (3, 2), (3, 2), (2, 3)),
    ],
)
def test_unknown_numbers_of_steps_are_checked_in_the_graph(heads, rewards, discounts, mask):
    layer = ReturnScaling(*heads)
    arrays = np.ones(rewards + heads), np.ones(discounts + heads), np.ones(mask)
    kinds = [tf.TensorSpec([None] * len(x), tf.float64) for x in (rewards, discounts, mask)]
    kinds[:2] = [tf.TensorSpec([*kind.shape, *heads], tf.float64) for kind in kinds[:2]]
    update = tf.function(layer.update_state, input_signature=kinds)
    with pytest.raises(ValueError, match="must agree in all axes before"):
        layer.update_state(*arrays)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must agree in all axes before"):
        update(*arrays)
    np.testing.assert_array_equal(layer.statistics, np.zeros(layer.statistics.shape))
    update(np.full(rewards + heads, 3.0), np.ones(rewards + heads), np.ones(rewards))
    np.testing.assert_array_equal(layer.moments.count, [np.prod(rewards)] * layer.num_heads)
    compiled = tf.function(layer.update_state, input_signature=kinds, jit_compile=True)
    compiled(np.full(rewards + heads, 3.0), np.ones(rewards + heads), np.ones(rewards))
    np.testing.assert_array_equal(layer.moments.count, [2 * np.prod(rewards)] * layer.num_heads)
    np.testing.assert_array_equal(layer.moments.reward_mean, [3.0] * layer.num_heads)


def test_unknown_columns_do_not_spread_over_heads():
    layer, unknown = ReturnScaling(3), tf.TensorSpec([None, None])
    scale = tf.function(layer, input_signature=[unknown])
    update = tf.function(layer.update_state, input_signature=[unknown, unknown])
    update(np.ones((4, 3)), np.ones((4, 3)))
    assert scale(tf.ones((4, 3))).shape == (4, 3)
    for wrong in (lambda: scale(tf.ones((4, 1))), lambda: update(np.ones((4, 1)), np.ones((4, 1)))):
        with pytest.raises(tf.errors.InvalidArgumentError):
            wrong()
    np.testing.assert_array_equal(layer.moments.count, [4.0] * 3)


def test_an_unknown_number_of_axes_is_refused():
    for heads in (1, 2):
        layer, unknown = ReturnScaling(heads), tf.TensorSpec(None)
        for update in (layer.update_state, lambda *columns, own=layer: own.update_returns(columns[0])):
            with pytest.raises(ValueError, match=r"must have a known number of axes.*tf.TensorSpec"):
                tf.function(update, input_signature=[unknown] * 2, autograph=False).get_concrete_function()


def test_complex_numbers_are_refused():
    layer, steps = ReturnScaling(), np.array([1.0 + 2.0j])
    for name, call in (
        ("rewards", lambda: layer.update_state(steps, np.ones(1))),
        ("rewards", lambda: layer.update_state([1.0 + 2.0j], np.ones(1))),
        ("discounts", lambda: layer.update_state(np.ones(1), tf.constant(steps))),
        ("returns", lambda: layer.update_returns(steps)),
        ("td_errors", lambda: layer(steps)),
        ("rewards", lambda: rbs_tf.batch_sigma(steps[:, None, None], np.ones((1, 1, 1)), np.ones((1, 1)))),
        ("discounts", lambda: rbs_tf.batch_sigma(np.ones((1, 1, 1)), steps[:, None, None], np.ones((1, 1)))),
        ("batch_sigma", lambda: layer(np.ones(1), steps[:1])),
        ("batch_sigma", lambda: rbs_tf.numpy.ReturnScaling()(np.ones(1), steps[:1])),
    ):
        with pytest.raises(ValueError, match=f"{name} must be real numbers; got complex128"):
            call()
    np.testing.assert_array_equal(layer.statistics, np.zeros((8, 1)))


def test_another_backend_of_keras_is_refused(monkeypatch):
    monkeypatch.setattr(tf.keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="TensorFlow backend.*jax.*KERAS_BACKEND=tensorflow"):
        ReturnScaling()


def test_the_packages_names():
    assert rbs_tf.batch_sigma is rbs_tf.tensor_moments.batch_sigma
    assert {getattr(rbs_tf, name).__name__ for name in rbs_tf.__all__} == set(rbs_tf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rbs_tf.nothing


@pytest.mark.parametrize("make", [NumpyScaling, ReturnScaling])
def test_wrong_heads_and_floors(make):
    floors = 0.0, -1.0, np.nan, np.inf, 1e-320, 1e39, "0.1", None, [1.0] * 3, np.eye(2)
    for name, wrong in (("sigma_v", floors), ("num_heads", (0, 2.0, "2", None))):
        for value in wrong:
            with pytest.raises(ValueError, match=name) as refused:
                make(**{"num_heads": 2, name: value})
            assert "\n" not in str(refused.value)
    assert np.all(make(num_heads=np.int64(2), sigma_v=[1, 2]).sigma_v == [1, 2])
