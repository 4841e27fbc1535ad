"""Outputs in units of the return: the unit, and last layers that are rewritten when it changes."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import rbs_tf
from rbs_tf import ReturnMoments, ReturnScaling, Scale, UnitDense, rescaling

TIMES = 1024.0  # a power of two: multiplying by it rounds nothing
UNITS = st.floats(1e-9, 1e9)


def test_the_unit_is_the_larger_root_mean_square_of_returns_and_rewards():
    rewards, discounts = np.random.default_rng(0).normal(3.0, 2.0, (2, 40, 3))
    discounts = np.clip(discounts, 0.0, [0.0, 0.5, 0.99])
    episode = ReturnMoments.from_episode(rewards, discounts)
    returns = rbs_tf.discounted_returns(rewards, discounts)
    expected = np.sqrt(np.maximum(np.square(returns).mean(axis=0), np.square(rewards).mean(axis=0)))
    scale, layer = Scale(3), ReturnScaling(3)
    for each in (scale, layer):
        np.testing.assert_array_equal(each.unit, np.zeros(3))
        each.merge_state(episode)
        np.testing.assert_allclose(each.unit, expected, rtol=1e-14)
    assert ReturnMoments.from_steps([3.0, -4.0], [0.9, 0.9]).unit == pytest.approx([12.5**0.5])


@given(st.lists(UNITS, min_size=2, max_size=20))
@settings(deadline=None)
def test_through_any_units_no_value_changes_but_by_rounding(units):
    weight, unit = np.float32(0.7), np.float64(units[0])
    value = weight * unit
    for new in units[1:]:
        ratio, (after,) = rescaling(unit, new)
        weight, unit = weight * ratio[0], after
        assert unit == pytest.approx(new, rel=2e-4)
    assert weight * unit == pytest.approx(value, rel=1e-6 * len(units))


def test_first_units_are_taken_over_empty_ones_change_nothing_and_small_changes_wait():
    ratio, unit = rescaling([0.0, 2.0, 2.0, 2.0, 0.0], [3.0, 0.0, 2.0001, 4.0, 0.0])
    assert ratio.dtype == np.float32 and unit.dtype == np.float64
    np.testing.assert_array_equal(ratio, [1.0, 1.0, 1.0, 0.5, 1.0])
    np.testing.assert_array_equal(unit, [3.0, 2.0, 2.0, 4.0, 0.0])
    (ratio,), (unit,) = rescaling(1.0, 3.0)
    assert ratio == np.float32(1 / 3) and unit == 1.0 / np.float64(ratio), "what the rounded ratio reaches"


@pytest.mark.parametrize("old, new", [(1.0, -1.0), (np.nan, 1.0), (1.0, np.inf), ([1.0, 1.0], 1.0)])
def test_units_that_are_none_are_refused(old, new):
    with pytest.raises(ValueError, match="units must be finite numbers of at least 0"):
        rescaling(old, new)


def test_the_floor_in_units_is_of_the_rewards_unit_and_nothing_is_divided_by_zero():
    def scaled(times, make, **feed):
        scale = make(2, floor_in_units=True)
        errors = np.float32([[0.5, 0.0], [1.5, 0.0]])
        first = np.array(scale(times * errors))
        # The second head's rewards never vary, and it sees no end.
        steps = ReturnMoments.from_steps(times * np.array([[0.0, 1.0], [2.0, 1.0]]), np.full((2, 2), 0.9))
        scale.merge_state(steps)
        return first, np.array(scale(times * (errors + 1.0)))

    for make in (Scale, ReturnScaling):
        first, later = scaled(1.0, make)
        np.testing.assert_allclose(first, np.float32([[0.5, 0.0], [1.5, 0.0]]) / [1.25**0.5, 1.0], rtol=1e-6)
        np.testing.assert_allclose(later, [[1.5, 100.0], [2.5, 100.0]], rtol=1e-6)
        for plain, larger in zip((first, later), scaled(TIMES, make), strict=True):
            np.testing.assert_array_equal(plain, larger)
    assert Scale(floor_in_units=True)() == [1.0]


def built(units=4, heads=2, **settings):
    layer = UnitDense(units, heads, **settings)
    layer.build((None, 3))
    layer.bias.assign(tf.random.normal([units]))
    return layer


@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["eager", "graph"])
def test_a_layers_values_are_in_its_unit_and_survive_its_changes(mode):
    layer, inputs = built(), tf.random.normal([5, 3])
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
    without_bias = UnitDense(4, 2, use_bias=False)
    without_bias.build((None, 3))
    without_bias.to_unit([1.0, 1.0])


def test_a_layer_is_saved_with_its_unit_and_keeps_float64_and_float32_under_half_precision(tmp_path):
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


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(units=3, heads=2), "as many for each"),
        (dict(units=3, heads=0), "as many for each"),
        (dict(units=3, activation="relu"), "without an activation"),
    ],
)
def test_layers_that_cannot_hold_values_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        UnitDense(**arguments)
    with pytest.raises(ValueError, match="no weights yet"):
        UnitDense(3).to_unit([1.0])


@pytest.mark.parametrize("make", [Scale, ReturnScaling])
def test_before_the_first_step_no_factor_is_named_that_units_would_undo(make, caplog):
    for in_units in (False, True):
        make(floor_in_units=in_units)(np.ones(2, np.float32))
    plain, of_units = [record.getMessage() for record in caplog.records]
    assert "multiplies errors by up to 100" in plain
    assert "has not seen any step yet. Call" in of_units
