"""MEME's normalisation: the largest of running deviation, deviation in the batch and 0.01."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings.cross_head import CrossHeadScaling
from tests.rbs_tf.scalings.test_error import (
    ALL,
    SHAPE,
    H,
    context,
    scaled,
    some_errors,
    some_mask,
    state,
    update,
)


def test_the_first_batch_is_divided_by_its_own_deviation():
    errors = some_errors(size=[1.0, 1e6])
    np.testing.assert_allclose(
        scaled(CrossHeadScaling(H), errors), errors / errors.std(axis=(0, 1)), rtol=1e-12
    )


def test_each_head_takes_the_largest_of_the_three():
    scaling = CrossHeadScaling(H)
    update(scaling, some_errors(0, size=[1.0, 1e-5]))
    running = state(scaling)["error_deviation"]
    smaller, larger = some_errors(1, size=[0.5, 1e-4]), some_errors(1, size=[2.0, 0.02])
    np.testing.assert_allclose(scaled(scaling, smaller), smaller / [running[0], 0.01], rtol=1e-12)
    np.testing.assert_allclose(scaled(scaling, larger), larger / larger.std(axis=(0, 1)), rtol=1e-12)


def test_the_running_deviation_does_not_yet_hold_the_batch():
    scaling = CrossHeadScaling(H, step=1.0)
    update(scaling, some_errors(0, size=100.0))
    errors, before = some_errors(1), state(scaling)["error_deviation"]
    np.testing.assert_allclose(scaled(scaling, errors), errors / before, rtol=1e-12)
    update(scaling, errors)
    np.testing.assert_allclose(state(scaling)["error_deviation"], errors.std(axis=(0, 1)), rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), exponent=st.floats(-8, 8), spike=st.floats(0, 1e9))
def test_no_spread_of_scaled_errors_exceeds_1(seed, exponent, spike):
    scaling = CrossHeadScaling(H)
    for batch in range(3):
        errors = some_errors((seed, batch), size=10.0**exponent)
        errors[batch, 0] += spike
        assert scaled(scaling, errors).std(axis=(0, 1)).max() <= 1 + 1e-9
        update(scaling, errors)


@settings(max_examples=30, deadline=None)
@given(exponent=st.floats(-12, 12))
def test_the_size_of_rewards_matters_under_the_bound_and_only_there(exponent):
    errors, factor = some_errors(), 10.0**exponent
    plain, times = scaled(CrossHeadScaling(H), errors), scaled(CrossHeadScaling(H), factor * errors)
    deviations = errors.std(axis=(0, 1))
    np.testing.assert_allclose(times, plain * np.minimum(1.0, factor * deviations / 0.01), rtol=1e-9)


def test_masked_errors_do_not_count():
    errors, mask = some_errors(), some_mask()
    clean = np.where(mask[..., None] == 1, errors, 0.0)
    dirty = np.where(mask[..., None] == 1, errors, 1e9)
    kept = mask == 1
    np.testing.assert_array_equal(
        scaled(CrossHeadScaling(H), dirty, mask)[kept], scaled(CrossHeadScaling(H), clean, mask)[kept]
    )


def test_errors_may_be_asked_for_without_changing_anything():
    scaling = CrossHeadScaling(H)
    update(scaling, some_errors())
    before = scaling.recent.numpy()
    scaled(scaling, some_errors(1))
    np.testing.assert_array_equal(scaling.recent, before)


def test_xla_equals_eager():
    scaling = CrossHeadScaling(H)
    update(scaling, some_errors())
    targets, outputs = (tf.constant(some_errors(seed), tf.float32) for seed in (1, 2))
    compiled = tf.function(scaling.errors, jit_compile=True)
    np.testing.assert_allclose(
        compiled(targets, outputs, context()), scaling.errors(targets, outputs, context()), rtol=1e-6
    )


def test_the_scale_carries_no_gradient():
    outputs = tf.Variable(some_errors())
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(CrossHeadScaling(H).errors(tf.zeros_like(outputs), outputs, context()))
    expected = np.broadcast_to(-1.0 / some_errors().std(axis=(0, 1)), SHAPE)
    np.testing.assert_allclose(tape.gradient(total, outputs), expected, rtol=1e-12)


def test_a_restored_scaling_goes_on_as_if_it_had_never_stopped(tmp_path):
    scaling = CrossHeadScaling(H)
    update(scaling, some_errors(size=100.0))
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = CrossHeadScaling(H)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    np.testing.assert_array_equal(scaled(restored, some_errors(1)), scaled(scaling, some_errors(1)))


def test_options_out_of_range_are_refused():
    with pytest.raises(ValueError, match="min_scale must be positive"):
        CrossHeadScaling(H, min_scale=-1.0)
    assert np.isfinite(scaled(CrossHeadScaling(H), some_errors(), 0 * ALL)).all()
