"""Pop-Art against the same in NumPy: its statistics, its units from either start, and what happens to outputs."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings.pop_art import OutputUnits, PopArt
from tests.rbs_tf.scalings import preserving
from tests.rbs_tf.scalings.episodes import SHAPE, H, LastLayers, context, normal, numbers

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


batches = st.tuples(
    st.floats(-3, 6),  # the size, as an exponent
    st.tuples(st.booleans(), st.booleans()),  # heads without reward
    st.sampled_from(["all", "some", "none"]),  # what is no padding
)


@EVERY_START
@settings(deadline=None, max_examples=6)
@given(st.lists(batches, min_size=1, max_size=6), st.integers(0, 5), st.sampled_from([0.001, 0.1, 1.0]))
def test_it_is_numpys(start, described, replaced, step_size):
    scaling, layers = STARTS[start](H, step_size=step_size), LastLayers()
    reference = preserving.PopArt(step_size, start_at_first_targets=start == "first targets")
    for index, (exponent, zero, kept) in enumerate(described):
        targets, mask = np.where(zero, np.float32(0), normal(index, 10.0**exponent)), ALL.copy()
        mask[{"all": 5, "some": 2, "none": 0}[kept] :] = 0
        targets[mask == 0] = 1e9
        outputs = outputs_of(layers)
        found = scaling.errors(tf.constant(targets), outputs, batch(mask)).numpy()
        expected = reference.errors(targets, outputs.numpy().astype(np.float64), mask)
        *_, scale = reference.after(targets, mask)
        off = np.abs(found - expected) * scale - 1e-3 * np.abs(targets)
        assert (off <= 1e-3 * np.maximum(reference.largest, scale * np.abs(outputs).max()))[mask == 1].all()
        update(scaling, targets, layers, mask)
        reference.update(targets, mask)
        if index == replaced:
            scaling.target_updated()
            reference.replace_target()
        for name in ("mean", "mean_square", "first"):
            np.testing.assert_allclose(
                getattr(scaling, name), getattr(reference, name), rtol=1e-9, atol=1e-30
            )
        reference.assert_same(scaling, layers)


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
