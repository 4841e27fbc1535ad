"""Sizes of rewards and returns, and how they merge."""

import functools
import pickle

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from rbs_tf.scalings.magnitudes import Magnitudes, take_in

H = 3


@st.composite
def columns(draw, most=12):
    """Whole thousandths of a random size; many equal ones among the small."""
    rng, size = np.random.default_rng(draw(st.integers(0, 10**6))), draw(st.integers(0, 10**6))
    return rng.integers(-size, size, (draw(st.integers(0, most)), H), endpoint=True) / 1000.0


@st.composite
def magnitudes(draw):
    steps, returns = draw(columns()), draw(columns())
    return Magnitudes.merge(Magnitudes.from_steps(steps, 0 * steps), Magnitudes.from_returns(returns))


def assert_same(a, b):
    np.testing.assert_allclose(a.to_array(), b.to_array(), rtol=1e-12, atol=1e-12)


@given(columns(), columns())
def test_they_are_means_and_maxima_of_absolute_values(rewards, returns):
    found = Magnitudes.merge(Magnitudes.from_steps(rewards, 0 * rewards), Magnitudes.from_returns(returns))
    np.testing.assert_array_equal(found.count, [len(rewards)] * H)
    for head in range(H):
        sizes = [abs(r[head]) for r in rewards] or [0.0]
        assert found.mean_reward[head] == pytest.approx(sum(sizes) / len(sizes), rel=1e-12)
        assert found.largest_reward[head] == max(sizes)
        assert found.largest_return[head] == max([abs(g[head]) for g in returns], default=0.0)


@given(magnitudes(), magnitudes(), magnitudes())
def test_merging_is_commutative_and_associative(a, b, c):
    merge = Magnitudes.merge
    assert_same(merge(a, b), merge(b, a))
    assert_same(merge(merge(a, b), c), merge(a, merge(b, c)))


@given(columns(most=20), st.lists(st.integers(0, 20), max_size=5))
def test_step_by_step_equals_all_at_once(rewards, cuts):
    parts = np.split(rewards, sorted(min(cut, len(rewards)) for cut in cuts))
    steps = [Magnitudes.from_steps(part, 0 * part) for part in parts]
    assert_same(functools.reduce(Magnitudes.merge, steps), Magnitudes.from_steps(rewards, 0 * rewards))


@given(magnitudes())
def test_nothing_merges_without_a_trace_and_arrays_and_pickles_lead_back(a):
    for copy in (
        Magnitudes.merge(a, Magnitudes.empty(H)),
        Magnitudes.merge(Magnitudes.empty(H), a),
        Magnitudes.from_array(a.to_array()),
        pickle.loads(pickle.dumps(a)),
    ):
        np.testing.assert_array_equal(copy.to_array(), a.to_array())
    assert a.to_array().shape == (4, H) and a.to_array().dtype == np.float64 and a.num_heads == H


def test_they_cannot_change():
    frozen = Magnitudes.empty(H)
    with pytest.raises(ValueError, match="read-only"):
        frozen.largest_reward[0] = 7.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match=rf"rewards must be finite; got {value} at step 1, head 0"):
        Magnitudes.from_steps([1.0, value], [1.0, 0.0])
    with pytest.raises(ValueError, match=rf"returns must be finite; got {value} at step 0, head 1"):
        Magnitudes.from_returns([[0.0, value]])
    rows = np.ones((4, H))
    rows[1, 2] = value
    with pytest.raises(ValueError, match=rf"mean_reward must be finite; got {value} for head 2"):
        Magnitudes.from_array(rows)


def test_other_numbers_of_heads_or_rows_are_refused():
    with pytest.raises(ValueError, match="equally many heads merge; got 2 and 1"):
        Magnitudes.merge(Magnitudes.empty(2), Magnitudes.empty(1))
    for shape in ((3, 2), (4,)):
        with pytest.raises(ValueError, match=r"magnitudes are an array \[4, H\]"):
            Magnitudes.from_array(np.zeros(shape))


def test_what_a_scaling_has_seen_stays_as_it_is_when_it_is_told_nothing_of_use():
    seen = tf.Variable(Magnitudes.from_steps([[1.0, 2.0]], [[0.0, 0.0]]).to_array())
    before = seen.numpy()
    with pytest.raises(ValueError, match=r"write observe\(moments, magnitudes="):
        take_in(seen, None)
    with pytest.raises(ValueError, match="equally many heads"):
        take_in(seen, Magnitudes.empty(1))
    np.testing.assert_array_equal(seen, before)
