"""The sum tree against plain arrays."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.replay.sum_tree import SumTree

WEIGHTS = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))


@st.composite
def changes(draw):
    """A size, and batches of (place, weight)."""
    size = draw(st.integers(1, 40))
    batch = st.lists(st.tuples(st.integers(0, size - 1), WEIGHTS), min_size=1, max_size=10)
    return size, draw(st.lists(batch, min_size=1, max_size=10))


def trees(size, batches):
    """The tree and the plain array after each batch; of equal places the last counts."""
    tree, plain = SumTree(size), np.zeros(size)
    for batch in batches:
        places, weights = (np.array(column) for column in zip(*batch, strict=True))
        tree.set(places, weights)
        for place, weight in batch:
            plain[place] = weight
        yield tree, plain


@settings(max_examples=40)
@given(changes())
def test_weights_and_sums_are_those_of_an_array_bit_for_bit(of):
    """Nothing drifts: a tree that has been through much equals one that was told the weights at once."""
    for tree, plain in trees(*of):
        np.testing.assert_array_equal(tree.weights(np.arange(len(plain))), plain)
        np.testing.assert_allclose(tree.total, plain.sum(), rtol=1e-13)
        fresh = SumTree(len(plain))
        fresh.set(np.arange(len(plain)), plain)
        assert fresh.total == tree.total
        np.testing.assert_array_equal(fresh._sums, tree._sums)


@settings(max_examples=40)
@given(changes(), st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=20))
def test_a_draw_finds_the_place_whose_stretch_of_the_sum_the_number_falls_into(of, uniform):
    for tree, plain in trees(*of):
        if plain.any():
            ends = np.cumsum(plain)
            places, reach = tree.draw(np.array(uniform)), np.array(uniform) * ends[-1]
            assert (plain[places] > 0.0).all()
            slack = 1e-9 * ends[-1]  # rounding, on whose two sides a number may fall
            assert (ends[places] - plain[places] <= reach + slack).all()
            assert (reach <= ends[places] + slack).all()


def test_rounding_never_ends_at_a_weight_of_zero():
    """0.1 ten times, and nothing behind: partial sums of such weights are not exact."""
    tree = SumTree(16)
    tree.set(np.arange(10), np.full(10, 0.1))
    assert (tree.draw(np.array([0.0, 0.5, np.nextafter(1.0, 0.0)])) < 10).all()
