"""Pop-Art without an agent: its statistics, its units, and what happens to outputs."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings import ErrorContext
from rbs_tf.scalings.pop_art import OutputUnits, PopArt

H = 2
INPUTS = np.random.default_rng(0).normal(size=(50, 4))


class LastLayers:
    """V's and A's last layers at once, as far as scalings care: float32 outputs that take a ratio and a shift."""

    def __init__(self):
        self.weights = tf.Variable(np.random.default_rng(1).normal(size=(4, H)), dtype=tf.float32)
        self.bias = tf.Variable(np.random.default_rng(2).normal(size=H), dtype=tf.float32)

    def __call__(self):
        return tf.constant(INPUTS, tf.float32) @ self.weights + self.bias

    def rescale_outputs(self, ratio, shift):
        ratio, shift = tf.cast(ratio, tf.float32), tf.cast(shift, tf.float32)
        self.weights.assign(self.weights * ratio)
        self.bias.assign(self.bias * ratio + shift)


def batch(targets):
    """Targets [T, B, H] with the mask that counts all of them."""
    targets = tf.constant(targets, tf.float32)
    return targets, tf.ones(targets.shape[:2])


def context(mask):
    nothing = tf.zeros((*mask.shape, H))
    return ErrorContext(nothing, nothing, mask, nothing, nothing)


def update(scaling, targets, layers, mask=None):
    targets, everything = batch(targets)
    mask = everything if mask is None else tf.constant(mask, tf.float32)
    scaling.after_update(targets, tf.zeros_like(targets), mask, layers, None)


def outputs_of(layers):
    """[5, 3, H]"""
    return tf.reshape(layers()[:15], (5, 3, H))


def some_targets(seed=0, size=1.0):
    return size * np.random.default_rng(seed).normal(size=(5, 3, H))


def test_moments_take_one_step_towards_the_means_over_unmasked_targets():
    scaling, targets, mask = PopArt(H), some_targets(size=10.0).astype(np.float32), np.ones((5, 3))
    mask[3:, 1] = 0
    targets[3:, 1] = 1e9
    update(scaling, targets, LastLayers(), mask)
    counted = targets[mask.astype(bool)].astype(np.float64)
    np.testing.assert_allclose(scaling.mean, 0.001 * counted.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        scaling.mean_square, 0.999 + 0.001 * np.square(counted).mean(axis=0), rtol=1e-12
    )


def test_a_batch_of_padding_changes_nothing():
    scaling, layers = PopArt(H), LastLayers()
    update(scaling, some_targets(size=100.0), layers)
    before = [variable.numpy() for variable in scaling.variables]
    update(scaling, some_targets(), layers, np.zeros((5, 3)))
    for variable, old in zip(scaling.variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)


def test_targets_end_up_with_mean_0_and_variance_1():
    scaling, layers = PopArt(H, step_size=0.05), LastLayers()
    for seed in range(400):
        update(scaling, 300.0 + some_targets(seed, [5.0, 50.0]), layers)
    np.testing.assert_allclose(scaling.online.shift, 300.0, atol=15.0)
    np.testing.assert_allclose(scaling.online.scale, [5.0, 50.0], rtol=0.25)


def test_the_scale_stays_within_its_bounds():
    for size, bound in ((0.0, 1e-3), (1e6, 1e3)):
        scaling, layers = PopArt(H, step_size=0.5), LastLayers()
        for seed in range(60):
            update(scaling, some_targets(seed, size), layers)
        np.testing.assert_allclose(scaling.online.scale, bound, rtol=1e-6)


def test_the_first_outlier_is_divided_by_a_scale_that_knows_it():
    scaling = PopArt(H, max_scale=np.inf)
    targets = np.zeros((5, 3, H))
    targets[0, 0] = 1e6
    targets, mask = batch(targets)
    errors = scaling.errors(targets, tf.zeros_like(targets), context(mask))
    np.testing.assert_allclose(errors[0, 0], np.sqrt(15 / 0.001), rtol=0.01)
    np.testing.assert_array_equal(scaling.online.scale, np.ones(H))


def test_errors_are_differences_in_normalised_units():
    scaling = PopArt(H, step_size=1.0)
    targets, mask = batch(5.0 + some_targets(size=3.0))
    outputs = tf.zeros_like(targets)
    expected = targets / tf.math.reduce_std(targets, axis=(0, 1))
    np.testing.assert_allclose(scaling.errors(targets, outputs, context(mask)), expected, rtol=1e-5)


def test_the_target_network_keeps_the_units_it_was_copied_with():
    scaling, layers = PopArt(H, step_size=0.5), LastLayers()
    update(scaling, 7.0 + some_targets(), layers)
    outputs = layers()
    old = scaling.values(outputs).numpy()
    scaling.target_updated()
    update(scaling, some_targets(size=80.0), layers)
    np.testing.assert_array_equal(scaling.values(outputs, target=True), old)
    np.testing.assert_allclose(scaling.values(layers()), old, atol=1e-3)


sizes = st.integers(-3, 6).map(lambda exponent: 10.0**exponent)


@settings(deadline=None, max_examples=25)
@given(first=sizes, second=sizes, factor=st.sampled_from([0.5, 4.0, 1024.0]))
def test_without_bounds_errors_are_homogeneous_of_degree_0_but_for_the_first_scale(first, second, factor):
    def errors(multiplier):
        scaling, layers = PopArt(H, min_scale=1e-300, max_scale=np.inf), LastLayers()
        scaling.mean_square.assign(tf.fill([H], np.float64(multiplier**2)))
        for units in (scaling.online, scaling.target):
            units.scale.assign(tf.fill([H], np.float64(multiplier)))
        for seed, size in enumerate((first, second)):
            update(scaling, multiplier * some_targets(seed, size), layers)
        targets, mask = batch(multiplier * some_targets(3, second))
        return scaling.errors(targets, outputs_of(layers), context(mask)).numpy()

    np.testing.assert_array_equal(errors(factor), errors(1.0))


def test_bounds_and_the_first_scale_break_the_homogeneity():
    outcomes = []
    for multiplier in (1.0, 1024.0):
        targets, mask = batch(multiplier * some_targets())
        outcomes.append(PopArt(H).errors(targets, tf.zeros_like(targets), context(mask)))
    assert np.abs(outcomes[1] / outcomes[0]).min() > 10


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


def test_moments_are_float64_and_far_from_zero_do_not_cancel():
    scaling, layers = PopArt(H, step_size=0.05), LastLayers()
    for seed in range(800):
        update(scaling, 1e5 + some_targets(seed), layers)
    assert {variable.dtype for variable in scaling.variables} == {tf.float64}
    np.testing.assert_allclose(scaling.online.scale, 1.0, rtol=0.3)


@pytest.mark.parametrize(
    "options", [{"step_size": 0.0}, {"step_size": 2.0}, {"min_scale": 0.0}, {"max_scale": 0.5}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="The paper's"):
        PopArt(H, **options)


def test_xla_computes_the_same():
    found = []
    for jit_compile in (False, True):
        scaling, layers = PopArt(H), LastLayers()
        errors = tf.function(scaling.errors, jit_compile=jit_compile)
        after_update = tf.function(scaling.after_update, jit_compile=jit_compile)
        for seed in range(5):
            targets, mask = batch(some_targets(seed, 1e3))
            scaled = errors(targets, outputs_of(layers), context(mask))
            after_update(targets, targets, mask, layers, None)
        found.append((scaled, scaling.online.scale, scaling.values(layers())))
    for compiled, plain in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-5)


def test_a_checkpoint_resumes_moments_and_units(tmp_path):
    scaling, layers = PopArt(H), LastLayers()
    for seed in range(3):
        update(scaling, some_targets(seed, 1e3), layers)
        if seed == 1:
            scaling.target_updated()
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = PopArt(H)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    assert len(scaling.variables) == 6
    for a, b in zip(scaling.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(b, a)


def test_summaries_show_the_units_of_each_head():
    summaries = PopArt(H).summaries()
    assert {name: value.shape for name, value in summaries.items()} == {"scale": (H,), "shift": (H,)}
