"""Statistics of steps and returns, and how they merge."""

import copy
import dataclasses
import functools
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rbs_tf import ReturnMoments, discounted_returns


def episode(rewards, gamma):
    """Arguments of from_episode: constant gamma, 0 at the end."""
    rewards = np.asarray(rewards, np.float64)
    discounts = np.full(rewards.shape, gamma)
    discounts[-1] = 0.0
    return rewards, discounts


def assert_same(a, b):
    for field in dataclasses.fields(ReturnMoments):
        x, y = getattr(a, field.name), getattr(b, field.name)
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9, err_msg=field.name)


def values(steps, heads=2):
    return arrays.arrays(np.float64, (steps, heads), elements=st.floats(-1e3, 1e3, width=32))


@st.composite
def moments(draw):
    """Of up to 12 steps, with returns or without."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps, make = draw(st.integers(0, 12)), draw(st.sampled_from(["from_episode", "from_steps"]))
    rewards = rng.normal(size=(steps, 2)) * 10.0 ** rng.uniform(-3, 3)
    return getattr(ReturnMoments, make)(rewards, rng.uniform(size=(steps, 2)))


def test_moments():
    rng = np.random.default_rng(1)
    rewards, discounts = rng.normal(2.0, 3.0, (30, 4)), rng.uniform(size=(30, 4))
    found = ReturnMoments.from_episode(rewards, discounts)
    returns = discounted_returns(rewards, discounts)
    for count in (found.count, found.return_count):
        np.testing.assert_array_equal(count, [30.0] * 4)
    for got, expected in (
        (found.reward_mean, rewards.mean(axis=0)),
        (found.reward_variance, rewards.var(axis=0)),
        (found.discount_mean, discounts.mean(axis=0)),
        (found.discount_variance, discounts.var(axis=0)),
        (found.mean_return, returns.mean(axis=0)),
        (found.return_mean_square, np.square(returns).mean(axis=0)),
        (found.sigma, np.sqrt(rewards.var(0) + discounts.var(0) * np.square(returns).mean(0))),
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-13)
    one = ReturnMoments.from_episode(rewards[:, 0], discounts[:, 0])  # one head needs no axis
    np.testing.assert_allclose(one.to_array(), found.to_array()[:, :1], rtol=1e-13)


@given(st.integers(1, 300), st.floats(0, 1), st.floats(-100, 100).filter(lambda c: abs(c) > 1e-3))
def test_closed_forms(steps, gamma, reward):
    """V[gamma] = (T - 1) / T^2 gamma^2; for rewards c and gamma 1, sigma^2 = c^2 (T-1)(T+1)(2T+1) / (6 T^2)."""
    found = ReturnMoments.from_steps(*episode(np.zeros(steps), gamma)).discount_variance
    np.testing.assert_allclose(found, (steps - 1) / steps**2 * gamma**2, rtol=1e-12, atol=1e-300)
    expected = reward**2 * (steps - 1) * (steps + 1) * (2 * steps + 1) / (6 * steps**2)
    found = ReturnMoments.from_episode(*episode(np.full(steps, reward), 1.0)).sigma_squared
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-20)


# A gamma whose square is denormal would be rounded: nothing is exact there.
@settings(max_examples=25)
@given(values(10), st.just(0.0) | st.floats(1e-6, 1), st.integers(-20, 20))
def test_sigma_is_homogeneous(rewards, gamma, exponent):
    plain = ReturnMoments.from_episode(*episode(rewards, gamma))
    scaled = ReturnMoments.from_episode(*episode(-rewards * 2.0**exponent, gamma))
    np.testing.assert_array_equal(scaled.sigma, plain.sigma * 2.0**exponent)
    np.testing.assert_array_equal(scaled.mean_return, -plain.mean_return * 2.0**exponent)


@settings(max_examples=50)
@given(moments(), moments(), moments())
def test_merge(a, b, c):
    merge, empty = ReturnMoments.merge, ReturnMoments.empty(2)
    assert_same(merge(a, b), merge(b, a))
    assert_same(merge(merge(a, b), c), merge(a, merge(b, c)))
    for merged in (merge(a, empty), merge(empty, a)):
        np.testing.assert_array_equal(merged.to_array(), a.to_array())


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 40), max_size=5))
def test_step_by_step_equals_all_at_once(seed, cuts):
    rng = np.random.default_rng(seed)
    rewards, discounts = rng.normal(size=(40, 2)), rng.uniform(size=(40, 2))
    cuts = [0, *sorted(cuts), 40]
    parts = [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    steps = [ReturnMoments.from_steps(rewards[p], discounts[p]) for p in parts]
    returns = discounted_returns(rewards, discounts)
    late = [ReturnMoments.from_returns(returns[p]) for p in reversed(parts)]
    streamed = functools.reduce(ReturnMoments.merge, steps + late, ReturnMoments.empty(2))
    assert_same(streamed, ReturnMoments.from_episode(rewards, discounts))


def test_a_large_mean_does_not_drown_the_spread():
    """The reason for float64 and centred moments: E[x^2] - E[x]^2 in float32 misses the variance of 1."""
    rewards = np.random.default_rng(0).normal(1e4, 1.0, size=100_000)
    chunks = [ReturnMoments.from_steps(chunk, np.zeros_like(chunk)) for chunk in np.split(rewards, 1000)]
    merged = functools.reduce(ReturnMoments.merge, chunks)
    np.testing.assert_allclose(merged.reward_variance, rewards.var(), rtol=1e-10)


@given(moments())
def test_arrays_and_pickles_lead_back(a):
    for again in (ReturnMoments.from_array(a.to_array()), pickle.loads(pickle.dumps(a))):
        np.testing.assert_array_equal(again.to_array(), a.to_array())
    assert a.to_array().shape == (8, 2)


def test_they_cannot_be_changed():
    """Nor can their copies, which are checked again."""
    rows = np.arange(16.0).reshape(8, 2)
    frozen = ReturnMoments.from_array(rows)
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.count = np.zeros(2)
    rows[0, 0] = 7.0
    assert frozen.count[0] == 0.0
    for each in (frozen, pickle.loads(pickle.dumps(frozen)), copy.copy(frozen), copy.deepcopy(frozen)):
        assert not any(values.flags.writeable for values in each)
    with pytest.raises(ValueError, match="count must be at least 0; got -1.0 for head 1"):
        ReturnMoments.empty(2).__setstate__({**vars(frozen), "count": np.array([1.0, -1.0])})


def test_what_does_not_fit_is_refused():
    make, rows, infinite, huge = ReturnMoments, np.ones((8, 2)), np.ones((8, 3)), np.ones((8, 1))
    infinite[3, 1] = np.inf
    huge[[4, 7]] = 1e200  # V[gamma] E[G^2]
    for build, complaint in (
        (lambda: make.from_episode([1.0, np.nan], [1.0, 0.0]), "rewards must be finite; got nan at step 1"),
        (lambda: make.from_returns([[0.0, np.nan]]), "returns must be finite; got nan at step 0, head 1"),
        (lambda: make.from_returns(["1", "2"]), "returns must be real numbers; got <U1"),
        (lambda: make.from_steps([[1.0], [1.0, 2.0]], [1.0, 0.0]), "rewards must be real numbers"),
        (lambda: make.from_array(infinite), "discount_mean must be finite; got inf for head 1"),
        (lambda: make.from_array(huge), "moments must have a finite sigma"),
        (lambda: make.from_array(np.zeros(8)), r"moments are an array \[8, H\]"),
        (lambda: make(*rows[:7], np.ones(1)), r"return_mean_square must be \[H\], one number per head"),
        (lambda: make.merge(make.empty(2), make.empty(1)), "equally many heads merge; got 2 and 1"),
    ):
        with pytest.raises(ValueError, match=complaint):
            build()
    for field, name in enumerate(field.name for field in dataclasses.fields(ReturnMoments)):
        below = rows.copy()
        below[field, 1] = -1e-9
        if name.endswith("mean"):
            assert ReturnMoments.from_array(below).to_array()[field, 1] == -1e-9
        else:
            with pytest.raises(ValueError, match=f"{name} must be at least 0; got -1e-09 for head 1"):
                ReturnMoments.from_array(below)
    assert ReturnMoments.from_returns([Fraction(1, 2), 1]).return_mean == 0.75
