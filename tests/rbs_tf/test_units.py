"""Outputs in units of the return: the unit, and last layers that are rewritten when it changes."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import UnitDense, unit_ratio
from tests.elsewhere.vectors import changing_units

UNITS = st.floats(1e-9, 1e9)


@given(st.lists(UNITS, min_size=2, max_size=20))
@settings(deadline=None, max_examples=30)
def test_no_value_changes(units):
    weight, unit = np.float32(0.7), np.float64(units[0])
    value = weight * unit
    for new in units[1:]:
        ratio, (after,) = unit_ratio(unit, new)
        weight, unit = weight * ratio[0], after
        assert unit == pytest.approx(new, rel=2e-4)
    assert weight * unit == pytest.approx(value, rel=1e-6 * len(units))


def test_first_empty_and_small_changes():
    ratio, unit = unit_ratio([0.0, 2.0, 2.0, 2.0, 0.0], [3.0, 0.0, 2.0001, 4.0, 0.0])
    assert ratio.dtype == np.float32 and unit.dtype == np.float64
    np.testing.assert_array_equal(ratio, [1.0, 1.0, 1.0, 0.5, 1.0])
    np.testing.assert_array_equal(unit, [3.0, 2.0, 2.0, 4.0, 0.0])
    (ratio,), (unit,) = unit_ratio(1.0, 3.0)
    assert ratio == np.float32(1 / 3) and unit == 1.0 / np.float64(ratio), "what the rounded ratio reaches"


def test_changes_that_no_weight_could_follow():
    """Float32 does not hold their ratios, or what weights times these would be."""
    ratio, unit = unit_ratio([1e-30, 1e30, 1e-200, 1.0], [1e30, 1e-30, 1e100, 1e29])
    np.testing.assert_array_equal(ratio, np.float32([1.0, 1.0, 1.0, 1e-29]))
    np.testing.assert_allclose(unit, [1e-30, 1e30, 1e-200, 1e29], rtol=1e-6)
    for dtype in ("float32", "bfloat16"):
        layer = UnitDense(1, dtype=dtype)
        layer.build((None, 3))
        layer.to_unit([2.0])
        kernel = layer.kernel.numpy()
        layer.to_unit([1e35])
        np.testing.assert_array_equal(layer.kernel.numpy(), kernel)
        assert layer.unit.numpy() == 2.0


@pytest.mark.parametrize("old, new", [(1.0, -1.0), (np.nan, 1.0), (1.0, np.inf), ([1.0, 1.0], 1.0)])
def test_wrong_units(old, new):
    with pytest.raises(ValueError, match="units must be finite numbers of at least 0"):
        unit_ratio(old, new)


def built(**settings):
    layer = UnitDense(4, 2, **settings)
    layer.build((None, 3))
    return layer


@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["eager", "graph"])
def test_a_layers_values(mode):
    layer, inputs = built(), tf.random.normal([5, 3])
    layer.bias.assign(tf.random.normal([4]))
    plain = inputs @ layer.kernel + layer.bias
    to_unit = mode(layer.to_unit)
    np.testing.assert_array_equal(layer(inputs), np.zeros((5, 4)))
    to_unit(tf.constant([2.0, 0.0], tf.float64))
    expected = plain * [2.0, 2.0, 0.0, 0.0]
    np.testing.assert_allclose(layer(inputs), expected, rtol=1e-6)
    for unit in ([1e3, 0.0], [0.0, 0.0], [7e-4, 0.0]):
        to_unit(tf.constant(unit, tf.float64))
        np.testing.assert_allclose(layer(inputs), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.unit, [7e-4, 0.0], rtol=1e-6)
    assert layer.unit.dtype == tf.float64 and len(layer.trainable_variables) == 2
    built(use_bias=False).to_unit([1.0, 1.0])


@pytest.mark.parametrize("dtype, moves", [("float32", 1e-5), ("bfloat16", 0.0)])
def test_no_value_moves_over_ten_thousand_changes(dtype, moves):
    layer, units = UnitDense(6, heads=3, dtype=dtype), changing_units()
    layer.build((None, 5))
    # Its own initialiser may draw 0 in bfloat16.
    layer.kernel.assign(np.random.default_rng(0).normal(size=(5, 6)))
    layer.bias.assign(np.arange(1.0, 7.0))
    layer.to_unit(np.ones(3))

    def values():
        weights = tf.concat([layer.kernel, layer.bias[None]], axis=0)
        return tf.cast(weights, tf.float64) * np.repeat(layer.unit, 2)

    @tf.function
    def to_each(units):
        for unit in units:
            layer.to_unit(unit)

    before = values()
    to_each(tf.constant(units))
    assert np.abs(values() / before - 1.0).max() <= moves
    reached = layer.unit / units[-1]
    assert np.abs(reached - 1.0).max() <= (0.5 if dtype == "bfloat16" else 2e-4)


def test_units_that_no_layer_can_be_in():
    layer = built()
    layer.to_unit([2.0, 0.0])
    for unit in ([np.nan, 1.0], [1.0, np.inf], [-1.0, 1.0]):
        for to_unit in (layer.to_unit, tf.function(layer.to_unit)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="finite numbers of at least 0; got"):
                to_unit(tf.constant(unit, tf.float64))
    tf.function(layer.to_unit, jit_compile=True)(tf.constant([np.inf, np.nan], tf.float64))  # left out
    np.testing.assert_array_equal(layer.unit, [2.0, 0.0])
    for unit in (np.ones(2, complex), tf.ones(2, tf.complex64)):
        with pytest.raises(ValueError, match="unit must be real numbers; got complex"):
            layer.to_unit(unit)
    with pytest.raises(ValueError, match="cannot have weights of float16.*float32.*bfloat16"):
        built(dtype="float16").to_unit([1.0, 1.0])


def test_saving_and_half_precision(tmp_path):
    half = "mixed_float16"
    layer = built(
        dtype=tf.keras.mixed_precision.Policy(half) if hasattr(tf.keras, "mixed_precision") else half
    )
    layer.to_unit([1e6, 2.0])
    values = layer(tf.ones([1, 3]))
    assert values.dtype == tf.float32 and np.abs(values).max() > 65504.0 and layer.unit.dtype == tf.float64
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), UnitDense(4, 2)])
    model.layers[-1].to_unit([0.1, 3.0])
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(tf.ones([2, 3])), model(tf.ones([2, 3])))
    np.testing.assert_array_equal(loaded.layers[-1].unit, [0.1, 3.0])


def test_wrong_layers():
    for arguments, words in (
        ({"units": 3, "heads": 2}, "as many for each"),
        ({"units": 3, "heads": 0}, "as many for each"),
        ({"units": 3, "activation": "relu"}, "without an activation"),
    ):
        with pytest.raises(ValueError, match=words):
            UnitDense(**arguments)
    with pytest.raises(ValueError, match="no weights yet"):
        UnitDense(3).to_unit([1.0])


def test_layers_of_bfloat16_reach_one_unit_whatever_theirs_was():
    layers = [UnitDense(2, dtype="bfloat16") for _ in range(2)]
    for layer in layers:
        layer.build((None, 3))
    layers[0].to_unit([3.0])
    for layer in layers:
        layer.to_unit([7.0])
    assert [layer.unit.numpy().tolist() for layer in layers] == [[8.0]] * 2
    layers[0].unit.assign([3.0])  # as loaded from a layer of float32: a power of two times that one
    layers[0].to_unit([7.0])
    assert layers[0].unit.numpy() == 6.0
