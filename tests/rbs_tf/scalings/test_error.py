"""Scaling by the deviation of the errors themselves: what it measures, when, and what it does to noise; and MEME's
normalisation by the largest of running deviation, deviation in the batch and 0.01."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings import CrossHeadScaling, ErrorBasedScaling, ReturnBasedScaling
from tests.rbs_tf.scalings.episodes import SHAPE, H, context

ALL = np.ones(SHAPE[:2])


def some_errors(seed=0, size=1.0, offset=0.0):
    return offset + size * np.random.default_rng(seed).normal(size=SHAPE)


def some_mask(seed=0):
    mask = np.random.default_rng(seed).uniform(size=SHAPE[:2]) < 0.7
    mask[0] = True
    return mask.astype(np.float64)


def scaled(scaling, errors, mask=ALL):
    """Of errors that are half in the targets and half in the outputs."""
    errors = tf.constant(errors, tf.float64)
    batch = context(mask=np.concatenate([mask, np.ones((2, SHAPE[1]))]))
    return scaling.errors(0.5 * errors, -0.5 * errors, batch).numpy()


def update(scaling, errors, mask=ALL):
    errors = tf.constant(errors, tf.float64)
    scaling.after_update(0.5 * errors, -0.5 * errors, tf.constant(mask, tf.float32), None)


def state(scaling):
    return {name: value.numpy() for name, value in scaling.summaries().items()}


@pytest.mark.parametrize("kind", [ErrorBasedScaling, CrossHeadScaling])
def test_the_first_batch_is_divided_by_its_own_deviation(kind):
    errors = some_errors(size=[1.0, 1e6])
    np.testing.assert_allclose(scaled(kind(H), errors), errors / errors.std(axis=(0, 1)), rtol=1e-12)


def test_a_later_spike_is_divided_by_the_deviation_that_it_leads_to():
    scaling, spike = ErrorBasedScaling(H, step=0.01), some_errors(50)
    for seed in range(20):
        update(scaling, some_errors(seed))
    spike[2, 1] = 1e9
    assert np.abs(scaled(scaling, spike)).max() < 1.1 * np.sqrt(15 / 0.01)


@pytest.mark.parametrize("step", [0.3, 0.02, 1.0])
def test_statistics_are_over_all_errors_with_weights_that_fade(step):
    scaling, errors, weights = ErrorBasedScaling(H, step=step), [], []
    for seed in range(12):
        batch, mask = (
            some_errors(seed, size=[1 + seed, 10.0 ** (-seed / 4)], offset=[0.0, 7.0]),
            some_mask(seed),
        )
        batch[mask == 0] = np.inf
        found = scaled(scaling, batch, mask)[mask == 1]
        update(scaling, batch, mask)
        counted = batch[mask == 1]
        errors.append(counted)
        weights = [w * (1 - step) for w in weights] + [np.full(len(counted), step)]
        everything, share = np.concatenate(errors), np.concatenate(weights)
        mean = np.average(everything, axis=0, weights=share)
        deviation = np.sqrt(np.average(np.square(everything - mean), axis=0, weights=share))
        np.testing.assert_allclose(state(scaling)["error_mean"], mean, rtol=1e-9)
        np.testing.assert_allclose(state(scaling)["error_deviation"], deviation, rtol=1e-9)
        # Errors are divided by the deviation that the update will leave.
        np.testing.assert_allclose(found, counted / np.maximum(deviation, 1e-4), rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(exponent=st.floats(-3, 12), seed=st.integers(0, 1000))
def test_the_size_of_rewards_does_not_matter_however_it_changes_values(exponent, seed):
    plain, times = (ErrorBasedScaling(H, step=0.1, min_scale=1e-9) for _ in range(2))
    for batch in range(3):
        errors = some_errors((seed, batch), size=[1.0, 100.0], offset=[5.0, 0.0])
        np.testing.assert_allclose(scaled(times, 10.0**exponent * errors), scaled(plain, errors), rtol=1e-9)
        update(plain, errors)
        update(times, 10.0**exponent * errors)


def test_a_small_deviation_beside_a_large_mean_survives():
    scaling = ErrorBasedScaling(H)
    for seed in range(50):
        update(scaling, some_errors(seed, size=1e-3, offset=1e6))
    np.testing.assert_allclose(state(scaling)["error_deviation"], 1e-3, rtol=0.1)


def test_noise_is_amplified_without_end_where_return_based_scaling_lets_it_vanish():
    """Errors shrink a hundredfold each update, as values of rewards that are all 0 would make them."""
    errors_by_size = ErrorBasedScaling(H, step=1.0, min_scale=1e-30)
    return_based = ReturnBasedScaling(H)
    sizes, lefts = [], []
    for batch in range(10):
        errors = some_errors(batch, size=100.0**-batch)
        sizes.append(scaled(errors_by_size, errors).std())
        lefts.append(scaled(return_based, errors).std())
        update(errors_by_size, errors)
    np.testing.assert_allclose(sizes, 1.0, rtol=0.2)
    assert lefts[-1] < 1e-15 * lefts[0]


def test_errors_without_spread_are_divided_by_the_lower_bound():
    np.testing.assert_allclose(scaled(ErrorBasedScaling(H, min_scale=0.5), np.ones(SHAPE)), 2.0)


def test_meme_takes_the_largest_of_the_three_and_its_running_deviation_does_not_yet_hold_the_batch():
    scaling = CrossHeadScaling(H, step=1.0)
    update(scaling, some_errors(0, size=[1.0, 1e-5]))
    running = state(scaling)["error_deviation"]
    smaller, larger = some_errors(1, size=[0.5, 1e-4]), some_errors(1, size=[2.0, 0.02])
    np.testing.assert_allclose(scaled(scaling, smaller), smaller / [running[0], 0.01], rtol=1e-12)
    np.testing.assert_allclose(scaled(scaling, larger), larger / larger.std(axis=(0, 1)), rtol=1e-12)
    update(scaling, larger)
    np.testing.assert_allclose(state(scaling)["error_deviation"], larger.std(axis=(0, 1)), rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), exponent=st.floats(-8, 8), spike=st.floats(0, 1e9))
def test_with_meme_no_spread_of_scaled_errors_exceeds_1(seed, exponent, spike):
    scaling = CrossHeadScaling(H)
    for batch in range(3):
        errors = some_errors((seed, batch), size=10.0**exponent)
        errors[batch, 0] += spike
        assert scaled(scaling, errors).std(axis=(0, 1)).max() <= 1 + 1e-9
        update(scaling, errors)


def test_options_out_of_range_are_refused():
    for kind, name, value in (
        (ErrorBasedScaling, "step", 0.0),
        (ErrorBasedScaling, "step", 1.5),
        (ErrorBasedScaling, "min_scale", 0.0),
        (CrossHeadScaling, "min_scale", -1.0),
    ):
        with pytest.raises(ValueError, match=name):
            kind(H, **{name: value})
