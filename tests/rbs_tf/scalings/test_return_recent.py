"""Outputs in units of the return whose statistics forget."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings import ReturnOut
from tests.rbs_tf.scalings.test_pop_art import LastLayers
from tests.rbs_tf.scalings.test_return_out import H, episode

sizes = st.lists(st.floats(-3, 6), min_size=1, max_size=8)


@settings(deadline=None, max_examples=30)
@given(exponents=sizes, half_life=st.floats(5, 500))
def test_the_unit_is_the_root_of_a_mean_in_which_older_episodes_count_less(exponents, half_life):
    """And whatever the unit does, values stay."""
    scaling, layers = ReturnOut(H, half_life=half_life), LastLayers()
    weights, squares, value = np.zeros(0), np.zeros((0, 2, H)), None
    largest = 0.0
    for seed, exponent in enumerate(exponents):
        rewards, discounts = episode(seed, 10.0**exponent)
        scaling.observe(ReturnMoments.from_episode(rewards, discounts))
        scaling.before_update(layers, None)
        returns, total = np.zeros_like(rewards), np.zeros(H)
        for t in reversed(range(len(rewards))):
            returns[t] = total = rewards[t] + discounts[t] * total
        weights = np.append(weights * 0.5 ** (len(rewards) / half_life), 1.0)
        both = np.square(returns).mean(axis=0), np.square(rewards).mean(axis=0)
        squares = np.concatenate([squares, [both]])
        expected = np.sqrt(np.tensordot(weights / weights.sum(), squares, 1).max(axis=0))
        np.testing.assert_allclose(scaling.online.scale, expected, rtol=1.1e-4)
        value = scaling.values(layers()).numpy() if value is None else value
        largest = np.maximum(largest, expected)
        assert (
            np.abs(scaling.values(layers()) - value) <= 1e-5 * (largest + np.abs(value).max(axis=0))
        ).all()


def test_the_unit_falls_with_rewards_which_all_time_statistics_do_not_let_it():
    scales = []
    for half_life in (None, 100.0):
        scaling, layers = ReturnOut(H, half_life=half_life), LastLayers()
        for seed in range(100):
            scaling.observe(ReturnMoments.from_episode(*episode(seed, 1000.0 if seed < 20 else 1.0)))
            scaling.before_update(layers, None)
        scales.append(scaling.online.scale.numpy())
    assert (scales[0] > 50 * scales[1]).all()


def test_when_all_rewards_are_forgotten_the_unit_stays_above_a_millionth_of_its_largest():
    scaling, layers = ReturnOut(H, half_life=1.0), LastLayers()
    scaling.observe(ReturnMoments.from_episode(*episode(0, 100.0)))
    scaling.before_update(layers, None)
    value, largest = scaling.values(layers()).numpy(), scaling.online.scale.numpy()
    for _ in range(100):
        scaling.observe(ReturnMoments.from_episode(np.zeros((20, H)), np.full((20, H), 0.9)))
        scaling.before_update(layers, None)
    np.testing.assert_allclose(scaling.online.scale, 1e-6 * largest, rtol=1e-3)
    np.testing.assert_allclose(scaling.values(layers()), value, rtol=1e-4, atol=1e-3)


def test_a_checkpoint_resumes_it(tmp_path):
    scaling, restored = ReturnOut(H, half_life=30.0), ReturnOut(H, half_life=30.0)
    scaling.observe(ReturnMoments.from_episode(*episode(0, 100.0)))
    scaling.before_update(LastLayers(), None)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for each in (scaling, restored):
        each.observe(ReturnMoments.from_episode(*episode(1)))
        each.before_update(LastLayers(), None)
    for a, b in zip(scaling.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(b, a)


def test_a_half_life_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="half_life is a number of environment steps above 0, or None"):
        ReturnOut(H, half_life=0.0)
