"""Statistics over pairs of heads, and how they merge."""

import functools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings.joint_moments import JointMoments

H = 3


def everything(rewards, discounts, kind=JointMoments):
    returns = discounted_returns(rewards, discounts)
    return kind.merge(kind.from_steps(rewards, discounts), kind.from_returns(returns))


def assert_same(a, b):
    np.testing.assert_allclose(a.to_array(), b.to_array(), rtol=1e-9, atol=1e-6)


@st.composite
def columns(draw, steps, largest=1000):
    """Random numbers of a random size, whole thousandths; many equal ones among the small."""
    rng, size = np.random.default_rng(draw(st.integers(0, 10**6))), draw(st.integers(0, 1000 * largest))
    return rng.integers(-size, size, (steps, H), endpoint=True) / 1000.0


@st.composite
def moments(draw):
    steps = draw(st.integers(0, 12))
    make = draw(st.sampled_from([everything, JointMoments.from_steps]))
    return make(draw(columns(steps)), draw(columns(steps, 1)))


@given(st.data(), st.integers(1, 20))
def test_covariances_are_those_of_the_population_over_every_step_and_return(data, steps):
    rewards, discounts = data.draw(columns(steps)), data.draw(columns(steps, 1))
    found = everything(rewards, discounts)
    np.testing.assert_array_equal(found.count, [steps] * H)
    np.testing.assert_array_equal(found.return_count, [steps] * H)
    np.testing.assert_allclose(found.reward_mean, rewards.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(found.discount_mean, discounts.mean(axis=0), atol=1e-12)
    returns = discounted_returns(rewards, discounts)
    products = sum(np.outer(g, g) for g in returns) / steps
    cov_of_rewards, cov_of_discounts = (np.cov(x.T, ddof=0) for x in (rewards, discounts))
    expected = cov_of_rewards + cov_of_discounts * products
    np.testing.assert_allclose(found.sigma_squared, expected, rtol=1e-9, atol=1e-6)


@given(st.data(), st.integers(1, 20))
def test_the_diagonal_is_that_of_each_head_alone(data, steps):
    args = data.draw(columns(steps)), data.draw(columns(steps, 1))
    alone = everything(*args, kind=ReturnMoments).sigma_squared
    np.testing.assert_allclose(np.diag(everything(*args).sigma_squared), alone, rtol=1e-12, atol=1e-9)


@given(moments())
def test_sigma_squared_is_a_covariance_matrix(a):
    found = a.sigma_squared
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found).min() >= -1e-12 * (1.0 + np.trace(found))


@given(moments(), moments())
def test_merging_is_commutative(a, b):
    assert_same(JointMoments.merge(a, b), JointMoments.merge(b, a))


@given(moments(), moments(), moments())
def test_merging_is_associative(a, b, c):
    merge = JointMoments.merge
    assert_same(merge(merge(a, b), c), merge(a, merge(b, c)))


@given(moments())
def test_nothing_merges_without_a_trace(a):
    empty = JointMoments.empty(H)
    for merged in (JointMoments.merge(a, empty), JointMoments.merge(empty, a)):
        np.testing.assert_array_equal(merged.to_array(), a.to_array())


@given(st.data(), st.lists(st.integers(0, 20), max_size=5))
def test_step_by_step_equals_all_at_once(data, cuts):
    rewards, discounts = data.draw(columns(20)), data.draw(columns(20, 1))
    returns = discounted_returns(rewards, discounts)
    cuts = [0, *sorted(cuts), 20]
    parts = [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    steps = [JointMoments.from_steps(rewards[p], discounts[p]) for p in parts]
    late = [JointMoments.from_returns(returns[p]) for p in reversed(parts)]
    assert_same(functools.reduce(JointMoments.merge, steps + late), everything(rewards, discounts))


def test_large_means_do_not_drown_the_covariance():
    rewards = np.random.default_rng(0).multivariate_normal([1e8, -1e8], [[1.0, 0.5], [0.5, 2.0]], 10_000)
    chunks = [JointMoments.from_steps(chunk, np.zeros_like(chunk)) for chunk in np.split(rewards, 100)]
    found = functools.reduce(JointMoments.merge, chunks).sigma_squared
    np.testing.assert_allclose(found, np.cov(rewards - [1e8, -1e8], rowvar=False, ddof=0), rtol=1e-7)


def test_before_the_first_step_there_is_no_covariance():
    np.testing.assert_array_equal(JointMoments.empty(H).sigma_squared, np.zeros((H, H)))
    assert JointMoments.from_steps(np.zeros((0, H)), np.zeros((0, H))).num_heads == H


@given(moments())
def test_arrays_and_pickles_lead_back(a):
    for copy in (JointMoments.from_array(a.to_array()), pickle.loads(pickle.dumps(a))):
        np.testing.assert_array_equal(copy.to_array(), a.to_array())
        assert_same(JointMoments.merge(copy, a), JointMoments.merge(a, a))
    assert a.to_array().shape == (4 + 3 * H, H) and a.to_array().dtype == np.float64


def test_moments_cannot_change():
    rows = np.arange(10.0 * 2).reshape(10, 2)
    frozen = JointMoments.from_array(rows)
    with pytest.raises(ValueError, match="read-only"):
        frozen.reward_comoment[0] = 7.0
    rows[:] = 7.0
    np.testing.assert_array_equal(frozen.reward_comoment, [[8.0, 9.0], [10.0, 11.0]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match=rf"rewards must be finite; got {value} at step 1, head 0"):
        JointMoments.from_steps([1.0, value], [1.0, 0.0])
    with pytest.raises(ValueError, match=rf"returns must be finite; got {value} at step 0, head 1"):
        JointMoments.from_returns([[0.0, value]])
    rows = np.ones((4 + 3 * H, H))
    rows[2, 1] = value
    with pytest.raises(ValueError, match=rf"discount_mean must be finite; got {value} for head 1"):
        JointMoments.from_array(rows)
    rows[2, 1], rows[5, 2] = 1.0, value
    with pytest.raises(ValueError, match=rf"reward_comoment must be finite; got {value} for heads 1, 2"):
        JointMoments.from_array(rows)


def test_other_numbers_of_heads_or_rows_are_refused():
    with pytest.raises(ValueError, match="equally many heads merge; got 2 and 1"):
        JointMoments.merge(JointMoments.empty(2), JointMoments.empty(1))
    for shape in ((9, 2), (8, 2), (10,)):
        with pytest.raises(ValueError, match=r"joint moments are an array \[4 \+ 3 H, H\]"):
            JointMoments.from_array(np.zeros(shape))
