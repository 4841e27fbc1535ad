"""The orderings that sections 2 and 2.1 of the paper state, in explicit numbers."""

import numpy as np
import pytest

from studies.episodes import Episode, Stream
from studies.intuitions import SCALES, oracle, scaled, scenarios

NAMES = "abcdef"
# variant / reference: oracle, sigma, std(R), std(G), 1/(1-gamma)
FACTORS = {
    "a": (10.0, 10.0, 10.0, 10.0, 1.0),
    "b": (3.30, 2.58, 1.0, 2.01, 1.0),
    "c": (8.91, 9.23, 12.2, 1.0, 1.0),
    "d": (0.056, 0.084, 0.199, 0.061, 1.0),
    "e": (1.16, 1.43, 1.0, 1.21, 100.0),
    "f": (3.79, 4.16, 4.92, 0.998, 1.0),
}
SIGMAS = {  # of the reference, of the variant
    "a": (0.938559, 9.385591),
    "b": (0.938559, 2.418580),
    "c": (0.938559, 8.665123),
    "d": (1.282238, 0.107110),
    "e": (0.822584, 1.174584),
    "f": (0.938559, 3.906294),
}


@pytest.fixture(scope="module")
def cases():
    return dict(zip(NAMES, scenarios(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_factors_and_sigmas(cases, name):
    case, factors = cases[name], cases[name].factors()
    np.testing.assert_allclose([factors[scale] for scale in SCALES], FACTORS[name], rtol=5e-3, atol=5e-4)
    sigmas = [sequence.scales()["sigma"] for sequence in (case.reference, case.variant)]
    np.testing.assert_allclose(sigmas, SIGMAS[name], atol=1e-5)
    # Divided by sigma, the variant has the sigma of the reference.
    assert scaled(case.variant, factors["sigma"]).scales()["sigma"] == pytest.approx(sigmas[0])
    if name != "a":  # whose false friend is clipping

        def miss(scale):
            return abs(np.log(factors[scale] / factors["oracle"]))

        assert miss("sigma") < miss(case.friend)


def test_clipping_changes_what_the_rewards_mean(cases):
    """No factor turns one into the other: steps that were 8 times as good as others are worth the same."""
    rewards, clipped = cases["a"].variant.rewards, cases["a"].befriended().rewards
    assert clipped[1] == clipped[12] == 1.0
    assert rewards[12] / rewards[1] == pytest.approx(7.96, abs=0.01)


def test_the_oracle_of_three_steps():
    """Returns 4, 2, 0. Shifted by 0, 1, 2, errors are 0, 0, 0; 1, 4, -4 (variance 98/9); 5, -1, -2 (86/9)."""
    stream = Stream.of([Episode(np.array([3.0, 2.0, 0.0]))], 0.5)
    assert oracle(stream) == pytest.approx(np.sqrt((98.0 + 86.0) / 27.0))
