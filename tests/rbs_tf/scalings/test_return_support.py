"""Bins in units of the return, without an agent: when they move, and what that leaves as it was."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from networks import DuelingHeads
from rbs_tf import ReturnMoments
from rbs_tf.scalings import ErrorContext, ReturnSupport
from tests.networks.test_dueling_heads import last_layers
from tests.rbs_tf.scalings.test_categorical import softmax

H, ACTIONS = 2, 3
STEP = 0.2
INPUTS = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def moments(size=1.0, seed=0, length=20):
    """Of an episode whose rewards are `size` times the same random numbers, per head."""
    rewards = np.asarray(size) * np.random.default_rng(seed).normal(0.3, 1.0, (length, 1)).repeat(H, axis=1)
    return ReturnMoments.from_episode(
        rewards, np.full((length, H), 0.9) * (np.arange(length) < length - 1)[:, None]
    )


def root(report):
    return np.sqrt(np.maximum(report.return_mean_square, report.reward_variance + report.reward_mean**2))


def replaced(scaling, report):
    """Statistics as if nothing else had ever been seen."""
    scaling.layer.reset_state()
    scaling.observe(report)


def some_heads(bins, seed=1, size=0.5):
    heads = DuelingHeads(H, ACTIONS, hidden=4, seed=0, outputs_per_action=bins)
    heads.build(tf.TensorShape((None, INPUTS.shape[1])))
    rng = np.random.default_rng(seed)
    for weights in (heads.Wv, heads.bv, heads.Wa, heads.ba):
        weights.assign(rng.normal(size=weights.shape) * size)
    return heads


def make(bins=101, **options):
    scaling, heads = ReturnSupport(H, bins, **options), some_heads(bins)
    scaling.observe(moments())
    scaling.before_update(heads, None)
    return scaling, heads


def by_place(probabilities, scaling):
    """{place of a bin, 0 in the middle: its probabilities [...]}."""
    middle = scaling.outputs_per_action // 2
    return {place: probabilities[..., place + middle] for place in range(-middle, middle + 1)}


def test_the_first_scale_is_taken_over_without_moving_anything():
    heads = some_heads(101)
    before = heads(INPUTS).numpy()
    scaling = ReturnSupport(H)
    scaling.before_update(heads, None)
    np.testing.assert_array_equal(scaling.values(tf.ones(H)), np.zeros(H))
    scaling.observe(moments([40.0, 0.0]))
    scaling.before_update(heads, None)
    np.testing.assert_allclose(scaling.scale, root(moments([40.0, 0.0])))
    np.testing.assert_array_equal(scaling.target_scale, scaling.scale)
    np.testing.assert_array_equal(heads(INPUTS), before)
    replaced(scaling, moments([40.0, 3.0]))
    scaling.before_update(heads, None)
    np.testing.assert_allclose(scaling.scale, root(moments([40.0, 3.0])))
    np.testing.assert_array_equal(heads(INPUTS), before)


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_the_scale_is_the_first_one_times_whole_steps_and_less_than_one_step_away(sizes):
    scaling, heads = ReturnSupport(H), some_heads(101)
    for size in sizes:
        replaced(scaling, moments(size))
        scaling.before_update(heads, None)
        wanted = root(moments(size))
        powers = np.log(scaling.scale.numpy() / root(moments(sizes[0]))) / STEP
        np.testing.assert_allclose(powers, np.round(powers), atol=1e-9)
        assert (np.abs(np.log(scaling.scale.numpy() / wanted)) < STEP * (1 + 1e-9)).all()


def test_a_scale_that_trembles_moves_bins_once():
    scaling, heads = make()
    before, scales = heads.Wv.numpy(), set()
    for turn in range(20):
        replaced(scaling, moments(np.exp(STEP * (1.05 if turn % 2 else 0.95))))
        scaling.before_update(heads, None)
        scales.add(scaling.scale.numpy()[0])
    assert len(scales) == 2 and not np.array_equal(heads.Wv, before)


@pytest.mark.parametrize("steps", [-60, -50, -7, -1, 1, 2, 19, 49, 50, 60])
def test_odds_of_the_bins_that_both_supports_have_stay_exactly(steps):
    """For any weights; and the new value is the mean over these bins, thinned by what the new ones have."""
    scaling, heads = make()
    old_logits, old_scale = heads(INPUTS).numpy(), scaling.scale.numpy()
    replaced(scaling, moments(np.exp(STEP * (steps + 0.3 * np.sign(steps)))))
    scaling.before_update(heads, None)
    logits, scale = heads(INPUTS).numpy(), scaling.scale.numpy()
    np.testing.assert_allclose(np.log(scale / old_scale) / STEP, steps, atol=1e-6)

    old, new = (by_place(softmax(x.astype(np.float64)), scaling) for x in (old_logits, logits))
    # Where each old bin is now, looked up by what it stands for in reward units.
    lies = dict(zip(old, scaling.support.astype(np.float64) * old_scale[0], strict=True))
    now = dict(zip(new, scaling.support.astype(np.float64) * scale[0], strict=True))
    kept = {a: b for a in lies for b in now if np.isclose(lies[a], now[b], rtol=1e-4, atol=0.0)}
    assert kept[0] == 0 and len(kept) == 1 + 2 * max(0, 50 - abs(steps))
    for a, b in kept.items():
        np.testing.assert_allclose(new[b] / new[0], old[a] / old[0], rtol=2e-5)

    added = [place for place in new if place not in kept.values()]
    halfway = np.sqrt(old[50] * old[-50]) / old[0]
    for place in added:
        np.testing.assert_allclose(new[place] / new[0], halfway, rtol=2e-5)
    remain = sum(old[a] for a in kept)
    thinned = remain + len(added) * halfway * old[0]
    expected = sum(old[a] * lies[a] for a in kept) / thinned
    values = scaling.values(tf.transpose(scaling.decode(logits), (0, 2, 1))).numpy()
    np.testing.assert_allclose(values, np.swapaxes(expected, 1, 2), rtol=1e-4, atol=1e-4 * scale[0])


def peaked_heads(scaling, at, width=1.5):
    """Heads that have learned values around `at`, in units of s: probabilities fall off on the bins beside it."""
    heads = some_heads(scaling.outputs_per_action, size=0.02)
    place = np.interp(at, scaling.support, np.arange(scaling.outputs_per_action))
    distance = np.abs(np.arange(scaling.outputs_per_action) - place) / width
    heads.bv.assign(np.tile(-np.minimum(distance**2, 25.0), (H, 1)))
    return heads


@pytest.mark.parametrize("at", [0.5, -3.0, 20.0])
@pytest.mark.parametrize("steps", [-5, 1, 5])
def test_learned_values_survive_moves(at, steps):
    scaling, _ = make()
    heads = peaked_heads(scaling, at)
    values = scaling.values(scaling.decode(heads(INPUTS))[:, :, 0]).numpy()
    assert (np.abs(values / at / scaling.scale.numpy() - 1.0) < 0.3).all()
    replaced(scaling, moments(np.exp(STEP * (steps + 0.3 * np.sign(steps)))))
    scaling.before_update(heads, None)
    assert not np.allclose(scaling.scale, root(moments()))
    found = scaling.values(scaling.decode(heads(INPUTS))[:, :, 0])
    np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5 * scaling.scale.numpy()[0])


def test_there_and_back_leaves_learned_values_as_they_were():
    scaling, _ = make()
    heads = peaked_heads(scaling, 2.0)
    values = scaling.values(scaling.decode(heads(INPUTS))[:, :, 0]).numpy()
    scale = scaling.scale.numpy()
    for power in (3.5, 8.5, 2.5, -4.5, 0.5):
        replaced(scaling, moments(np.exp(STEP * power)))
        scaling.before_update(heads, None)
    assert (np.abs(np.log(scaling.scale / scale)) < 1.01 * STEP).all()
    found = scaling.values(scaling.decode(heads(INPUTS))[:, :, 0])
    np.testing.assert_allclose(found, values, rtol=1e-5)


def test_a_sure_zero_stays_zero_whatever_the_scale_does():
    """Games without rewards for most of the time: merging neighbours into 0 by their mean logit would lose it."""
    scaling, _ = make()
    heads = peaked_heads(scaling, 0.0, width=0.3)
    for power in (1.5, 10.5, 30.5, -20.5):
        replaced(scaling, moments(np.exp(STEP * power)))
        scaling.before_update(heads, None)
        found = scaling.values(scaling.decode(heads(INPUTS))[:, :, 0]) / tf.cast(scaling.scale, tf.float32)
        assert np.abs(found).max() < 1e-6


def test_heads_move_one_by_one():
    """Weights to the last bit, and the other head's logits; moved logits but for the rounding of a matrix product."""
    scaling, heads = make()
    logits, weights, scale = heads(INPUTS).numpy(), last_layers(heads), scaling.scale.numpy()
    replaced(scaling, moments([1.0, np.exp(2.5 * STEP)]))
    scaling.before_update(heads, None)
    np.testing.assert_allclose(scaling.scale / scale, [1.0, np.exp(2 * STEP)])
    np.testing.assert_array_equal(heads(INPUTS)[:, 0], logits[:, 0])
    for now, old in ((slice(51, 99), slice(53, 101)), (slice(2, 50), slice(0, 48))):
        np.testing.assert_allclose(heads(INPUTS)[:, 1, :, now], logits[:, 1, :, old], rtol=1e-5, atol=1e-6)
        for moved, before in zip(last_layers(heads), weights, strict=True):
            np.testing.assert_array_equal(moved[0], before[0])
            np.testing.assert_array_equal(moved[1, :, now], before[1, :, old])


