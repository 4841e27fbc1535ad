"""Pop-Art against the same in NumPy: its statistics, its units from either start, and what happens to outputs."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.scalings.pop_art import OutputUnits, PopArt
from tests.agents.scalings.episodes import SHAPE, H, LastLayers, context, normal, numbers

STARTS = {"one": PopArt, "first targets": functools.partial(PopArt, start_at_first_targets=True)}
ALL = np.ones(SHAPE[:2])
EVERY_START = pytest.mark.parametrize("start", STARTS)


def batch(mask=ALL):
    return context(mask=np.concatenate([mask, np.ones((2, SHAPE[1]))]))


def update(scaling, targets, layers, mask=ALL):
    targets, mask = tf.constant(targets, tf.float32), tf.constant(mask, tf.float32)
    scaling.after_update(targets, tf.zeros_like(targets), mask, layers)


def outputs_of(layers):
    return layers()[: SHAPE[0]]


def after(mean, square, first, targets, mask, step_size, most):
    """Mean, mean square, first and scale once a batch has been seen, [H] each."""
    counted = targets.astype(np.float64)[mask == 1]
    if len(counted):
        step = np.where(first > 0, step_size, 1.0)
        mean = mean + step * (counted.mean(axis=0) - mean)
        square = square + step * (np.square(counted).mean(axis=0) - square)
    first = np.where(first > 0, first, np.sqrt(square))
    return mean, square, first, np.clip(np.sqrt(np.maximum(square - mean**2, 0.0)), 1e-3 * first, most)


@EVERY_START
@pytest.mark.parametrize("step_size", [0.001, 0.1, 1.0])
def test_moments_units_and_errors(start, step_size):
    """Of targets of any size, heads without any, and padding; the target network is replaced after the second batch."""
    scaling, layers = STARTS[start](H, step_size=step_size), LastLayers()
    most, begin = (1e3, np.ones(H)) if start == "one" else (np.inf, np.zeros(H))
    mean, square, first, largest = np.zeros(H), begin, begin, 1e-3
    for index, (size, zero, rows) in enumerate(
        [(1, (1, 1), 5), (1e-2, (1, 0), 2), (3, (0, 0), 0), (1e4, (0, 0), 5)]
    ):
        targets, mask = np.where(zero, np.float32(0), normal(index, size)), ALL.copy()
        mask[rows:] = 0
        targets[mask == 0] = 1e9
        known, largest = scaling.online.scale.numpy() > 0, max(largest, size)
        outputs, old_values = outputs_of(layers).numpy(), scaling.values(outputs_of(layers)).numpy()
        mean, square, first, scale = after(mean, square, first, targets, mask, step_size, most)
        divisor = np.where(scale > 0, scale, 1.0)
        values = np.where(known, old_values, divisor * outputs + mean)
        errors = scaling.errors(tf.constant(targets), tf.constant(outputs), batch(mask)).numpy()
        off = np.abs(errors * divisor - (targets - values))[mask == 1]
        assert (off <= 2e-3 * (np.abs(targets) + np.abs(values) + mean)[mask == 1] + 1e-6 * largest).all()
        update(scaling, targets, layers, mask)
        for found, expected in ((scaling.mean, mean), (scaling.mean_square, square), (scaling.first, first)):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-30)
        online, target = scaling.online, scaling.target
        np.testing.assert_allclose(online.scale, scale, rtol=1.1e-4)
        assert (np.abs(online.shift - mean) <= 1.1e-4 * scale + 2e-7 * largest).all()
        new_values = scaling.values(outputs_of(layers)).numpy()
        np.testing.assert_allclose(
            new_values, np.where(known, old_values, values * (scale > 0)), atol=1e-4 * largest
        )
        if index == 1:
            scaling.target_updated()
            copied = online.scale.numpy()
    np.testing.assert_array_equal(
        target.scale, np.where(copied > 0, copied, online.scale), "or both take the first"
    )


sizes = st.integers(-3, 6).map(lambda exponent: 10.0**exponent)


@settings(deadline=None, max_examples=5)
@given(st.lists(st.tuples(sizes, st.floats(-1.0, 1.0)), min_size=1, max_size=10))
def test_values_survive_any_units(changes):
    """To float32 of the largest number that had to be stored on the way."""
    units, layers = OutputUnits(H), LastLayers()
    old, largest = units.values(layers()).numpy(), 10.0
    for scale, shift in changes:
        units.rewrite(layers, tf.fill([H], np.float64(scale)), tf.fill([H], np.float64(shift * scale)))
        largest = max(largest, scale)
        assert np.abs(units.values(layers()) - old).max() <= 2e-6 * largest


@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_heads_without_rewards_stay_finite(size):
    """From the first targets on the lower bound is relative to them."""
    scaling, layers = STARTS["first targets"](H, step_size=0.5), LastLayers()
    update(scaling, size * normal(0) * [0.0, 1.0], layers)
    for _ in range(30):
        update(scaling, np.zeros(SHAPE), layers)
    assert np.isfinite(scaling.errors(tf.zeros(SHAPE), outputs_of(layers), batch())).all()
    np.testing.assert_array_equal(scaling.online.scale[0], 0.0)
    np.testing.assert_allclose(scaling.online.scale[1], 1e-3 * scaling.first[1])


@EVERY_START
@pytest.mark.parametrize(("known", "value"), [(False, np.nan), (True, np.inf)])
def test_what_is_not_finite_never_enters(start, known, value):
    scaling, layers = STARTS[start](H), LastLayers()
    if known:
        update(scaling, normal(0), layers)
    before = numbers(scaling)
    targets = normal(1)
    targets[2, 1, 0] = value
    update(scaling, targets, layers)
    for variable, old in zip(scaling.variables, before, strict=True):
        assert variable[0].numpy() == old[0] and np.isfinite(variable).all(), variable.name
    assert any(variable[1] != old[1] for variable, old in zip(scaling.variables, before, strict=True))
