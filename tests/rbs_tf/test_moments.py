"""Statistics of steps and returns, and how they merge."""

import dataclasses
import functools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rbs_tf import ReturnMoments, discounted_returns
from tests.source_tree import ROOT


def episode(rewards, gamma):
    """Arguments of from_episode: constant gamma, 0 at the end."""
    rewards = np.asarray(rewards, np.float64)
    discounts = np.full(rewards.shape, gamma)
    discounts[-1] = 0.0
    return rewards, discounts


def assert_same(a, b, rtol=1e-9, atol=1e-9):
    for field in dataclasses.fields(ReturnMoments):
        x, y = getattr(a, field.name), getattr(b, field.name)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=field.name)


def values(steps, heads=2):
    return arrays.arrays(np.float64, (steps, heads), elements=st.floats(-1e3, 1e3, width=32))


@st.composite
def moments(draw):
    steps = draw(st.integers(0, 12))
    discounts = draw(arrays.arrays(np.float64, (steps, 2), elements=st.floats(0, 1)))
    make = draw(st.sampled_from([ReturnMoments.from_episode, ReturnMoments.from_steps]))
    return make(draw(values(steps)), discounts)


@given(st.integers(1, 500), st.floats(0, 1))
def test_variance_of_gamma_in_an_episode_of_fixed_length(steps, gamma):
    """V[gamma] = (T - 1) / T^2 gamma^2."""
    found = ReturnMoments.from_steps(*episode(np.zeros(steps), gamma)).discount_variance
    np.testing.assert_allclose(found, (steps - 1) / steps**2 * gamma**2, rtol=1e-12, atol=1e-300)


def test_sigma_of_a_constant_reward():
    """T = 100, gamma = 1, every reward -5: sigma^2 = c^2 (T-1)(T+1)(2T+1) / (6 T^2) = 837.41625."""
    assert ReturnMoments.from_episode(*episode(np.full(100, -5.0), 1.0)).sigma_squared == pytest.approx(
        837.41625, rel=1e-14
    )


@given(st.integers(1, 300), st.floats(-100, 100).filter(lambda c: abs(c) > 1e-3))
def test_closed_form_of_sigma_for_constant_rewards(steps, reward):
    expected = reward**2 * (steps - 1) * (steps + 1) * (2 * steps + 1) / (6 * steps**2)
    found = ReturnMoments.from_episode(*episode(np.full(steps, reward), 1.0)).sigma_squared
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-20)


def test_without_a_future_sigma_is_the_spread_of_rewards():
    """gamma = 0, or episodes of one step each: sigma^2 = V[R]."""
    rewards = np.random.default_rng(0).normal(3.0, 2.0, size=50)
    bandit = functools.reduce(
        ReturnMoments.merge, [ReturnMoments.from_episode(*episode([r], 0.9)) for r in rewards]
    )
    for found in (ReturnMoments.from_episode(*episode(rewards, 0.0)), bandit):
        np.testing.assert_allclose(found.sigma, rewards.std(), rtol=1e-13)


STEPS = np.arange(100)
REFERENCE = np.sin(2 * np.pi * STEPS / 50)
SHUFFLED = discounted_returns(*episode(REFERENCE, 0.97))[(37 * STEPS + 11) % 100]
SCENARIOS = {
    "reference": (REFERENCE, 0.97, 0.938559),
    "a: rewards times 10": (10 * REFERENCE, 0.97, 9.385591),
    "b: rewards plus 1": (REFERENCE + 1, 0.97, 2.418580),
    "c: returns in another order": (SHUFFLED - 0.97 * np.append(SHUFFLED[1:], 0.0), 0.97, 8.665123),
    "d: dense rewards": (STEPS % 2 == 0, 0.97, 1.282238),
    "d: one sparse reward": (STEPS == 99, 0.97, 0.107110),
    "e: short horizon": (REFERENCE, 0.9, 0.822584),
    "e: long horizon": (REFERENCE, 0.999, 1.174584),
    "f: five steps in one": (REFERENCE.reshape(20, 5).sum(axis=1), 0.97, 3.906294),
    "f: and gamma to match": (REFERENCE.reshape(20, 5).sum(axis=1), 0.97**5, 3.709643),
}


@pytest.mark.parametrize("rewards, gamma, sigma", SCENARIOS.values(), ids=SCENARIOS)
def test_scenarios_of_section_2(rewards, gamma, sigma):
    assert ReturnMoments.from_episode(*episode(rewards, gamma)).sigma == pytest.approx(sigma, abs=1e-6)


@given(values(20), st.floats(0, 1), st.floats(1e-3, 1e3), st.sampled_from([-1.0, 1.0]))
def test_sigma_is_homogeneous_of_degree_one_in_the_rewards(rewards, gamma, factor, sign):
    plain = ReturnMoments.from_episode(*episode(rewards, gamma))
    scaled = ReturnMoments.from_episode(*episode(sign * factor * rewards, gamma))
    np.testing.assert_allclose(scaled.sigma, factor * plain.sigma, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaled.mean_return, sign * factor * plain.mean_return, rtol=1e-9, atol=1e-9)


# A gamma whose square is denormal would be rounded: nothing is exact there.
@given(values(20), st.just(0.0) | st.floats(1e-6, 1), st.integers(-20, 20))
def test_and_exactly_so_for_powers_of_two(rewards, gamma, exponent):
    plain = ReturnMoments.from_episode(*episode(rewards, gamma))
    scaled = ReturnMoments.from_episode(*episode(rewards * 2.0**exponent, gamma))
    np.testing.assert_array_equal(scaled.sigma, plain.sigma * 2.0**exponent)


