"""Whitening across heads."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings import ErrorContext, JointScaling, ReturnBasedScaling
from rbs_tf.scalings.joint_moments import JointMoments

H = 3
SHAPE = (5, 4, H)
ROWS = (7, 4, H)  # two more for the n-step window
MIX = np.array([[1.0, 0.0, 0.0], [0.9, 0.5, 0.0], [0.3, -0.6, 0.8]])
SIZES = np.array([1.0, 1000.0, 0.05])


def context(rewards=None):
    rewards = tf.zeros(ROWS) if rewards is None else tf.constant(rewards, tf.float32)
    nothing = tf.zeros(SHAPE)
    return ErrorContext(rewards, tf.ones(ROWS), tf.ones(ROWS[:2]), nothing, nothing)


def correlated(seed=0, steps=400):
    """Rewards and discounts of one episode, [T, H], of heads that have something in common."""
    rewards = np.random.default_rng(seed).normal(size=(steps, H)) @ MIX.T * SIZES
    discounts = np.full((steps, H), [0.0, 0.9, 0.99])
    discounts[-1] = 0.0
    return rewards, discounts


def observe(scaling, rewards, discounts):
    returns = discounted_returns(rewards, discounts)
    moments, joint = (
        kind.merge(kind.from_steps(rewards, discounts), kind.from_returns(returns))
        for kind in (ReturnMoments, JointMoments)
    )
    scaling.observe(moments, joint=joint)
    return joint


def scaled(scaling, errors, batch=None, dtype=tf.float64):
    """Of errors [..., H] that are half in the targets and half in the outputs."""
    errors = tf.constant(errors, dtype)
    return scaling.errors(0.5 * errors, -0.5 * errors, batch or context()).numpy()


def some_errors(seed=1):
    return np.random.default_rng(seed).normal(size=SHAPE) * SIZES


def test_uncorrelated_heads_are_scaled_as_by_return_to_the_last_bit():
    """Rewards orthogonal over eight steps, and no discount that varies. Their sizes are powers of two: a fused
    multiply-add would leave something of products that others round."""
    signs = np.kron([[1, 1], [1, -1]], np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]]))
    rewards = signs[:, 1 : 1 + H] * [1.0, 1024.0, 2.0**-4]
    alone, joint = ReturnBasedScaling(H), JointScaling(H)
    alone.observe(ReturnMoments.from_steps(rewards, np.zeros_like(rewards)))
    observe(joint, rewards, np.zeros_like(rewards))
    for dtype in (tf.float32, tf.float64):
        np.testing.assert_array_equal(
            scaled(joint, some_errors(), dtype=dtype), scaled(alone, some_errors(), dtype=dtype)
        )


@pytest.mark.parametrize("dtype, atol", [(tf.float64, 1e-9), (tf.float32, 1e-5)])
def test_errors_of_values_of_zero_come_out_white(dtype, atol):
    """gamma = 0: errors are the rewards."""
    rewards, _ = correlated()
    scaling = JointScaling(H, sigma_v=1e-9, min_eigenvalue=1e-6)
    observe(scaling, rewards, np.zeros_like(rewards))
    white = scaled(scaling, rewards - rewards.mean(axis=0), dtype=dtype)
    assert white.dtype == dtype.as_numpy_dtype
    np.testing.assert_allclose(white.T @ white / len(white), np.eye(H), atol=atol)


def test_the_loss_is_the_mahalanobis_distance():
    """1/2 delta^T C^-1 delta, where no floor binds."""
    scaling = JointScaling(H, sigma_v=1e-9, min_eigenvalue=1e-6)
    inverse = np.linalg.inv(observe(scaling, *correlated()).sigma_squared)
    errors = some_errors()
    expected = 0.5 * np.einsum("...i,ij,...j", errors, inverse, errors)
    np.testing.assert_allclose(0.5 * np.square(scaled(scaling, errors)).sum(axis=-1), expected, rtol=1e-9)


def test_only_outputs_carry_a_gradient_and_it_is_that_of_the_loss():
    scaling = JointScaling(H, sigma_v=1e-9, min_eigenvalue=1e-6)
    inverse = np.linalg.inv(observe(scaling, *correlated()).sigma_squared)
    errors, rewards = some_errors(), tf.Variable(tf.zeros(ROWS))
    outputs = tf.Variable(-errors)
    with tf.GradientTape() as tape:
        batch = context()._replace(rewards=rewards)
        loss = 0.5 * tf.reduce_sum(tf.square(scaling.errors(tf.zeros_like(outputs), outputs, batch)))
    into_outputs, *others = tape.gradient(loss, (outputs, rewards, scaling.covariance))
    assert others == [None, None]
    np.testing.assert_allclose(into_outputs, -errors @ inverse, rtol=1e-9)


@given(st.integers(0, 1000), st.integers(-3, 3))
@settings(max_examples=10)
def test_multiplying_all_rewards_changes_nothing_while_no_floor_binds(seed, exponent):
    """Homogeneity: errors are multiplied as rewards are, and what scales them is as well."""
    rewards, discounts = correlated(seed, steps=50)
    plain, times = JointScaling(H, sigma_v=1e-9), JointScaling(H, sigma_v=1e-9)
    observe(plain, rewards, discounts)
    observe(times, 10.0**exponent * rewards, discounts)
    errors = some_errors(seed)
    np.testing.assert_allclose(scaled(times, 10.0**exponent * errors), scaled(plain, errors), rtol=1e-6)


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_the_order_of_heads_does_not_matter(order):
    rewards, discounts = correlated()
    plain, other = JointScaling(H), JointScaling(H)
    observe(plain, rewards, discounts)
    observe(other, rewards[:, order], discounts[:, order])
    errors = some_errors()
    np.testing.assert_allclose(
        scaled(other, errors[..., order]), scaled(plain, errors)[..., order], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("min_eigenvalue", [1.0, 0.1, 0.01])
def test_what_identical_heads_differ_in_is_amplified_so_far_and_no_further(min_eigenvalue):
    rewards, discounts = (x[:, [0, 0, 1]] for x in correlated())
    alone, joint = ReturnBasedScaling(H), JointScaling(H, min_eigenvalue=min_eigenvalue)
    alone.observe(ReturnMoments.from_episode(rewards, discounts))
    observe(joint, rewards, discounts)
    ratios = [
        np.linalg.norm(scaled(joint, errors), axis=-1) / np.linalg.norm(scaled(alone, errors), axis=-1)
        for errors in (some_errors(), np.broadcast_to([1.0, -1.0, 0.0], SHAPE))
    ]
    assert np.max(ratios) <= (1 + 1e-9) / np.sqrt(min_eigenvalue)
    np.testing.assert_allclose(ratios[1], 1 / np.sqrt(min_eigenvalue), rtol=1e-9)


def test_it_is_what_it_says():
    """P^(-1/2) D^(-1) delta, with a D that sigma, sigma_v and sigma_batch decide for one head each."""
    rewards = np.zeros(ROWS)
    rewards[..., 1] = 3000.0 * np.random.default_rng(2).normal(size=ROWS[:2])
    batch = context(rewards)._replace(discounts=tf.zeros(ROWS))
    scaling = JointScaling(H, min_eigenvalue=0.8)
    covariance = observe(scaling, *correlated()).sigma_squared
    scaling.layer.sigma_v.assign([1e-9, 1e-9, 0.1])
    deviation = rewards[..., 1].astype(np.float32).std(dtype=np.float64)
    d = np.array([np.sqrt(covariance[0, 0]), deviation, 0.1])
    assert (d[1:] > np.sqrt(np.diag(covariance))[1:]).all()
    correlations = covariance / np.outer(d, d)
    np.fill_diagonal(correlations, 1.0)
    values, vectors = np.linalg.eigh(correlations)
    assert values[0] < 0.8 < values[1]
    root = vectors @ np.diag(np.maximum(values, 0.8) ** -0.5) @ vectors.T
    errors = some_errors()
    np.testing.assert_allclose(scaled(scaling, errors, batch), errors / d @ root, rtol=1e-9, atol=1e-12)


def test_statistics_add_up():
    rewards, discounts = correlated()
    rewards[200:, 1] *= -1.0
    once, twice = JointScaling(H), JointScaling(H)
    observe(once, rewards, 0.0 * discounts)
    for part in (slice(0, 200), slice(200, 400)):
        observe(twice, rewards[part], 0.0 * discounts[part])
    np.testing.assert_allclose(scaled(twice, some_errors()), scaled(once, some_errors()), rtol=1e-9)


def test_floors_take_their_share_of_a_correlation():
    """P_ij = C_ij / (D_i D_j): a head whose D is far above its sigma stands alone."""
    rewards, discounts = correlated()
    scaling = JointScaling(H, sigma_v=1e-9, min_eigenvalue=1e-6)
    joint = observe(scaling, rewards, discounts)
    scaling.layer.sigma_v.assign([1e9, 1e-9, 1e-9])
    found = scaled(scaling, np.broadcast_to([1e9, 0.0, 0.0], SHAPE))
    np.testing.assert_allclose(found, np.broadcast_to([1.0, 0.0, 0.0], SHAPE), atol=1e-6)
    pair = joint.sigma_squared[1:, 1:]
    errors = some_errors() * [0.0, 1.0, 1.0]
    expected = np.einsum("...i,ij,...j", errors[..., 1:], np.linalg.inv(pair), errors[..., 1:])
    np.testing.assert_allclose(np.square(scaled(scaling, errors)).sum(axis=-1), expected, rtol=1e-6)


def test_before_any_statistics_errors_are_divided_by_the_floor():
    np.testing.assert_allclose(scaled(JointScaling(H, sigma_v=0.5), np.ones(SHAPE)), 2.0, rtol=1e-12)


def test_the_first_large_reward_is_harmless_before_the_statistics_have_it():
    rewards = np.zeros(ROWS)
    rewards[1, 0] = 1e6
    scaling = JointScaling(H)
    observe(scaling, *correlated())
    assert np.abs(scaled(scaling, rewards[:5], context(rewards))).max() < 10
    assert np.abs(scaled(scaling, rewards[:5])).max() > 1e3


def test_xla_equals_eager():
    """As far as errors of float32 go: XLA's eigh stops at about 1e-6 on CPUs."""
    for heads in ([0, 1, 2], [0, 0, 1]):
        rewards, discounts = (x[:, heads] for x in correlated())
        scaling = JointScaling(H)
        observe(scaling, rewards, discounts)
        targets, outputs = (tf.constant(some_errors(seed), tf.float32) for seed in (1, 2))
        compiled = tf.function(scaling.errors, jit_compile=True)
        batch = context(np.random.default_rng(3).normal(size=ROWS))
        eager = scaling.errors(targets, outputs, batch)
        np.testing.assert_allclose(
            compiled(targets, outputs, batch), eager, rtol=1e-5, atol=1e-5 * np.abs(eager).max()
        )


