"""Rewards divided by their largest or mean size, against NumPy that divides the rewards themselves."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings import ErrorContext, MaxReward, MeanAbsReward
from rbs_tf.scalings.magnitudes import Magnitudes

H = 2
SHAPE = (5, 3, H)
BOTH = pytest.mark.parametrize("kind", [MaxReward, MeanAbsReward])


def some(seed, size=1.0, shape=SHAPE):
    return (size * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def observe(scaling, rewards, discounts=None):
    """Steps [T, H] of one episode, as the agent hands them on."""
    discounts = np.full_like(rewards, 0.9) if discounts is None else discounts
    sizes = Magnitudes.merge(
        Magnitudes.from_steps(rewards, discounts),
        Magnitudes.from_returns(discounted_returns(rewards, discounts)),
    )
    scaling.observe(ReturnMoments.from_episode(rewards, discounts), magnitudes=sizes)


def context(rewards, mask=None):
    rewards = tf.constant(rewards, tf.float32)
    mask = tf.ones(rewards.shape[:2]) if mask is None else tf.constant(mask, tf.float32)
    return ErrorContext(rewards, tf.fill(rewards.shape, 0.9), mask, *[tf.zeros_like(rewards)] * 2)


def one_step_errors(scaling, rewards, outputs, next_outputs):
    """As the agent computes them: discount 0.9, the target network's outputs after each step."""
    targets = scaling.rewards(tf.constant(rewards)) + 0.9 * scaling.values(tf.constant(next_outputs), True)
    return scaling.errors(targets, tf.constant(outputs), context(rewards)).numpy()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), exponents=st.lists(st.floats(-4, 6), min_size=1, max_size=4))
def test_max_reward_divides_rewards_by_the_largest_of_all_so_far(seed, exponents):
    scaling, seen = MaxReward(H), []
    for index, exponent in enumerate(exponents):
        seen.append(some((seed, index), 10.0**exponent, (20, H)))
        observe(scaling, seen[-1])
        s = np.abs(np.concatenate(seen).astype(np.float64)).max(axis=0)
        rewards, q, q_next = (some((seed, index, n)) for n in range(3))
        expected = rewards / s + 0.9 * q_next - q
        np.testing.assert_allclose(
            one_step_errors(scaling, rewards, q, q_next), expected, rtol=1e-4, atol=1e-4
        )
        np.testing.assert_array_equal(scaling.summaries()["reward_scale"], s)
        assert np.abs(seen[-1] / s).max() <= 1.0


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1000), events=st.lists(st.sampled_from(["steps", "update", "target"]), max_size=20)
)
def test_mean_abs_reward_follows_mrq(seed, events):
    """Against MR.Q's own bookkeeping, but for the first scale: `target_reward_scale` and `reward_scale` in turn."""
    scaling, seen = MeanAbsReward(H), []
    s, s_target = np.zeros(H), np.zeros(H)
    for index, event in enumerate(["update", "steps", "update", *events]):
        mean = np.abs(np.concatenate(seen)).mean(axis=0) if seen else np.zeros(H)
        if event == "steps":
            seen.append(some((seed, index), 10.0 ** (index % 5 - 1), (10, H)).astype(np.float64))
            observe(scaling, seen[-1])
        elif event == "update":
            scaling.before_update(None, None)
            s, s_target = np.where(s == 0, mean, s), np.where(s_target == 0, mean, s_target)
        else:
            scaling.target_updated()
            s, s_target = mean, s
        np.testing.assert_allclose(scaling.online, s, rtol=1e-12)
        np.testing.assert_allclose(scaling.target, s_target, rtol=1e-12)
    rewards, q, q_next = (some((seed, n)) for n in range(3))
    expected = (rewards + 0.9 * q_next * s_target) / s - q
    np.testing.assert_allclose(one_step_errors(scaling, rewards, q, q_next), expected, rtol=1e-4, atol=1e-4)


