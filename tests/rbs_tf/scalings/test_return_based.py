"""Return-based scaling, and its options, all of which are off unless asked for; and no scaling."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings import ReturnBasedScaling, Scaling
from tests.rbs_tf.scalings.episodes import (
    ROWS,
    SHAPE,
    H,
    context,
    episode,
    head_layers,
    normal,
    scales,
)

INPUTS = np.random.default_rng(3).normal(size=(20, 6)).astype(np.float32)


def test_no_scaling_leaves_errors_values_and_rewards_as_they_are():
    scaling, targets, outputs = Scaling(H), normal(0), normal(1)
    np.testing.assert_array_equal(scaling.errors(targets, outputs, context()), targets - outputs)
    np.testing.assert_array_equal(scaling.values(outputs), outputs)
    np.testing.assert_array_equal(scaling.rewards(targets), targets)


def test_each_head_is_divided_by_its_own_sigma_and_before_any_statistics_by_the_floor():
    scaling = ReturnBasedScaling(H, sigma_v=0.5)
    np.testing.assert_allclose(scales(scaling, context()), 0.5)
    scaling.observe(episode())
    np.testing.assert_allclose(scales(scaling, context()), episode().sigma, rtol=1e-6)


def test_sigma_v_is_the_masked_spread_of_values_over_states_per_head():
    scaling, mask = ReturnBasedScaling(H), np.ones(SHAPE[:2])
    values = normal(1, [0.01, 5.0])
    mask[3:, 1] = 0
    values[3:, 1] = 1e9
    scaling.initialise(tf.constant(values), tf.constant(mask, tf.float32))
    np.testing.assert_allclose(scaling.layer.sigma_v, values[mask == 1].std(axis=0), rtol=1e-6)
    scaling.initialise(2.0 * values, tf.constant(mask, tf.float32), first=False)
    np.testing.assert_allclose(scaling.layer.sigma_v, values[mask == 1].std(axis=0), rtol=1e-6)


def test_values_that_do_not_vary_leave_the_floor_as_it_was():
    scaling = ReturnBasedScaling(H, sigma_v=0.3)
    scaling.initialise(tf.ones(SHAPE), tf.ones(SHAPE[:2]))
    np.testing.assert_allclose(scaling.layer.sigma_v, 0.3)


@pytest.mark.parametrize(
    "options", [{}, {"target_network_term": True}, {"half_life": 1e300}, {"value_bias": True}]
)
def test_options_without_effect_leave_errors_bit_for_bit(options):
    """Networks that agree, a half-life that never comes, a bias that is not the errors' business."""
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, **options)
    targets, outputs = tf.random.normal(SHAPE, seed=1), tf.random.normal(SHAPE, seed=2)
    for seed in range(3):
        for scaling in (plain, other):
            scaling.observe(episode(seed))
        np.testing.assert_array_equal(
            other.errors(targets, outputs, context()), plain.errors(targets, outputs, context())
        )


def test_by_default_there_is_no_other_state_and_the_heads_are_left_alone():
    scaling = ReturnBasedScaling(H)
    if not hasattr(tf.keras, "ops"):  # a module does not list the variables of Keras 3
        assert {variable.name for variable in scaling.variables} == {"statistics:0", "sigma_v:0"}
    scaling.observe(episode())
    scaling.before_update(None, None)


def test_the_gap_between_the_networks_enters_as_in_the_papers_formula():
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


@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-2, 6), seed=st.integers(0, 1000))
def test_with_the_gap_the_scale_is_homogeneous_and_never_smaller(exponent, seed):
    factor = 10.0**exponent
    gaps = np.random.default_rng(seed).normal(size=SHAPE) * 30.0
    plain = ReturnBasedScaling(H)
    with_gap, times = (ReturnBasedScaling(H, sigma_v=1e-9, target_network_term=True) for _ in range(2))
    plain.observe(episode(seed))
    with_gap.observe(episode(seed))
    times.observe(episode(seed, size=(factor, 100.0 * factor)))
    # Nothing but gaps, so that float32 values do not round them.
    batch = context()._replace(online_values=tf.zeros(SHAPE))
    small, large = (batch._replace(target_values=tf.constant(gaps * by, tf.float32)) for by in (1.0, factor))
    np.testing.assert_allclose(scales(times, large), factor * scales(with_gap, small), rtol=1e-5)
    assert (scales(with_gap, small) >= scales(plain, small)).all()


