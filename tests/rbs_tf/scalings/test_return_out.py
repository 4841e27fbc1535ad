"""Outputs in units of the return, against the same in NumPy."""

import gin
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf.scalings import MomentsWithMaxima, ReturnOut
from tests.rbs_tf.scalings import preserving
from tests.rbs_tf.scalings.episodes import ROWS, SHAPE, H, LastLayers, context, episode, normal, steps

reports = st.lists(
    st.tuples(st.floats(-3, 6), st.tuples(st.booleans(), st.booleans())), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=10)
@given(
    described=reports,
    replaced=st.integers(0, 7),
    sigma_v=st.sampled_from([1e-9, 0.5, 50.0]),
    of_batch=st.floats(-3, 6),
)
def test_it_is_numpys(described, replaced, sigma_v, of_batch):
    """Of rewards of any size, heads without any, and batches that vary less or more than what has been seen."""
    scaling, layers = ReturnOut(H), LastLayers()
    scaling.layer.sigma_v.assign([sigma_v] * H)
    reference = preserving.ReturnOut()
    in_batch = normal(5, 10.0**of_batch, ROWS)
    batch = context(rewards=in_batch, discounts=np.full(ROWS, 0.9))
    sigma_batch = in_batch.astype(np.float64).std(axis=(0, 1))  # no discount varies
    for seed, (exponent, zero) in enumerate(described):
        rewards, discounts = steps(seed, 20, 10.0**exponent, 0.3 * 10.0**exponent)
        rewards = np.where(zero, 0.0, rewards)
        before = scaling.online.scale.numpy()
        scaling.observe(MomentsWithMaxima.from_episode(rewards, discounts))
        np.testing.assert_array_equal(scaling.online.scale, before, "units wait for the next update")
        scaling.before_update(layers, None)
        reference.observe(rewards)
        reference.before_update()
        if seed == replaced:
            scaling.target_updated()
            reference.replace_target()
        reference.assert_same(scaling, layers)
        known = reference.scale > 0
        targets, outputs = normal(6, 10.0**exponent), layers()[:5]
        found = scaling.errors(tf.constant(targets), outputs, batch).numpy()
        expected = reference.errors(targets, outputs.numpy().astype(np.float64), sigma_v, sigma_batch)
        size = np.abs(expected).max(axis=(0, 1))
        assert (np.abs(found - expected) <= 1e-3 * size)[..., known].all()


def test_rewards_count_where_returns_are_smaller():
    rewards, discounts = steps(size=10.0)
    alternating = np.tile([[1.0], [-1.0]], (10, H)), np.full((20, H), 0.9)
    for report, expected in (
        (MomentsWithMaxima.from_steps(rewards, discounts), np.sqrt(np.square(rewards).mean(axis=0))),
        (MomentsWithMaxima.from_episode(*alternating), [1.0, 1.0]),
    ):
        scaling = ReturnOut(H)
        scaling.observe(report)
        scaling.before_update(LastLayers(), None)
        np.testing.assert_allclose(scaling.online.scale, expected)


@pytest.mark.parametrize("size", [0.0, 1.0], ids=["no rewards", "constant rewards"])
@pytest.mark.parametrize("seen", [False, True], ids=["nothing seen", "not updated yet"])
def test_first_priorities_are_free_of_the_unit(size, seen):
    found = []
    for factor in (1.0, 2.0**-10):
        scaling, rewards = ReturnOut(H), np.full(ROWS, factor * size, np.float32)
        if seen:
            scaling.observe(episode(size=factor))
        batch = context(rewards=rewards, discounts=np.zeros(ROWS))
        found.append(scaling.errors(rewards[:5], normal(0), batch).numpy())
    np.testing.assert_array_equal(*found)
    assert np.isfinite(found).all() and np.abs(found).max() > 0


def test_padding_in_first_priorities():
    rewards, discounts, mask = normal(0, shape=ROWS), np.full(ROWS, 0.9), np.ones(ROWS[:2])
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
