"""The lines of the derivation, where they are exact and where they fail."""

import numpy as np
import pytest

from studies import derivation
from studies.episodes import Episode, Stream


@pytest.fixture(scope="module")
def streams():
    return derivation.simulated()


def steady(count: int, gamma: float) -> Stream:
    """One long episode of independent N(0, 1) rewards."""
    rewards = np.random.default_rng(1).standard_normal(count)
    return Stream.of([Episode(rewards, terminal=False)], gamma)


def test_the_lines_of_no_values_of_true_ones_and_of_early_ones(streams):
    for name, stream in streams.items():
        none = derivation.lines(stream, np.zeros(len(stream.rewards)))
        np.testing.assert_allclose(none[:3], stream.rewards.var(), rtol=1e-12)
        assert none[-1] == pytest.approx(stream.moments.sigma_squared[0], rel=1e-12)

        true = derivation.lines(stream, stream.returns)
        assert true[0] == pytest.approx(0.0, abs=1e-18 * np.square(stream.returns).max())
        assert true[2] == pytest.approx(true[3], rel=1e-12)  # values that are returns
        assert true[-1] > 0
        if name == "constant, gamma 1":
            assert true[-1] == pytest.approx(25 * 99 * 101 * 201 / (6 * 100**2), rel=1e-12)

        early = derivation.lines(stream, stream.early_values(derivation.DRAWS))
        assert 0.25 < early[-1] / early[0] < 1, name
    assert "constant, gamma 1" in streams


def test_three_independent_terms_miss_what_rough_values_share():
    """delta = R + gamma V' - V with rough V of variance 1: 2 + gamma^2, of which the three terms leave out
    2 gamma (1 - gamma)."""
    gamma, stream = 0.5, steady(400_000, 0.5)
    values = np.random.default_rng(2).standard_normal(400_000)
    exact, three_terms, independent_discount, *_ = derivation.lines(stream, values)
    assert exact == pytest.approx(2 + gamma**2, rel=0.02)
    assert exact - three_terms == pytest.approx(2 * gamma * (1 - gamma), rel=0.02)
    assert independent_discount == pytest.approx(
        three_terms, rel=1e-3
    )  # gamma is constant but for the last step
