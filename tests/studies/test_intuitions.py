"""The orderings that sections 2 and 2.1 of the paper state, in explicit numbers."""

import csv
import sys

import numpy as np
import pytest

from studies import figure, intuitions
from studies.episodes import Episode, Stream
from studies.intuitions import SCALES, Sequence, oracle, scaled, scenarios

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
SIGMAS = {"a": 9.385591, "b": 2.418580, "c": 8.665123, "d": 0.107110, "e": 1.174584, "f": 3.906294}


@pytest.fixture(scope="module")
def cases():
    return dict(zip(NAMES, scenarios(), strict=True))


@pytest.fixture(scope="module")
def factors(cases):
    return {name: case.factors() for name, case in cases.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_factors(factors, name):
    found = [factors[name][scale] for scale in SCALES]
    np.testing.assert_allclose(found, FACTORS[name], rtol=5e-3, atol=5e-4)


@pytest.mark.parametrize("name", NAMES)
def test_sigma_of_the_variants(cases, name):
    assert cases[name].variant.scales()["sigma"] == pytest.approx(SIGMAS[name], abs=1e-5)


def test_sigma_of_the_references(cases):
    sigmas = [case.reference.scales()["sigma"] for case in cases.values()]
    np.testing.assert_allclose(
        sigmas, [0.938559, 0.938559, 0.938559, 1.282238, 0.822584, 0.938559], atol=1e-5
    )


def test_coarse_steps_with_the_same_discount_per_time(cases):
    coarse = Sequence(cases["f"].variant.rewards, 0.97**5)
    assert coarse.scales()["sigma"] == pytest.approx(3.709643, abs=1e-5)


def test_a_factor_of_rewards_is_a_factor_of_sigma(factors):
    assert factors["a"]["sigma"] == pytest.approx(10.0, rel=1e-12)


def test_clipping_changes_what_the_rewards_mean(cases):
    """No factor turns one into the other: steps that were 8 times as good as others are worth the same."""
    rewards, clipped = cases["a"].variant.rewards, cases["a"].befriended().rewards
    assert clipped[1] == clipped[12] == 1.0
    assert rewards[12] / rewards[1] == pytest.approx(7.96, abs=0.01)


def test_std_of_rewards_ignores_an_offset_that_sigma_sees(factors):
    assert factors["b"]["std(R)"] == pytest.approx(1.0)
    assert 2.0 < factors["b"]["sigma"] < factors["b"]["oracle"]


def test_std_of_returns_ignores_their_order_that_sigma_sees(cases, factors):
    reference, variant = cases["c"].reference.stream.returns, cases["c"].variant.stream.returns
    np.testing.assert_allclose(np.sort(reference), np.sort(variant), atol=1e-9)
    assert factors["c"]["std(G)"] == pytest.approx(1.0)
    assert factors["c"]["sigma"] > 8.0


def test_sparse_rewards_are_boosted_and_more_than_by_std_of_rewards(cases, factors):
    assert cases["d"].reference.rewards.max() == cases["d"].variant.rewards.max() == 1.0
    assert factors["d"]["oracle"] < factors["d"]["sigma"] < factors["d"]["std(R)"] < 1.0


def test_the_horizon_is_overly_conservative_and_std_of_rewards_ignores_discounts(factors):
    assert factors["e"]["std(R)"] == 1.0
    assert 1.0 < factors["e"]["sigma"] < 1.5
    assert factors["e"]["1/(1-gamma)"] == pytest.approx(100.0)


def test_coarse_steps_need_a_larger_scale_though_returns_spread_alike(cases, factors):
    assert cases["f"].variant.rewards.sum() == pytest.approx(cases["f"].reference.rewards.sum(), abs=1e-12)
    assert factors["f"]["sigma"] > 4.0
    assert factors["f"]["std(G)"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("name", NAMES[1:])
def test_sigma_is_nearer_to_the_oracle_than_the_false_friend_is(cases, factors, name):
    def miss(scale):
        return abs(np.log(factors[name][scale] / factors[name]["oracle"]))

    assert miss("sigma") < miss(cases[name].friend)


@pytest.mark.parametrize("name", NAMES)
def test_scaled_by_sigma_the_variant_has_the_sigma_of_the_reference(cases, factors, name):
    repaired = scaled(cases[name].variant, factors[name]["sigma"])
    assert repaired.scales()["sigma"] == pytest.approx(cases[name].reference.scales()["sigma"])


def test_the_oracle_of_three_steps():
    """Returns 4, 2, 0. Shifted by 0, 1, 2, errors are 0, 0, 0; 1, 4, -4 (variance 98/9); 5, -1, -2 (86/9)."""
    stream = Stream.of([Episode(np.array([3.0, 2.0, 0.0]))], 0.5)
    assert oracle(stream) == pytest.approx(np.sqrt((98.0 + 86.0) / 27.0))


def test_the_command_writes_a_figure_and_the_table(tmp_path, capsys):
    intuitions.main([f"--output_dir={tmp_path}"])
    assert {path.name for path in tmp_path.iterdir()} == {
        f"intuitions.{kind}" for kind in ("png", "svg", "csv")
    }
    with open(tmp_path / "intuitions.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert len(rows) == 6
    assert all(len(row) == len(header) for row in rows)
    (line,) = capsys.readouterr().out.splitlines()
    assert "at most 1.49x" in line


def test_without_matplotlib_the_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit):
        intuitions.main([f"--output_dir={tmp_path}"])
    assert 'pip install "rbs-tf[plots]"' in capsys.readouterr().err
    with pytest.raises(ImportError, match="plots"):
        figure.new_figure()
