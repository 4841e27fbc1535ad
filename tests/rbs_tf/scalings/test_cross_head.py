"""MEME's normalisation: the largest of running deviation, deviation in the batch and 0.01."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings.cross_head import CrossHeadScaling
from tests.rbs_tf.scalings.test_error import (
    H,
    scaled,
    some_errors,
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


def test_options_out_of_range_are_refused():
    with pytest.raises(ValueError, match="min_scale must be positive"):
        CrossHeadScaling(H, min_scale=-1.0)
