"""G_t = R_t + gamma_t G_{t+1}, and what n steps of it add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rbs_tf import discounted_returns
from rbs_tf.returns import n_step_sums

PAPER_DISCOUNTS = np.array([0.0, 0.9, 0.99, 0.999, 1.0])


def recursion(rewards, discounts):
    returns, later = np.zeros(np.shape(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        returns[t] = later = rewards[t] + discounts[t] * later
    return returns


def test_three_steps_by_hand():
    np.testing.assert_array_equal(discounted_returns([1, 2, 4], [0.5, 0.5, 0]), [3.0, 4.0, 4.0])


def test_discounts_above_one_whose_products_leave_float64_equal_the_recursion():
    rewards, discounts = np.zeros(3000), np.full(3000, 2.0)
    rewards[-3:], discounts[::1000] = 1.0, 0.0
    np.testing.assert_array_equal(discounted_returns(rewards, discounts), recursion(rewards, discounts))
    assert np.isfinite(discounted_returns(rewards, discounts)).all()


def test_what_goes_in_stays_as_it_was():
    rewards = np.ones(1)
    discounted_returns(rewards, np.zeros(1))[0] = 5.0
    assert rewards == [1.0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (1, 3), (2, 1)])
def test_the_shape_of_the_rewards_is_kept(shape):
    returns = discounted_returns(np.ones(shape), np.zeros(shape))
    np.testing.assert_array_equal(returns, np.ones(shape))
    assert returns.dtype == np.float64


@pytest.mark.parametrize("last", [0.0, 1.0])
def test_columns_of_constant_discounts_equal_the_recursion(last):
    rewards = np.random.default_rng(0).normal(size=(27000, 5))
    discounts = np.tile(PAPER_DISCOUNTS, (27000, 1))
    discounts[-1] *= last
    np.testing.assert_allclose(
        discounted_returns(rewards, discounts), recursion(rewards, discounts), rtol=1e-12, atol=1e-12
    )


@given(st.data(), st.integers(1, 30), st.integers(1, 3))
def test_arbitrary_discounts_equal_the_recursion(data, steps, heads):
    def draw(low, high):
        return data.draw(arrays.arrays(np.float64, (steps, heads), elements=st.floats(low, high)))

    rewards, discounts = draw(-1e6, 1e6), draw(0, 1) * (draw(0, 1) > 0.2)
    np.testing.assert_allclose(
        discounted_returns(rewards, discounts), recursion(rewards, discounts), rtol=1e-12, atol=1e-6
    )


def test_arguments_are_left_as_they_were():
    rewards, discounts = np.arange(6.0).reshape(3, 2), np.full((3, 2), [0.9, 0.3])
    before = rewards.copy(), discounts.copy()
    for d in (discounts, discounts * np.arange(3)[:, None]):
        discounted_returns(rewards, d)
    np.testing.assert_array_equal((rewards, discounts), before)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["rewards", "discounts"])
def test_what_is_not_finite_is_refused_by_name(name, value):
    columns = {"rewards": np.ones((20, 3)), "discounts": np.ones((20, 3))}
    columns[name][12, 2] = value
    with pytest.raises(ValueError, match=rf"{name} must be finite; got {value} at step 12, head 2"):
        discounted_returns(**columns)


@pytest.mark.parametrize(
    "rewards, discounts", [((3,), (4,)), ((3, 2), (3,)), ((3, 2), (3, 1)), ((), ()), ((2, 2, 2), (2, 2, 2))]
)
def test_shapes_that_do_not_fit_are_refused(rewards, discounts):
    with pytest.raises(ValueError, match=r"must all be \[T\] or all be \[T, H\]"):
        discounted_returns(np.ones(rewards), np.ones(discounts))


def looped_sums(rewards, discounts, n, ends):
    """Forward sums, step by step."""
    sums, products = np.zeros(rewards.shape), np.zeros(rewards.shape)
    for t in range(len(rewards)):
        total, product = 0.0, 1.0
        for k in range(t, min(t + n, len(rewards))):
            total, product = total + product * rewards[k], product * discounts[k]
            if ends[k]:
                break
        sums[t], products[t] = total, product
    return sums, products


def test_sums_of_three_by_hand():
    sums, products = n_step_sums([1, 2, 4, 8, 16], [0.5, 0.5, 0.5, 0.5, 0], 3)
    np.testing.assert_array_equal(sums, [1 + 1 + 1, 2 + 2 + 2, 4 + 4 + 4, 8 + 8, 16])
    np.testing.assert_array_equal(products, [0.125, 0.125, 0, 0, 0])


def test_a_time_out_leaves_the_discounts_of_the_steps_that_happened():
    ends = [False, True, False, False]
    sums, products = n_step_sums([1, 2, 4, 8], [0.5, 0.5, 0.5, 0.5], 3, ends=ends)
    np.testing.assert_array_equal(sums, [2, 2, 8, 8])
    np.testing.assert_array_equal(products, [0.25, 0.5, 0.25, 0.5])


@given(st.data(), st.integers(0, 20), st.integers(1, 3), st.integers(1, 25))
def test_n_step_sums_equal_the_forward_sums(data, steps, heads, n):
    def draw(elements, shape=(steps, heads)):
        return data.draw(arrays.arrays(np.float64, shape, elements=elements))

    rewards, discounts = draw(st.integers(-1000, 1000)) / 8.0, draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    ends = draw(st.integers(0, 1), (steps,)) > 0
    np.testing.assert_allclose(
        n_step_sums(rewards, discounts, n, ends=ends),
        looped_sums(rewards, discounts, n, ends),
        rtol=1e-9,
        atol=1e-9,
    )
    np.testing.assert_array_equal(
        n_step_sums(rewards, discounts, n),
        n_step_sums(rewards, discounts, n, ends=np.arange(steps) == steps - 1),
    )


@pytest.mark.parametrize("n", [200, 201, 10**9])
def test_sums_of_all_steps_that_there_are_are_returns(n):
    rewards, discounts = np.random.default_rng(0).normal(size=(200, 5)), np.tile(PAPER_DISCOUNTS, (200, 1))
    sums, products = n_step_sums(rewards, discounts, n)
    np.testing.assert_allclose(sums, discounted_returns(rewards, discounts), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(products, np.cumprod(discounts, axis=0)[::-1], rtol=1e-12)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (7,), (7, 2)])
def test_one_step_gives_back_what_went_in_and_may_be_written_to(shape):
    rewards, discounts = np.random.default_rng(1).normal(size=(2, *shape))
    before = rewards.copy(), discounts.copy()
    found = n_step_sums(rewards, discounts, 1)
    np.testing.assert_array_equal(found, before)
    for values in found:
        values[...] = 5.0
    np.testing.assert_array_equal((rewards, discounts), before)


def test_n_step_sums_refuse_what_they_cannot_add_up():
    with pytest.raises(ValueError, match="n counts steps and must be at least 1, got 0"):
        n_step_sums([1.0], [1.0], 0)
    with pytest.raises(ValueError, match=r"must all be \[T\] or all be \[T, H\]"):
        n_step_sums(np.ones((3, 2)), np.ones(3), 2)
    with pytest.raises(ValueError, match="discounts must be finite; got nan at step 1, head 0"):
        n_step_sums([1.0, 2.0], [1.0, np.nan], 2)
    with pytest.raises(ValueError, match=r"ends must be \[3\], one flag per step of \[3, 2\]; got \[3, 2\]"):
        n_step_sums(np.ones((3, 2)), np.ones((3, 2)), 2, ends=np.zeros((3, 2)))
