"""Return-based scaling by the statistics of n-step transitions."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.returns import n_step_sums
from rbs_tf.scalings import ReturnBasedScaling
from tests.rbs_tf.scalings.episodes import (
    ROWS,
    SHAPE,
    H,
    context,
    episode,
    head_layers,
    observe,
    scales,
    some_steps,
)


def n_step_sigma(rewards, discounts, n):
    """sqrt(V[R^(n)] + V[gamma^(n)] E[G^2]) of one head's episode [T], term by term."""
    t, steps = np.arange(len(rewards)), len(rewards)
    weights = [np.prod(discounts[i:j]) for i in t for j in t]
    weights = np.triu(np.reshape(weights, (steps, steps)))  # what step j counts for in the return of step i
    near = np.tril(weights, n - 1)
    products = [np.prod(discounts[i : i + n]) for i in t]
    return np.sqrt(np.var(near @ rewards) + np.var(products) * np.mean((weights @ rewards) ** 2))


def test_n_step_statistics_on_the_reference_sequence_of_the_paper():
    reference = np.sin(2 * np.pi * np.arange(100) / 50)
    rewards, discounts = np.stack([reference, reference + 1.0], axis=1), np.full((100, H), 0.97)
    discounts[-1] = 0.0
    scaling = ReturnBasedScaling(H, n_step=True)
    observe(scaling, rewards, discounts, n=5)
    expected = [n_step_sigma(rewards[:, head], discounts[:, head], 5) for head in range(H)]
    assert 0.938559 * 3 < expected[0] < 0.938559 * 5  # this smooth one adds up almost fully
    np.testing.assert_allclose(scaling.layer.sigma, expected, rtol=1e-12)
    np.testing.assert_allclose(scales(scaling, context()._replace(n_step=5)), expected, rtol=1e-6)


def test_n_step_statistics_of_the_batch_are_a_floor_as_well():
    scaling, rewards = ReturnBasedScaling(H, n_step=True), np.random.default_rng(5).normal(size=ROWS)
    mask = np.ones(ROWS[:2])
    mask[4:, 1] = 0
    batch = context(rewards=rewards, mask=mask)._replace(n_step=3)
    sums, products, returns = [], [], []
    for length, stretch in zip((7, 4, 7), rewards.astype(np.float32).swapaxes(0, 1), strict=True):
        returns += [stretch[t:length].sum(axis=0) for t in range(length)]
        # Transitions of the last two rows are incomplete, wherever the padding begins.
        for t in range(min(length, 5)):
            sums.append(stretch[t : min(t + 3, length)].sum(axis=0))
            products.append(1.0)
    expected = np.sqrt(np.var(sums, axis=0) + np.var(products) * np.mean(np.square(returns), axis=0))
    np.testing.assert_allclose(scales(scaling, batch), expected, rtol=1e-5)
    plain = ReturnBasedScaling(H)
    np.testing.assert_array_equal(scales(plain, batch), scales(plain, batch._replace(n_step=1)))


@settings(max_examples=25, deadline=None)
@given(exponent=st.integers(-2, 6), seed=st.integers(0, 1000), n=st.integers(1, 10))
def test_with_n_step_statistics_the_scale_is_homogeneous(exponent, seed, n):
    factor = 10.0**exponent
    rewards, discounts = some_steps(seed)
    in_batch = np.random.default_rng(seed).normal(size=ROWS) * [100.0, 1.0]
    found = []
    for by in (1.0, factor):
        scaling = ReturnBasedScaling(H, sigma_v=1e-9, n_step=True)
        observe(scaling, by * rewards, discounts, n)
        found.append(scales(scaling, context(rewards=by * in_batch)._replace(n_step=n)))
    np.testing.assert_allclose(found[1], factor * found[0], rtol=1e-5)


def test_n_step_statistics_of_one_step_leave_errors_bit_for_bit():
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, n_step=True)
    targets, outputs = tf.random.normal(SHAPE, seed=1), tf.random.normal(SHAPE, seed=2)
    for seed, size in ((0, 1.0), (1, 1e4)):
        for scaling in (plain, other):
            observe(scaling, *some_steps(seed), n=1)
        batch = context(rewards=size * np.random.default_rng(seed).normal(size=ROWS))
        np.testing.assert_array_equal(
            other.errors(targets, outputs, batch), plain.errors(targets, outputs, batch)
        )


def test_heads_without_a_future_keep_their_scale_and_the_others_scale_grows():
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, n_step=True)
    for scaling in (plain, other):
        observe(scaling, *some_steps(gammas=(0.0, 0.9)), n=5)
    ratio = (other.layer.sigma / plain.layer.sigma).numpy()
    assert ratio[0] == 1.0 and 1.3 < ratio[1] < 2.5
    in_batch = context(rewards=1e6 * np.random.default_rng(3).normal(size=ROWS))
    in_batch = in_batch._replace(n_step=5, discounts=tf.ones(ROWS) * [0.0, 0.9])
    ratio = scales(other, in_batch) / scales(plain, in_batch)
    # The batch's incomplete transitions do not count, not even for heads that need no more than their first step.
    assert 0.8 < ratio[0] < 1.2 and 1.3 < ratio[1] < 2.5


def test_a_gap_between_the_networks_counts_by_the_spread_of_n_step_discounts():
    scaling, (rewards, discounts) = ReturnBasedScaling(H, target_network_term=True, n_step=True), some_steps()
    observe(scaling, rewards, discounts, n=5)
    gaps = np.full(SHAPE, 500.0)
    spread = np.var(n_step_sums(rewards, discounts, 5)[1], axis=0)
    expected = np.sqrt(
        np.square([n_step_sigma(rewards[:, h], discounts[:, h], 5) for h in range(H)]) + spread * 500.0**2
    )
    np.testing.assert_allclose(scales(scaling, context(gaps)._replace(n_step=5)), expected, rtol=1e-5)


def test_n_step_statistics_age_by_environment_steps_and_returns_and_bias_are_what_they_were():
    plain, other = (
        ReturnBasedScaling(H, value_bias=True, half_life=20, n_step=n_step) for n_step in (False, True)
    )
    old, new = some_steps(0, steps=50), some_steps(1, steps=20)
    for scaling in (plain, other):
        observe(scaling, *old, n=5)
        late = ReturnMoments.from_steps(*(column[:16] for column in n_step_sums(*new, 5)))
        scaling.observe(ReturnMoments.from_episode(*new), n_step=late)
        scaling.before_update(head_layers(0), head_layers(1))
    np.testing.assert_allclose(other.layer.moments.count, 50 / 2 + 16)
    np.testing.assert_array_equal(other.biased, [True, True])
    np.testing.assert_array_equal(other.layer.statistics[5:], plain.layer.statistics[5:])


def test_n_step_statistics_survive_a_restart_and_are_asked_for(tmp_path):
    scaling = ReturnBasedScaling(H, n_step=True)
    observe(scaling, *some_steps(), n=5)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnBasedScaling(H, n_step=True)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for each in (scaling, restored):
        observe(each, *some_steps(1), n=5)
    np.testing.assert_array_equal(restored.layer.statistics, scaling.layer.statistics)
    with pytest.raises(ValueError, match=r"n_step needs the moments of n-step transitions; write observe"):
        restored.observe(episode())
    np.testing.assert_array_equal(restored.layer.statistics, scaling.layer.statistics)
