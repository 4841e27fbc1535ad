"""G_t = R_t + gamma_t G_{t+1}."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments, discounted_returns


def recursion(rewards, discounts):
    returns, later = np.zeros(np.shape(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        returns[t] = later = rewards[t] + discounts[t] * later
    return returns


def test_by_hand():
    np.testing.assert_array_equal(discounted_returns([1, 2, 4], [0.5, 0.5, 0]), [3.0, 4.0, 4.0])


def test_discounts_above_one():
    rewards, discounts = np.zeros(3000), np.full(3000, 2.0)
    rewards[:3] = rewards[-3:] = 1.0
    discounts[500::1000] = 0.0
    found = discounted_returns(rewards, discounts)
    np.testing.assert_array_equal(found, recursion(rewards, discounts))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (1, 3), (2, 1)])
def test_shapes_are_kept(shape):
    returns = discounted_returns(np.ones(shape), np.zeros(shape))
    np.testing.assert_array_equal(returns, np.ones(shape))
    assert returns.dtype == np.float64


def test_what_is_too_small_for_float64_adds_nothing():
    """0.5^1100 is 0, and so is the square of 0.5^600; neither is an error."""
    once, discounts = np.append(np.zeros(2100), 1.0), np.full(2101, 0.5)
    with np.errstate(all="raise"):
        returns = discounted_returns(np.ones(2101), discounts)
        moments = ReturnMoments.from_episode(once, discounts)
        ReturnMoments.from_batch(once[:, None, None], discounts[:, None, None], np.ones((2101, 1)))
    np.testing.assert_allclose(returns[[0, -2, -1]], [2.0, 1.5, 1.0])
    assert moments.return_mean_square[0] == pytest.approx(4 / 3 / 2101)  # 1 + 1/4 + 1/16 + ...


def test_long_episodes():
    rewards = np.random.default_rng(0).normal(size=(2700, 5))
    discounts = np.tile([0.0, 0.9, 0.99, 0.999, 1.0], (2700, 1))
    np.testing.assert_allclose(
        discounted_returns(rewards, discounts), recursion(rewards, discounts), rtol=1e-12, atol=1e-12
    )


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 3))
def test_the_recursion(seed, steps, heads):
    rng = np.random.default_rng(seed)
    rewards, discounts = rng.uniform(-1e6, 1e6, (steps, heads)), rng.uniform(size=(steps, heads))
    discounts *= rng.uniform(size=discounts.shape) > 0.2
    expected, before = recursion(rewards, discounts), (rewards.copy(), discounts.copy())
    found = discounted_returns(rewards, discounts)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-6)
    found += 1.0
    np.testing.assert_array_equal((rewards, discounts), before)


@pytest.mark.parametrize(("name", "value"), [("rewards", np.nan), ("discounts", -np.inf)])
def test_what_is_not_finite_is_refused(name, value):
    columns = {"rewards": np.ones((20, 3)), "discounts": np.ones((20, 3))}
    columns[name][12, 2] = value
    with pytest.raises(ValueError, match=rf"{name} must be finite; got {value} at step 12, head 2"):
        discounted_returns(**columns)


def test_wrong_shapes():
    for rewards, discounts in (((3,), (4,)), ((3, 2), (3, 1)), ((), ()), ((2, 2, 2), (2, 2, 2))):
        with pytest.raises(ValueError, match=r"must all be \[T\] or all be \[T, H\]"):
            discounted_returns(np.ones(rewards), np.ones(discounts))
