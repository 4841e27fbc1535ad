"""Outputs in units of the return."""

import gin
import numpy as np
import pytest
import tensorflow as tf

from agents.scalings import ReturnOut
from rbs_tf import ReturnMoments
from tests.agents.scalings.episodes import GAMMAS, ROWS, SHAPE, H, LastLayers, context, episode, normal


@pytest.mark.parametrize("of_batch", [1e-3, 1e6])
@pytest.mark.parametrize("sigma_v", [1e-9, 0.5, 50.0])
def test_units_values_and_errors(of_batch, sigma_v):
    """Of rewards of any size, and of batches that vary less or more than what has been seen."""
    scaling, layers, seen = ReturnOut(H), LastLayers(), ReturnMoments.empty(H)
    scaling.layer.sigma_v.assign([sigma_v] * H)
    in_batch = normal(5, of_batch, ROWS)
    batch = context(rewards=in_batch, discounts=np.full(ROWS, 0.9))
    sigma_batch = in_batch.astype(np.float64).std(axis=(0, 1))  # no discount varies
    for seed, size in enumerate([0.0, 1e-3, 1e3, 0.1, 1e5]):
        new, before = episode(seed, 20, size, 0.3 * size), scaling.online.scale.numpy()
        seen, values = ReturnMoments.merge(seen, new), scaling.values(layers()).numpy()
        scaling.observe(new)
        np.testing.assert_array_equal(scaling.online.scale, before, "units wait for the next update")
        scaling.before_update(layers, None)
        np.testing.assert_allclose(scaling.online.scale, seen.unit, rtol=1.1e-4)
        if not before.any():
            np.testing.assert_array_equal(
                scaling.target.scale, scaling.online.scale, "both take the first over"
            )
        if size == 0.0:
            np.testing.assert_array_equal(scaling.values(layers()), 0.0)
            continue
        if before.any():
            np.testing.assert_allclose(
                scaling.values(layers()), values, rtol=1e-5, atol=1e-5 * seen.unit.max()
            )
        if seed == 2:
            scaling.target_updated()
        scale, outputs, targets = scaling.online.scale.numpy(), layers()[:5], normal(6, size)
        largest = np.maximum.reduce([seen.sigma, sigma_v * scale, sigma_batch])
        expected = (targets - scale * outputs.numpy().astype(np.float64)) / largest
        np.testing.assert_allclose(scaling.errors(targets, outputs, batch), expected, rtol=1e-3, atol=1e-3)
    first = ReturnMoments.merge(
        *(episode(seed, 20, size, 0.3 * size) for seed, size in ((0, 0.0), (1, 1e-3)))
    )
    of_target = ReturnMoments.merge(first, episode(2, 20, 1e3, 300.0)).unit
    np.testing.assert_allclose(scaling.target.scale, of_target, rtol=1.1e-4)


def test_rewards_count_where_returns_are_smaller():
    alternating = np.tile([[1.0], [-1.0]], (10, H)), np.full((20, H), 0.9)
    scaling = ReturnOut(H)
    scaling.observe(ReturnMoments.from_episode(*alternating))
    scaling.before_update(LastLayers(), None)
    np.testing.assert_allclose(scaling.online.scale, [1.0, 1.0])


def test_padding_in_first_priorities():
    rewards, discounts, mask = normal(0, shape=ROWS), np.full(ROWS, GAMMAS), np.ones(ROWS[:2])
    mask[:, 0] = 0.0
    padded = context(rewards=rewards, discounts=discounts, mask=mask)
    unpadded = context(rewards=rewards[:, 1:], discounts=discounts[:, 1:], mask=mask[:, 1:])
    expected = ReturnOut(H).errors(tf.zeros((5, 2, H)), normal(1)[:, 1:], unpadded)
    np.testing.assert_allclose(ReturnOut(H).errors(tf.zeros(SHAPE), normal(1), padded)[:, 1:], expected)


def test_gins_settings_of_the_papers_scaling():
    gin.bind_parameter("scalings.return_based.half_life", 10)
    scaling = ReturnOut(H)
    for seed in range(2):
        scaling.observe(episode(seed))
    assert scaling.layer.moments.count.numpy().tolist() == [80.0] * H, "nothing fades"