def test_summaries_tell_how_correlated_heads_are():
    rewards, _ = correlated()
    scaling = JointScaling(H)
    observe(scaling, rewards, np.zeros_like(rewards))
    found = {name: value.numpy() for name, value in scaling.summaries().items()}
    between = np.corrcoef(rewards, rowvar=False)
    largest = [abs(between[0, 1]), abs(between[0, 1]), abs(between[0, 2])]
    np.testing.assert_allclose(found["largest_correlation"], largest, rtol=1e-9)
    np.testing.assert_allclose(found["eigenvalue"], np.linalg.eigvalsh(between), rtol=1e-9)
    np.testing.assert_allclose(found["sigma"], rewards.std(axis=0), rtol=1e-9)


def test_a_restored_scaling_goes_on_as_if_it_had_never_stopped(tmp_path):
    scaling = JointScaling(H)
    observe(scaling, *correlated())
    scaling.initialise(tf.random.normal(SHAPE), tf.ones(SHAPE[:2]))
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = JointScaling(H)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for seed in (5, 6):
        np.testing.assert_array_equal(scaled(restored, some_errors()), scaled(scaling, some_errors()))
        for each in (scaling, restored):
            observe(each, *correlated(seed))


def test_statistics_without_pairs_of_heads_are_refused():
    scaling = JointScaling(H)
    moments = ReturnMoments.from_episode(*correlated())
    with pytest.raises(ValueError, match="needs the moments of pairs of heads"):
        scaling.observe(moments)
    with pytest.raises(ValueError, match="equally many heads merge; got 3 and 2"):
        scaling.observe(moments, joint=JointMoments.empty(2))
    np.testing.assert_array_equal(scaling.layer.sigma, np.zeros(H))


def test_options_out_of_range_are_refused():
    for value in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"min_eigenvalue must lie in \(0, 1\]"):
            JointScaling(H, min_eigenvalue=value)
