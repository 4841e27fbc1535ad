"""Scaling by the deviation of the errors themselves: what it measures, when, and what it does to noise."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings import ErrorContext, ReturnBasedScaling
from rbs_tf.scalings.error import ErrorBasedScaling

H = 2
SHAPE = (5, 3, H)
ALL = np.ones(SHAPE[:2])


def context(mask=ALL):
    """Two rows more than there are errors, as the n-step window has."""
    values = tf.zeros((*mask.shape, H))
    mask = np.concatenate([mask, np.ones((2, mask.shape[1]))])
    rewards = tf.zeros((*mask.shape, H))
    return ErrorContext(rewards, rewards, tf.constant(mask, tf.float32), values, values)


def some_errors(seed=0, size=1.0, offset=0.0):
    return offset + size * np.random.default_rng(seed).normal(size=SHAPE)


def some_mask(seed=0):
    mask = np.random.default_rng(seed).uniform(size=SHAPE[:2]) < 0.7
    mask[0] = True
    return mask.astype(np.float64)


def scaled(scaling, errors, mask=ALL, dtype=tf.float64):
    """Of errors that are half in the targets and half in the outputs."""
    errors = tf.constant(errors, dtype)
    return scaling.errors(0.5 * errors, -0.5 * errors, context(mask)).numpy()


def update(scaling, errors, mask=ALL, dtype=tf.float64):
    errors = tf.constant(errors, dtype)
    scaling.after_update(0.5 * errors, -0.5 * errors, tf.constant(mask, tf.float32), None, None)


def state(scaling):
    return {name: value.numpy() for name, value in scaling.summaries().items()}


def test_the_first_batch_is_divided_by_its_own_deviation():
    scaling, errors = ErrorBasedScaling(H), some_errors(size=[1.0, 1e6])
    np.testing.assert_allclose(scaled(scaling, errors), errors / errors.std(axis=(0, 1)), rtol=1e-12)


def test_a_later_spike_is_divided_by_the_deviation_that_it_leads_to():
    scaling, spike = ErrorBasedScaling(H, step=0.01), some_errors(50)
    for seed in range(20):
        update(scaling, some_errors(seed))
    spike[2, 1] = 1e9
    assert np.abs(scaled(scaling, spike)).max() < 1.1 * np.sqrt(15 / 0.01)


@pytest.mark.parametrize("step", [0.3, 0.02, 1.0])
def test_the_average_is_over_all_errors_with_weights_that_fade_batch_by_batch(step):
    scaling, errors, weights = ErrorBasedScaling(H, step=step), [], []
    for seed in range(12):
        batch, mask = some_errors(seed, size=[1 + seed, 0.01], offset=[0.0, 7.0]), some_mask(seed)
        batch[mask == 0] = np.inf
        update(scaling, batch, mask)
        counted = batch[mask == 1]
        errors.append(counted)
        weights = [w * (1 - step) for w in weights] + [np.full(len(counted), step)]
        everything, share = np.concatenate(errors), np.concatenate(weights)
        mean = np.average(everything, axis=0, weights=share)
        variance = np.average(np.square(everything - mean), axis=0, weights=share)
        np.testing.assert_allclose(state(scaling)["error_mean"], mean, rtol=1e-9)
        np.testing.assert_allclose(state(scaling)["error_deviation"], np.sqrt(variance), rtol=1e-9)


def test_a_window_counts_the_last_batches_alike_and_no_others():
    scaling, errors = ErrorBasedScaling(H, window=4), []
    for seed in range(10):
        batch, mask = some_errors(seed, size=10.0**-seed), some_mask(seed)
        update(scaling, batch, mask)
        errors.append(batch[mask == 1])
        expected = np.concatenate(errors[-4:]).std(axis=0)
        np.testing.assert_allclose(state(scaling)["error_deviation"], expected, rtol=1e-9)


@pytest.mark.parametrize("window", [None, 3])
def test_errors_are_divided_by_the_deviation_that_the_update_will_leave(window):
    scaling = ErrorBasedScaling(H, step=0.1, window=window)
    for seed in range(6):
        errors, mask = some_errors(seed, size=1.0 + seed), some_mask(seed)
        found = scaled(scaling, errors, mask)
        update(scaling, errors, mask)
        np.testing.assert_allclose(found, errors / state(scaling)["error_deviation"], rtol=1e-12)


@pytest.mark.parametrize("window", [None, 5])
@settings(max_examples=20, deadline=None)
@given(exponent=st.floats(-3, 12), seed=st.integers(0, 1000))
def test_the_size_of_rewards_does_not_matter_however_it_changes_values(window, exponent, seed):
    plain, times = (ErrorBasedScaling(H, step=0.1, window=window, min_scale=1e-9) for _ in range(2))
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
    errors_by_size = ErrorBasedScaling(H, window=1, min_scale=1e-30)
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


def test_a_batch_of_padding_changes_no_statistics():
    scaling = ErrorBasedScaling(H)
    update(scaling, some_errors())
    before = state(scaling)
    update(scaling, np.full(SHAPE, np.nan), 0 * ALL)
    for name, value in state(scaling).items():
        np.testing.assert_array_equal(value, before[name])
    assert np.isfinite(scaled(ErrorBasedScaling(H), some_errors(), 0 * ALL)).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"step": 0.0}, "step must lie in"),
        ({"step": 1.5}, "step must lie in"),
        ({"window": 0}, "window counts batches"),
        ({"min_scale": 0.0}, "min_scale must be positive"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ErrorBasedScaling(H, **options)
