"""Scaling by the deviation of the errors themselves: what it measures, and when; and MEME's
normalisation by the largest of running deviation, deviation in the batch and 0.01."""

import numpy as np
import pytest
import tensorflow as tf

from agents.scalings import CrossHeadScaling, ErrorBasedScaling
from tests.agents.scalings.episodes import SHAPE, H, context

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
def test_the_first_batch(kind):
    errors = some_errors(size=[1.0, 1e6])
    np.testing.assert_allclose(scaled(kind(H), errors), errors / errors.std(axis=(0, 1)), rtol=1e-12)


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_statistics_fade(step):
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


def test_small_deviations():
    scaling = ErrorBasedScaling(H)
    for seed in range(50):
        update(scaling, some_errors(seed, size=1e-3, offset=1e6))
    np.testing.assert_allclose(state(scaling)["error_deviation"], 1e-3, rtol=0.1)


def test_the_lower_bound():
    np.testing.assert_allclose(scaled(ErrorBasedScaling(H, min_scale=0.5), np.ones(SHAPE)), 2.0)


def test_the_largest_of_three():
    scaling = CrossHeadScaling(H, step=1.0)
    update(scaling, some_errors(0, size=[1.0, 1e-5]))
    running = state(scaling)["error_deviation"]
    smaller, larger = some_errors(1, size=[0.5, 1e-4]), some_errors(1, size=[2.0, 0.02])
    np.testing.assert_allclose(scaled(scaling, smaller), smaller / [running[0], 0.01], rtol=1e-12)
    np.testing.assert_allclose(scaled(scaling, larger), larger / larger.std(axis=(0, 1)), rtol=1e-12)
    update(scaling, larger)
    np.testing.assert_allclose(state(scaling)["error_deviation"], larger.std(axis=(0, 1)), rtol=1e-12)