def test_the_floors_still_hold_beside_the_gap():
    scaling = ReturnBasedScaling(H, target_network_term=True)
    np.testing.assert_allclose(scales(scaling, context(np.full(SHAPE, 7.0))), 1e-2, rtol=1e-6)
    rewards = np.zeros(ROWS)
    rewards[1, 0] = 1e6
    assert scales(scaling, context(rewards=rewards)).min() > 1e5
    nothing = context(np.full(SHAPE, 7.0), np.zeros(ROWS[:2]))
    assert np.isfinite(scales(scaling, nothing)).all()


def test_each_heads_values_move_by_its_mean_return_once_in_both_networks():
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    before = [layer(INPUTS).numpy() for layer in layers]
    scaling.observe(ReturnMoments.from_steps(np.full((30, H), -5.0), np.ones((30, H))))
    scaling.before_update(*layers)
    for layer, old in zip(layers, before, strict=True):
        np.testing.assert_array_equal(layer(INPUTS), old, "no return has been seen")
    assert not scaling.biased.numpy().any()

    first = ReturnMoments.from_returns(np.random.default_rng(0).normal(size=(30, H)) + [-1000.0, 3.0])
    for moments in (first, episode(offset=(50.0, -50.0)), episode(1)):
        scaling.observe(moments)
        scaling.before_update(*layers)
        for layer, old in zip(layers, before, strict=True):
            np.testing.assert_allclose(layer(INPUTS) - old, moved(first), atol=1e-3)
    np.testing.assert_array_equal(scaling.summaries()["value_biased"], [1.0, 1.0])


def moved(moments):
    """[20, H, A]"""
    return np.broadcast_to(moments.mean_return[:, None], (len(INPUTS), H, 4))


def test_heads_get_their_bias_each_when_its_own_returns_are_there():
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    before = layers[0](INPUTS).numpy()
    fields = ReturnMoments.from_returns(np.full((3, H), 8.0)).to_array()
    fields[5:, 1] = 0.0
    scaling.observe(ReturnMoments.from_array(fields))
    scaling.before_update(*layers)
    np.testing.assert_array_equal(scaling.biased, [True, False])
    scaling.observe(ReturnMoments.from_returns(np.full((3, H), -4.0)))
    scaling.before_update(*layers)
    np.testing.assert_allclose((layers[0](INPUTS) - before).numpy()[0, :, 0], [8.0, -4.0], rtol=1e-5)


def test_after_a_restart_no_head_gets_its_bias_again(tmp_path):
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    scaling.observe(episode(offset=(10.0, 10.0)))
    scaling.before_update(*layers)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnBasedScaling(H, value_bias=True)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    before = layers[0](INPUTS).numpy()
    restored.before_update(*layers)
    np.testing.assert_array_equal(layers[0](INPUTS), before)


def test_statistics_count_half_after_a_half_life():
    scaling, old, new = ReturnBasedScaling(H, half_life=20), episode(0, 50), episode(1, 20)
    scaling.observe(old)
    scaling.observe(new)
    found = scaling.layer.moments
    np.testing.assert_allclose(found.count, 50 / 2 + 20)
    np.testing.assert_allclose(found.return_count, 50 / 2 + 20)

    # Twice the new beside the old is the same as the new beside half of the old.
    twice = ReturnMoments.merge(new, new)
    expected = ReturnMoments.merge(old, twice)
    for name in ("reward_variance", "discount_variance", "return_mean", "return_mean_square", "sigma"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    half_life=st.floats(0.5, 1e4),
    seed=st.integers(0, 1000),
)
def test_fading_statistics_are_weighted_moments_of_everything(lengths, half_life, seed):
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
    np.testing.assert_allclose(moments.count, share.sum(), rtol=1e-9)
    np.testing.assert_allclose(moments.reward_variance, variance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        moments.return_mean_square, np.average(np.square(everything), axis=0, weights=share), rtol=1e-9
    )


def test_returns_that_come_after_their_steps_do_not_age_anything():
    scaling = ReturnBasedScaling(H, half_life=1.0)
    scaling.observe(episode())
    before = scaling.layer.moments.count.numpy()
    scaling.observe(ReturnMoments.from_returns(np.ones((9, H))))
    np.testing.assert_array_equal(scaling.layer.moments.count, before)


def test_a_change_of_rewards_is_followed_and_without_half_life_remembered():
    tracking, all_time = ReturnBasedScaling(H, half_life=100), ReturnBasedScaling(H)
    for scaling in (tracking, all_time):
        for seed in range(20):
            scaling.observe(episode(seed, size=(1000.0, 1000.0)))
        for seed in range(60):
            scaling.observe(episode(seed, size=(1.0, 1.0)))
    assert (tracking.layer.sigma.numpy() < 5).all()
    assert (all_time.layer.sigma.numpy() > 400).all()


def test_a_half_life_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="half_life is a number of environment steps above 0"):
        ReturnBasedScaling(H, half_life=0)
