"""Pop-Art whose first units are taken over, against the same in NumPy float64 with weights of its own."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings import PopArt, PopArtFirst
from tests.rbs_tf.scalings.test_pop_art import INPUTS, H, LastLayers, batch, context, outputs_of, update

STEP, MIN = 0.001, 0.001


class NumPy:
    """What the docstring says, step by step, on a linear layer in float64."""

    def __init__(self):
        layers = LastLayers()
        self.weights, self.bias = (x.numpy().astype(np.float64) for x in (layers.weights, layers.bias))
        self.mean, self.mean_square, self.first = np.zeros((3, H))
        self.scale, self.shift = np.zeros((2, H))
        self.target_scale, self.target_shift = np.zeros((2, H))

    def after(self, targets, mask):
        """Mean, mean square, first and scale with the batch."""
        counted = targets.astype(np.float64)[np.asarray(mask, bool)]
        moments = []
        for head in range(H):
            mean, mean_square, first = self.mean[head], self.mean_square[head], self.first[head]
            if len(counted):
                x = counted[:, head]
                step = STEP if first > 0 else 1.0
                mean += step * (x.mean() - mean)
                mean_square += step * (np.mean(x * x) - mean_square)
            if first == 0:
                first = np.sqrt(mean_square)
            scale = max(np.sqrt(max(mean_square - mean**2, 0.0)), MIN * first)
            moments.append((mean, mean_square, first, scale))
        return np.array(moments).T

    def errors(self, targets, outputs, mask):
        mean, _, _, scale = self.after(targets, mask)
        scale = np.where(scale == 0, 1.0, scale)
        known = self.scale > 0
        values = np.where(known, self.scale, scale) * outputs + np.where(known, self.shift, mean)
        return (targets - values) / scale

    def update(self, targets, mask):
        self.mean, self.mean_square, self.first, scale = self.after(targets, mask)
        for head in range(H):
            if self.scale[head] == 0:
                self.scale[head], self.shift[head] = scale[head], self.mean[head]
                self.target_scale[head], self.target_shift[head] = scale[head], self.mean[head]
            elif scale[head] > 0:
                ratio = self.scale[head] / scale[head]
                self.weights[:, head] *= ratio
                self.bias[head] = ratio * self.bias[head] + (self.shift[head] - self.mean[head]) / scale[head]
                self.scale[head], self.shift[head] = scale[head], self.mean[head]

    def outputs(self):
        return INPUTS @ self.weights + self.bias


def some_targets(seed, size=1.0, zero=(False, False)):
    """Of a mean, and for heads of `zero` all 0."""
    targets = np.random.default_rng(seed).normal(0.3, 1.0, size=(5, 3, H))
    return (size * np.where(zero, 0.0, targets)).astype(np.float32)


batches = st.tuples(
    st.floats(-3, 3),  # the size, as an exponent
    st.tuples(st.booleans(), st.booleans()),  # heads without reward
    st.sampled_from(["all", "some", "none"]),  # what is no padding
)


@settings(deadline=None, max_examples=20)
@given(st.lists(batches, min_size=1, max_size=6), st.integers(0, 5))
def test_it_is_numpys(described, replaced):
    follow_numpy(described, replaced, jit_compile=None)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_it_is_numpys_when_it_is_compiled(jit_compile):
    neither, one, both = (True, True), (True, False), (False, False)
    described = [
        (0.0, neither, "all"),
        (2.0, one, "some"),
        (0.0, both, "none"),
        (-1.0, both, "all"),
        (3.0, both, "some"),
    ]
    follow_numpy(described, 3, jit_compile)


def follow_numpy(described, replaced, jit_compile):
    scaling, layers, reference = PopArtFirst(H), LastLayers(), NumPy()

    def compiled(function):
        return function if jit_compile is None else tf.function(function, jit_compile=jit_compile)

    errors, after_update = compiled(scaling.errors), compiled(scaling.after_update)
    for index, (exponent, zero, kept) in enumerate(described):
        targets, mask = some_targets(index, 10.0**exponent, zero), np.ones((5, 3))
        if kept != "all":
            mask[2:] = 0
        if kept == "none":
            mask[:] = 0
        outputs = outputs_of(layers)
        found = errors(tf.constant(targets), outputs, context(tf.constant(mask, tf.float32))).numpy()
        expected = reference.errors(targets, outputs.numpy().astype(np.float64), mask)
        # Units trail by up to 1e-4, and float32 holds 1e-7 of the larger of two numbers whose difference counts.
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(outputs).max()))
        after_update(
            tf.constant(targets), tf.zeros_like(targets), tf.constant(mask, tf.float32), layers, None
        )
        reference.update(targets, mask)
        if index == replaced:
            scaling.target_updated()
            reference.target_scale, reference.target_shift = reference.scale.copy(), reference.shift.copy()
        for name in ("mean", "mean_square", "first"):
            np.testing.assert_allclose(
                getattr(scaling, name), getattr(reference, name), rtol=1e-9, atol=1e-30
            )
        largest = np.maximum(np.abs(reference.shift), reference.scale) + 1e-30
        for units, scale, shift in (
            (scaling.online, reference.scale, reference.shift),
            (scaling.target, reference.target_scale, reference.target_shift),
        ):
            np.testing.assert_allclose(units.scale, scale, rtol=1.1e-4)
            assert (np.abs(units.shift - shift) <= 1.1e-4 * np.maximum(scale, 1e-30)).all()
        value = scaling.values(layers()).numpy()
        exact = reference.scale * reference.outputs() + reference.shift
        assert (np.abs(value - exact) <= 1e-4 * (largest + np.abs(exact).max(axis=0))).all()


def test_the_first_units_are_the_first_targets_moments_and_no_weight_is_rewritten():
    scaling, layers = PopArtFirst(H), LastLayers()
    outputs = layers().numpy()
    update(scaling, np.zeros((5, 3, H)), layers)
    np.testing.assert_array_equal(scaling.values(layers()), np.zeros_like(outputs))
    targets = some_targets(0, 40.0).astype(np.float64)
    update(scaling, targets, layers)
    np.testing.assert_array_equal(layers(), outputs)
    for target in (False, True):
        expected = targets.std(axis=(0, 1)) * outputs + targets.mean(axis=(0, 1))
        np.testing.assert_allclose(scaling.values(layers(), target), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(scaling.first, np.sqrt(np.square(targets).mean(axis=(0, 1))), rtol=1e-6)


def test_errors_of_the_first_batch_are_those_in_its_own_units_and_carry_gradients():
    scaling, (targets, mask) = PopArtFirst(H), batch(some_targets(0, 1e4))
    outputs = tf.Variable(outputs_of(LastLayers()))
    with tf.GradientTape() as tape:
        errors = scaling.errors(targets, outputs, context(mask))
        total = tf.reduce_sum(errors)
    normalised = (targets - tf.reduce_mean(targets, axis=(0, 1))) / tf.math.reduce_std(targets, axis=(0, 1))
    np.testing.assert_allclose(errors, normalised - outputs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(tape.gradient(total, outputs), np.full(outputs.shape, -1.0), rtol=1e-5)


@settings(deadline=None, max_examples=15)
@given(
    exponent=st.integers(-60, 60),
    described=st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=1, max_size=8),
)
def test_rewards_times_a_power_of_two_leave_errors_and_weights_as_they_are_to_the_last_bit(
    exponent, described
):
    found = []
    for factor in (1.0, 2.0**exponent):
        scaling, layers, errors = PopArtFirst(H, step_size=0.1), LastLayers(), []
        for seed, (size, zero) in enumerate(described):
            targets, mask = batch(np.float32(factor) * some_targets(seed, 10.0**size, (zero, False)))
            targets += scaling.values(outputs_of(layers), target=True)  # a bootstrap
            errors.append(scaling.errors(targets, outputs_of(layers), context(mask)).numpy())
            update(scaling, targets, layers)
            if seed == 3:
                scaling.target_updated()
        found.append((errors, layers().numpy()))
    for plain, large in zip(*found, strict=True):
        np.testing.assert_array_equal(large, plain)


def test_pop_art_itself_is_not_invariant_even_without_bounds():
    outcomes = []
    for factor in (1.0, 1024.0):
        targets, mask = batch(factor * some_targets(0))
        scaling, layers = PopArt(H, min_scale=1e-300, max_scale=np.inf), LastLayers()
        update(scaling, targets, layers)
        outcomes.append(scaling.errors(targets, outputs_of(layers), context(mask)))
    assert np.abs(outcomes[1] / outcomes[0]).max() > 2


def test_targets_that_never_vary_are_divided_by_their_size_times_min_scale():
    for size in (1.0, 1e-20, 1e20):
        scaling, layers = PopArtFirst(H), LastLayers()
        for _ in range(3):
            update(scaling, np.full((5, 3, H), -size), layers)
        np.testing.assert_allclose(scaling.online.scale, MIN * size, rtol=1e-6)
        targets, mask = batch(np.full((5, 3, H), -size))
        errors = scaling.errors(targets, outputs_of(layers), context(mask))
        np.testing.assert_allclose(errors, -outputs_of(layers), atol=1e-3)


def test_a_head_without_rewards_for_ever_stays_finite_and_so_does_one_whose_rewards_end():
    scaling, layers = PopArtFirst(H, step_size=0.5), LastLayers()
    update(scaling, some_targets(0, 1.0, (True, False)), layers)
    for _ in range(60):
        update(scaling, np.zeros((5, 3, H)), layers)
    targets, mask = batch(np.zeros((5, 3, H)))
    assert np.isfinite(scaling.errors(targets, outputs_of(layers), context(mask))).all()
    np.testing.assert_array_equal(scaling.online.scale[0], 0.0)
    np.testing.assert_allclose(scaling.online.scale[1], MIN * scaling.first[1])


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_enters_the_moments_of_its_head(value, known):
    scaling, layers = PopArtFirst(H), LastLayers()
    if known:
        update(scaling, some_targets(0), layers)
    before = [variable.numpy() for variable in scaling.variables]
    targets = some_targets(1)
    targets[2, 1, 0] = value
    update(scaling, targets, layers)
    for variable, old in zip(scaling.variables, before, strict=True):
        assert variable[0].numpy() == old[0] and np.isfinite(variable).all(), variable.name
    assert scaling.mean[1] != before[0][1]


def test_a_checkpoint_resumes_moments_and_units(tmp_path):
    scaling, layers = PopArtFirst(H), LastLayers()
    for seed in range(3):
        update(scaling, some_targets(seed, 1e3, (seed < 2, False)), layers)
        if seed == 1:
            scaling.target_updated()
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = PopArtFirst(H)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    assert len(scaling.variables) == 7
    for a, b in zip(scaling.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("options", [{"step_size": 0.0}, {"min_scale": 0.0}, {"min_scale": 2.0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="The paper's"):
        PopArtFirst(H, **options)