def test_the_target_network_keeps_its_scale_until_it_is_replaced():
    scaling, heads = make()
    first = scaling.scale.numpy()
    replaced(scaling, moments(100.0))
    scaling.before_update(heads, None)
    assert (scaling.scale.numpy() > 50 * first).all()
    np.testing.assert_array_equal(scaling.target_scale, first)
    np.testing.assert_allclose(scaling.values(tf.ones(H), target=True), first, rtol=1e-6)
    scaling.target_updated()
    np.testing.assert_array_equal(scaling.target_scale, scaling.scale)


def batch(size, seed=2):
    rewards = tf.constant(size * np.random.default_rng(seed).normal(size=(4, 3, H)), tf.float32)
    return rewards, ErrorContext(rewards, tf.ones_like(rewards), tf.ones((4, 3)), rewards, rewards)


@settings(deadline=None, max_examples=40)
@example(-100, 1, 1.0)
@example(100, 1, 1.0)
@given(exponent=st.integers(-100, 100), reports=st.integers(0, 3), drift=st.floats(1e-2, 1e2))
def test_rewards_times_a_power_of_two_leave_errors_losses_and_weights_to_the_last_bit(
    exponent, reports, drift
):
    """From the very first priorities on, for which there are no statistics yet."""
    found = []
    for factor in (1.0, 2.0**exponent):
        scaling, heads = ReturnSupport(H), some_heads(101)
        for report in range(reports):
            scaling.observe(moments(factor * drift**report, seed=report))
            scaling.before_update(heads, None)
        targets, of_batch = batch(factor)
        logits = tf.reshape(heads(INPUTS)[:4, :, :3], (4, 3, H, 101))
        errors = scaling.errors(targets, scaling.decode(logits), of_batch)
        found.append((errors, scaling.losses(errors, targets, logits, of_batch), heads.Wv, heads.ba))
    for plain, large in zip(*found, strict=True):
        np.testing.assert_array_equal(large, plain)


