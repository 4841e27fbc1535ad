"""The lines of the derivation, where they are exact and where they fail; and the streams that they are of."""

import numpy as np
import pytest

from studies import derivation
from studies.episodes import Episode, Stream


def test_streams_keep_the_discount_of_a_time_out_and_cut_its_return():
    stream = Stream.of([Episode(np.array([1.0, 1.0]), terminal=False), Episode(np.array([4.0, 8.0]))], 0.5)
    np.testing.assert_array_equal(stream.discounts, [0.5, 0.5, 0.5, 0.0])
    np.testing.assert_array_equal(stream.returns, [1.5, 1.0, 8.0, 8.0])
    np.testing.assert_array_equal(stream.errors(stream.returns), 0.0)
    np.testing.assert_array_equal(stream.following(np.arange(4.0)), [1.0, 0.0, 3.0, 0.0])
    for row in stream.early_values(3):  # the returns of other steps
        np.testing.assert_array_equal(np.sort(row), np.sort(stream.returns))
        assert (row != stream.returns).any()


def test_the_lines_of_no_values_of_true_ones_and_of_early_ones():
    for name, stream in derivation.simulated().items():
        none = derivation.lines(stream, np.zeros(len(stream.rewards)))
        np.testing.assert_allclose(none[:3], stream.rewards.var(), rtol=1e-12)
        assert none[-1] == pytest.approx(stream.moments.sigma_squared[0], rel=1e-12)

        true = derivation.lines(stream, stream.returns)
        assert true[0] == pytest.approx(0.0, abs=1e-18 * np.square(stream.returns).max())
        assert true[2] == pytest.approx(true[3], rel=1e-12)  # values that are returns
        assert true[-1] > 0

        early = derivation.lines(stream, stream.early_values(derivation.DRAWS))
        assert 0.25 < early[-1] / early[0] < 1, name


def test_three_independent_terms_miss_what_rough_values_share():
    """delta = R + gamma V' - V with rough V of variance 1: 2 + gamma^2, of which the three terms leave out
    2 gamma (1 - gamma)."""
    gamma, rng = 0.5, np.random.default_rng(1)
    stream = Stream.of([Episode(rng.standard_normal(400_000), terminal=False)], gamma)
    exact, three_terms, independent, *_ = derivation.lines(stream, rng.standard_normal(400_000))
    assert exact == pytest.approx(2 + gamma**2, rel=0.02)
    assert exact - three_terms == pytest.approx(2 * gamma * (1 - gamma), rel=0.02)
    assert independent == pytest.approx(three_terms, rel=1e-3)  # gamma is constant but for the last step
