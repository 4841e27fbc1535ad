"""The orderings that sections 2 and 2.1 of the paper state, in explicit numbers."""

import numpy as np
import pytest

from studies.episodes import Episode, Stream
from studies.intuitions import SCALES, oracle, scaled, scenarios

# variant / reference: oracle, sigma, std(R), std(G), 1/(1-gamma)
FACTORS = [
    (10.0, 10.0, 10.0, 10.0, 1.0),
    (3.30, 2.58, 1.0, 2.01, 1.0),
    (8.91, 9.23, 12.2, 1.0, 1.0),
    (0.056, 0.084, 0.199, 0.061, 1.0),
    (1.16, 1.43, 1.0, 1.21, 100.0),
    (3.79, 4.16, 4.92, 0.998, 1.0),
]


@pytest.mark.parametrize(("case", "expected"), [*zip(scenarios(), FACTORS, strict=True)])
def test_sigma_follows_the_errors_where_its_false_friend_does_not(case, expected):
    factors = case.factors()
    np.testing.assert_allclose([factors[scale] for scale in SCALES], expected, rtol=5e-3, atol=5e-4)
    # Divided by sigma, the variant has the sigma of the reference.
    divided = scaled(case.variant, factors["sigma"]).scales()
    assert divided["sigma"] == pytest.approx(case.reference.scales()["sigma"])
    if case.friend != "clip":
        miss = {scale: abs(np.log(factors[scale] / factors["oracle"])) for scale in SCALES}
        assert miss["sigma"] < miss[case.friend]


def test_the_oracle_of_three_steps():
    """Returns 4, 2, 0. Shifted by 0, 1, 2, errors are 0, 0, 0; 1, 4, -4 (variance 98/9); 5, -1, -2 (86/9)."""
    stream = Stream.of([Episode(np.array([3.0, 2.0, 0.0]))], 0.5)
    assert oracle(stream) == pytest.approx(np.sqrt((98.0 + 86.0) / 27.0))