@BOTH
def test_a_head_that_has_seen_no_reward_has_values_of_0_and_finite_errors(kind):
    scaling = kind(H)
    observe(scaling, np.array([[0.0, 3.0]] * 4))
    scaling.before_update(None, None)
    q = some(0)
    np.testing.assert_array_equal(scaling.values(q)[..., 0], 0.0)
    assert (scaling.values(q)[..., 1].numpy() != 0.0).all()
    errors = one_step_errors(scaling, np.zeros(SHAPE, np.float32), q, some(1))
    np.testing.assert_array_equal(errors[..., 0], -q[..., 0])


@BOTH
@settings(deadline=None, max_examples=30)
@given(exponent=st.integers(-60, 60), reports=st.integers(0, 3))
def test_rewards_times_a_power_of_two_leave_errors_as_they_are_to_the_last_bit(kind, exponent, reports):
    """From the very first priorities on, for which there are no statistics yet."""
    found = []
    for factor in (1.0, 2.0**exponent):
        scaling = kind(H)
        for seed in range(reports):
            observe(scaling, factor * some(seed, 10.0**seed, (20, H)).astype(np.float64))
            scaling.before_update(None, None)
            scaling.target_updated()
        found.append(one_step_errors(scaling, np.float32(factor) * some(7), some(8), some(9)))
    np.testing.assert_array_equal(found[1], found[0])


@BOTH
def test_padding_has_no_say_in_the_unit_of_first_priorities(kind):
    rewards, mask = some(0), np.ones(SHAPE[:2])
    mask[3:, 1] = 0
    clean, dirty = rewards.copy(), rewards.copy()
    clean[3:, 1], dirty[3:, 1] = 0.0, np.inf
    a, b = (kind(H).errors(rewards, some(1), context(x, mask)) for x in (clean, dirty))
    np.testing.assert_array_equal(a, b)
    root_mean_square = np.sqrt(np.square(rewards[mask == 1], dtype=np.float64).mean(axis=0))
    np.testing.assert_allclose(a, rewards / root_mean_square - some(1), rtol=1e-4, atol=1e-5)


@BOTH
def test_only_the_outputs_carry_gradients(kind):
    scaling, outputs = kind(H), tf.Variable(some(0))
    observe(scaling, some(1, 30.0, (20, H)))
    scaling.before_update(None, None)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(scaling.errors(some(2), outputs, context(some(3))))
    np.testing.assert_allclose(tape.gradient(total, outputs), np.full(SHAPE, -1.0), rtol=1e-6)


@BOTH
def test_xla_equals_eager_and_reads_statistics_anew(kind):
    scaling = kind(H)
    targets, outputs = some(0, 10.0), some(1)
    compiled = tf.function(scaling.errors, jit_compile=True)
    for size in (1.0, 100.0):
        observe(scaling, some(2, size, (20, H)))
        scaling.before_update(None, None)
        scaling.target_updated()
        np.testing.assert_allclose(
            compiled(targets, outputs, context(some(3))),
            scaling.errors(targets, outputs, context(some(3))),
            rtol=1e-5,
            atol=1e-5,
        )


@BOTH
def test_a_restored_scaling_goes_on_as_if_it_had_never_stopped(kind, tmp_path):
    scaling, restored = kind(H), kind(H)
    observe(scaling, some(0, 5.0, (20, H)))
    scaling.before_update(None, None)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for each in (scaling, restored):
        observe(each, some(1, 50.0, (20, H)))
        each.target_updated()
    assert {variable.dtype for variable in scaling.variables} == {tf.float64}
    for a, b in zip(scaling.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(b, a)


@BOTH
def test_moments_alone_do_not_do(kind):
    scaling = kind(H)
    with pytest.raises(ValueError, match="needs the sizes of rewards"):
        scaling.observe(ReturnMoments.empty(H))
    assert scaling.needs == {"magnitudes": Magnitudes}