def test_errors_are_those_of_values_in_units_of_s():
    scaling, _ = make()
    targets, of_batch = batch(3.0)
    outputs = batch(1.0, seed=3)[0]
    expected = targets / scaling.scale.numpy().astype(np.float32) - outputs
    np.testing.assert_allclose(scaling.errors(targets, outputs, of_batch), expected, rtol=1e-5, atol=1e-6)


def test_a_batch_without_rewards_before_all_statistics_has_finite_errors_and_losses():
    scaling = ReturnSupport(H)
    targets, of_batch = batch(0.0)
    errors = scaling.errors(targets, batch(1.0)[0], of_batch)
    losses = scaling.losses(errors, targets, tf.zeros((4, 3, H, 101)), of_batch)
    np.testing.assert_array_equal(errors, np.zeros((4, 3, H)))
    np.testing.assert_allclose(losses, np.log(101.0), rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_and_xla_move_the_same(jit_compile):
    found = []
    for compiled in (False, True):
        scaling, heads = ReturnSupport(H), some_heads(101)
        before_update = scaling.before_update
        if compiled:
            before_update = tf.function(before_update, jit_compile=jit_compile)
        for size in (1.0, 30.0, 30.0, 0.3):
            replaced(scaling, moments(size))
            before_update(heads, None)
        found.append((heads(INPUTS), scaling.scale))
    for plain, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-6)


def test_a_checkpoint_resumes_statistics_and_units(tmp_path):
    scaling, heads = make()
    scaling.observe(moments(30.0))
    scaling.before_update(heads, None)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnSupport(H)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    assert not np.array_equal(scaling.scale, scaling.target_scale)
    for target in (False, True):
        np.testing.assert_array_equal(restored.values(tf.ones(H), target), scaling.values(tf.ones(H), target))
    for name, value in scaling.summaries().items():
        assert value.shape == (H,) and value.dtype == tf.float64
        np.testing.assert_array_equal(restored.summaries()[name], value, err_msg=name)
