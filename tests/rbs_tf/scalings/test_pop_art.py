"""Pop-Art against the same in NumPy: its statistics, its units from either start, and what happens to outputs."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings.pop_art import OutputUnits, PopArt
from tests.rbs_tf.scalings import preserving
from tests.rbs_tf.scalings.episodes import SHAPE, H, LastLayers, context, normal

STARTS = {"one": PopArt, "first targets": functools.partial(PopArt, start_at_first_targets=True)}
ALL = np.ones(SHAPE[:2])
EVERY_START = pytest.mark.parametrize("start", STARTS)


def batch(mask=ALL):
    return context(mask=np.concatenate([mask, np.ones((2, SHAPE[1]))]))


def update(scaling, targets, layers, mask=ALL):
    targets, mask = tf.constant(targets, tf.float32), tf.constant(mask, tf.float32)
    scaling.after_update(targets, tf.zeros_like(targets), mask, layers, None)


def outputs_of(layers):
    return layers()[: SHAPE[0]]


batches = st.tuples(
    st.floats(-3, 6),  # the size, as an exponent
    st.tuples(st.booleans(), st.booleans()),  # heads without reward
    st.sampled_from(["all", "some", "none"]),  # what is no padding
)


@EVERY_START
@settings(deadline=None, max_examples=20)
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


def test_the_first_units_are_the_first_targets_moments_and_no_weight_is_rewritten():
    scaling, layers = STARTS["first targets"](H), LastLayers()
    outputs = layers().numpy()
    update(scaling, np.zeros(SHAPE), layers)
    np.testing.assert_array_equal(scaling.values(layers()), np.zeros_like(outputs))
    targets = normal(0, 40.0).astype(np.float64)
    update(scaling, targets, layers)
    np.testing.assert_array_equal(layers(), outputs)
    for target in (False, True):
        expected = targets.std(axis=(0, 1)) * outputs + targets.mean(axis=(0, 1))
        np.testing.assert_allclose(scaling.values(layers(), target), expected, rtol=1e-4, atol=1e-4)


@EVERY_START
def test_a_later_outlier_is_divided_by_a_scale_that_knows_it(start):
    scaling = STARTS[start](H) if start == "first targets" else PopArt(H, max_scale=np.inf)
    update(scaling, normal(0), LastLayers())
    targets = np.zeros(SHAPE, np.float32)
    targets[0, 0] = 1e6
    errors = scaling.errors(tf.constant(targets), tf.zeros(SHAPE), batch())
    np.testing.assert_allclose(errors[0, 0], np.sqrt(15 / 0.001), rtol=0.01)


@EVERY_START
def test_targets_end_up_with_mean_0_and_variance_1(start):
    scaling, layers = STARTS[start](H, step_size=0.05), LastLayers()
    for seed in range(400):
        targets = 300.0 + [5.0, 50.0] * np.random.default_rng(seed).normal(size=SHAPE)
        update(scaling, targets, layers)
    np.testing.assert_allclose(scaling.online.shift, 300.0, atol=15.0)
    np.testing.assert_allclose(scaling.online.scale, [5.0, 50.0], rtol=0.25)


def test_the_scale_stays_within_its_bounds():
    for size, bound in ((0.0, 1e-3), (1e6, 1e3)):
        scaling, layers = PopArt(H, step_size=0.5), LastLayers()
        for seed in range(60):
            update(scaling, normal(seed, size), layers)
        np.testing.assert_allclose(scaling.online.scale, bound, rtol=1e-6)


def test_from_the_first_targets_on_the_lower_bound_is_relative_and_there_is_no_upper_one():
    for size in (1.0, 1e-20, 1e20):
        scaling, layers = STARTS["first targets"](H), LastLayers()
        for _ in range(3):
            update(scaling, np.full(SHAPE, -size), layers)
        np.testing.assert_allclose(scaling.online.scale, 1e-3 * size, rtol=1e-6)
    update(scaling, normal(0, 1e25), layers)
    assert (scaling.online.scale.numpy() > 1e22).all()


sizes = st.integers(-3, 6).map(lambda exponent: 10.0**exponent)


@settings(deadline=None, max_examples=25)
@given(first=sizes, second=sizes, factor=st.sampled_from([0.5, 4.0, 1024.0]))
def test_from_1_on_errors_are_homogeneous_of_degree_0_but_for_the_bounds_and_the_first_scale(
    first, second, factor
):
    def errors(multiplier):
        scaling, layers = PopArt(H, min_scale=1e-300, max_scale=np.inf), LastLayers()
        scaling.mean_square.assign(tf.fill([H], np.float64(multiplier**2)))
        for units in (scaling.online, scaling.target):
            units.scale.assign(tf.fill([H], np.float64(multiplier)))
        for seed, size in enumerate((first, second)):
            update(scaling, multiplier * normal(seed, size), layers)
        targets = tf.constant(np.float32(multiplier) * normal(3, second))
        return scaling.errors(targets, outputs_of(layers), batch()).numpy()

    np.testing.assert_array_equal(errors(factor), errors(1.0))


def test_the_first_scale_breaks_the_homogeneity():
    outcomes = []
    for factor in (1.0, 1024.0):
        scaling, layers = PopArt(H, min_scale=1e-300, max_scale=np.inf), LastLayers()
        update(scaling, factor * normal(0), layers)
        outcomes.append(scaling.errors(factor * normal(0), outputs_of(layers), batch()))
    assert np.abs(outcomes[1] / outcomes[0]).max() > 2


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(sizes, st.floats(-1.0, 1.0)), min_size=1, max_size=30))
def test_values_survive_any_sequence_of_units(changes):
    """To float32 of the largest number that had to be stored on the way."""
    units, layers = OutputUnits(H), LastLayers()
    old, largest = units.values(layers()).numpy(), 10.0
    for scale, shift in changes:
        units.rewrite(layers, tf.fill([H], np.float64(scale)), tf.fill([H], np.float64(shift * scale)))
        largest = max(largest, scale)
        assert np.abs(units.values(layers()) - old).max() <= 2e-6 * largest


def test_small_changes_of_units_add_up():
    """A ratio of 1 + 1e-9 is 1 in float32; a million of them are not."""
    units, layers = OutputUnits(H), LastLayers()
    old = units.values(layers()).numpy()
    for step in np.linspace(0.0, 1e-3, 2001):
        units.rewrite(layers, tf.fill([H], tf.cast(1.0 + step, tf.float64)), tf.zeros(H, tf.float64))
    np.testing.assert_allclose(units.scale, 1.001, atol=1e-4)
    np.testing.assert_allclose(units.values(layers()), old, atol=2e-6)


def test_moments_far_from_zero_do_not_cancel():
    scaling, layers = PopArt(H, step_size=0.05), LastLayers()
    for seed in range(800):
        update(scaling, 1e5 + np.random.default_rng(seed).normal(size=SHAPE), layers)
    np.testing.assert_allclose(scaling.online.scale, 1.0, rtol=0.3)


def test_a_head_without_rewards_for_ever_stays_finite_and_so_does_one_whose_rewards_end():
    scaling, layers = STARTS["first targets"](H, step_size=0.5), LastLayers()
    update(scaling, normal(0) * [0.0, 1.0], layers)
    for _ in range(60):
        update(scaling, np.zeros(SHAPE), layers)
    assert np.isfinite(scaling.errors(tf.zeros(SHAPE), outputs_of(layers), batch())).all()
    np.testing.assert_array_equal(scaling.online.scale[0], 0.0)
    np.testing.assert_allclose(scaling.online.scale[1], 1e-3 * scaling.first[1])


@EVERY_START
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_enters_the_moments_of_its_head(value, known, start):
    scaling, layers = STARTS[start](H), LastLayers()
    if known:
        update(scaling, normal(0), layers)
    before = [variable.numpy() for variable in scaling.variables]
    targets = normal(1)
    targets[2, 1, 0] = value
    update(scaling, targets, layers)
    for variable, old in zip(scaling.variables, before, strict=True):
        assert variable[0].numpy() == old[0] and np.isfinite(variable).all(), variable.name
    assert any(variable[1] != old[1] for variable, old in zip(scaling.variables, before, strict=True))


@pytest.mark.parametrize(
    "options",
    [{"step_size": 0.0}, {"step_size": 2.0}, {"min_scale": 0.0}, {"min_scale": 2.0}, {"max_scale": 0.5}],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="The paper's"):
        PopArt(H, **options)


def test_checkpoints_hold_what_is_used():
    assert {kind: len(build(H).variables) for kind, build in STARTS.items()} == {"one": 6, "first targets": 7}
