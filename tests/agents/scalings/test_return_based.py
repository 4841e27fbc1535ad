"""Return-based scaling, and its options, all of which are off unless asked for."""

import threading

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.scalings import ReturnBasedScaling
from rbs_tf import ReturnMoments
from tests.agents.scalings.episodes import ROWS, SHAPE, H, context, episode, head_layers, normal, scales

INPUTS = np.random.default_rng(3).normal(size=(20, 6)).astype(np.float32)


def test_sigma_or_the_floor():
    scaling = ReturnBasedScaling(H, sigma_v=0.5)
    np.testing.assert_allclose(scales(scaling, context()), 0.5)
    scaling.observe(episode())
    np.testing.assert_allclose(scales(scaling, context()), episode().sigma, rtol=1e-6)


def test_sigma_v_is_measured():
    scaling, mask = ReturnBasedScaling(H), np.ones(SHAPE[:2])
    values = normal(1, [0.01, 5.0])
    mask[3:, 1] = 0
    values[3:, 1] = 1e9
    scaling.initialise(tf.constant(values), tf.constant(mask, tf.float32))
    np.testing.assert_allclose(scaling.layer.sigma_v, values[mask == 1].std(axis=0), rtol=1e-6)
    for later, first in ((2.0 * values, False), (np.ones_like(values), True)):  # which do not vary
        scaling.initialise(later, tf.constant(mask, tf.float32), first)
        np.testing.assert_allclose(scaling.layer.sigma_v, values[mask == 1].std(axis=0), rtol=1e-6)


def test_target_network_term():
    scaling, moments = ReturnBasedScaling(H, target_network_term=True), episode()
    scaling.observe(moments)
    gaps, mask = np.random.default_rng(1).normal(size=SHAPE) * [3.0, 5000.0], np.ones(ROWS[:2])
    mask[3:5, 1] = 0
    gaps[3:5, 1] = 1e9
    counted = gaps[mask[:5] == 1]
    expected = moments.reward_variance + moments.discount_variance * (
        moments.return_mean_square + np.square(counted).mean(axis=0)
    )
    assert (expected > 1.001 * moments.sigma_squared).all()
    np.testing.assert_allclose(scales(scaling, context(gaps, mask)), np.sqrt(expected), rtol=1e-5)


def test_floors_beside_the_gap():
    scaling = ReturnBasedScaling(H, target_network_term=True)
    np.testing.assert_allclose(scales(scaling, context(np.full(SHAPE, 7.0))), 1e-2, rtol=1e-6)
    rewards = np.zeros(ROWS)
    rewards[1, 0] = 1e6
    assert scales(scaling, context(rewards=rewards)).min() > 1e5
    nothing = context(np.full(SHAPE, 7.0), np.zeros(ROWS[:2]))
    assert np.isfinite(scales(scaling, nothing)).all()


def test_value_bias():
    """Each head's when its own returns are there."""
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    before, moved = [layer(INPUTS).numpy() for layer in layers], np.zeros(H)
    late = ReturnMoments.from_returns(np.full((30, H), -1000.0)).to_array()
    late[5:, 1] = 0.0
    for moments, biased in (
        (ReturnMoments.from_steps(np.full((30, H), -5.0), np.ones((30, H))), [False, False]),
        (ReturnMoments.from_array(late), [True, False]),
        (episode(offset=(50.0, -50.0)), [True, True]),
        (episode(1), [True, True]),
    ):
        scaling.observe(moments)
        moved = np.where(np.array(biased) & ~scaling.biased.numpy(), scaling.layer.mean_return, moved)
        scaling.before_update(*layers)
        np.testing.assert_array_equal(scaling.summaries()["value_biased"], biased)
        for layer, old in zip(layers, before, strict=True):
            expected = np.broadcast_to(moved[:, None], (len(INPUTS), H, 4))
            np.testing.assert_allclose(layer(INPUTS) - old, expected, atol=1e-3)


@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    half_life=st.floats(1.0, 1e4),
    seed=st.integers(0, 1000),
)
def test_half_life(lengths, half_life, seed):
    scaling, rng = ReturnBasedScaling(H, half_life=half_life), np.random.default_rng(seed)
    rewards, weights = [], []
    for steps in lengths:
        rewards.append(rng.normal(size=(steps, H)) * [1.0, 100.0] + [1000.0, 0.0])
        weights = [w * 0.5 ** (steps / half_life) for w in weights] + [np.ones(steps)]
        scaling.observe(ReturnMoments.from_episode(rewards[-1], np.zeros((steps, H))))
    everything, share = np.concatenate(rewards), np.concatenate(weights)
    mean = np.average(everything, axis=0, weights=share)
    variance = np.average(np.square(everything - mean), axis=0, weights=share)
    moments = scaling.layer.moments
    for count in (moments.count, moments.return_count):
        np.testing.assert_allclose(count, share.sum(), rtol=1e-9)
    np.testing.assert_allclose(moments.reward_variance, variance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        moments.return_mean_square, np.average(np.square(everything), axis=0, weights=share), rtol=1e-9
    )
    scaling.observe(ReturnMoments.from_returns(np.ones((9, H))))  # of known steps: they age nothing
    np.testing.assert_array_equal(scaling.layer.moments.count, moments.count)


def test_statistics_do_not_age_while_another_thread_changes_them():
    new = ReturnMoments.from_steps(np.ones((10, H)), np.zeros((10, H)))
    scaling = ReturnBasedScaling(H, half_life=10.0)
    with scaling.layer.changes():
        scaling.layer.merge_state(new)
        observing = threading.Thread(target=scaling.observe, args=(new,))
        observing.start()
        observing.join(0.3)
        scaling.layer.merge_state(new)
        np.testing.assert_array_equal(scaling.layer.moments.count, 10.0 + 10.0)
    observing.join()
    np.testing.assert_array_equal(scaling.layer.moments.count, 0.5 * 20.0 + 10.0)