@given(moments(), moments())
def test_merging_is_commutative(a, b):
    assert_same(ReturnMoments.merge(a, b), ReturnMoments.merge(b, a))


@given(moments(), moments(), moments())
def test_merging_is_associative(a, b, c):
    merge = ReturnMoments.merge
    assert_same(merge(merge(a, b), c), merge(a, merge(b, c)))


@given(moments())
def test_nothing_merges_without_a_trace(a):
    empty = ReturnMoments.empty(2)
    for merged in (ReturnMoments.merge(a, empty), ReturnMoments.merge(empty, a)):
        np.testing.assert_array_equal(merged.to_array(), a.to_array())


@given(st.data(), st.lists(st.integers(0, 40), max_size=5))
def test_step_by_step_equals_all_at_once(data, cuts):
    rewards = data.draw(values(40))
    discounts = data.draw(arrays.arrays(np.float64, (40, 2), elements=st.floats(0, 1)))
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
    single = rewards.astype(np.float32)
    naive = np.mean(np.square(single)) - np.square(np.mean(single))
    assert abs(naive - 1.0) >= 1.0  # a multiple of 8, like all float32 near 1e8, whatever the order of sums
    chunks = [ReturnMoments.from_steps(chunk, np.zeros_like(chunk)) for chunk in np.split(rewards, 1000)]
    merged = functools.reduce(ReturnMoments.merge, chunks)
    np.testing.assert_allclose(merged.reward_variance, rewards.var(), rtol=1e-10)


def test_moments_are_those_of_the_population_over_every_step_and_return():
    rng = np.random.default_rng(1)
    rewards, discounts = rng.normal(2.0, 3.0, (30, 4)), rng.uniform(size=(30, 4))
    found = ReturnMoments.from_episode(rewards, discounts)
    returns = discounted_returns(rewards, discounts)
    np.testing.assert_array_equal(found.count, [30.0] * 4)
    np.testing.assert_array_equal(found.return_count, [30.0] * 4)
    np.testing.assert_allclose(found.reward_variance, rewards.var(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.discount_variance, discounts.var(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.mean_return, returns.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.return_mean_square, np.square(returns).mean(axis=0), rtol=1e-13)
    expected = rewards.var(axis=0) + discounts.var(axis=0) * np.square(returns).mean(axis=0)
    np.testing.assert_allclose(found.sigma, np.sqrt(expected), rtol=1e-13)


def test_one_head_needs_no_axis():
    rewards, discounts = episode([1.0, 2.0, 3.0], 0.9)
    assert_same(
        ReturnMoments.from_episode(rewards, discounts),
        ReturnMoments.from_episode(rewards[:, None], discounts[:, None]),
    )


@given(moments())
def test_arrays_and_pickles_lead_back(a):
    for copy in (ReturnMoments.from_array(a.to_array()), pickle.loads(pickle.dumps(a))):
        np.testing.assert_array_equal(copy.to_array(), a.to_array())
    assert a.to_array().shape == (8, 2)


def test_they_cannot_be_changed():
    rows = np.arange(16.0).reshape(8, 2)
    frozen = ReturnMoments.from_array(rows)
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.count = np.zeros(2)
    with pytest.raises(ValueError, match="read-only"):
        frozen.count[0] = 7.0
    rows[0, 0] = 7.0
    assert frozen.count[0] == 0.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(value):
    for make in (ReturnMoments.from_episode, ReturnMoments.from_steps):
        with pytest.raises(ValueError, match=rf"rewards must be finite; got {value} at step 1, head 0"):
            make([1.0, value], [1.0, 0.0])
        with pytest.raises(ValueError, match=rf"discounts must be finite; got {value} at step 0, head 0"):
            make([1.0, 1.0], [value, 0.0])
    with pytest.raises(ValueError, match=rf"returns must be finite; got {value} at step 0, head 1"):
        ReturnMoments.from_returns([[0.0, value]])
    rows = np.ones((8, 3))
    rows[3, 1] = value
    with pytest.raises(ValueError, match=rf"discount_mean must be finite; got {value} for head 1"):
        ReturnMoments.from_array(rows)


@pytest.mark.filterwarnings("ignore:overflow")
def test_moments_beyond_float64_are_refused():
    with pytest.raises(ValueError, match="reward_m2 must be finite; got inf"):
        ReturnMoments.from_steps([1e200, -1e200], [1.0, 0.0])


def test_other_numbers_of_heads_or_rows_are_refused():
    with pytest.raises(ValueError, match="equally many heads merge; got 2 and 1"):
        ReturnMoments.merge(ReturnMoments.empty(2), ReturnMoments.empty(1))
    for shape in ((7, 2), (8,)):
        with pytest.raises(ValueError, match=r"moments are an array \[8, H\]"):
            ReturnMoments.from_array(np.zeros(shape))


def test_statistics_and_returns_need_no_tensorflow():
    script = (
        "import sys, rbs_tf; assert 'scipy' not in sys.modules and rbs_tf.__version__ and dir(rbs_tf);"
        "rbs_tf.ReturnMoments.from_episode([1.0, 2.0], [0.9, 0.0]); rbs_tf.discounted_returns([1.0], [0.0]);"
        "print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
