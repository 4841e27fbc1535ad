"""The lines of the derivation, where they are exact and where they fail."""

import csv

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


def test_the_last_line_is_the_sigma_of_the_statistics(streams):
    for stream in streams.values():
        assert derivation.lines(stream, np.zeros(len(stream.rewards)))[-1] == pytest.approx(
            stream.moments.sigma_squared[0], rel=1e-12
        )


def test_constant_rewards_have_their_closed_form(streams):
    sigma_squared = derivation.lines(streams["constant, gamma 1"], streams["constant, gamma 1"].returns)[-1]
    assert sigma_squared == pytest.approx(25 * 99 * 101 * 201 / (6 * 100**2), rel=1e-12)


def test_without_values_nothing_is_lost_until_returns_take_their_place(streams):
    for stream in streams.values():
        numbers = derivation.lines(stream, np.zeros(len(stream.rewards)))
        np.testing.assert_allclose(numbers[:3], stream.rewards.var(), rtol=1e-12)


def test_true_returns_have_no_errors_while_sigma_stays(streams):
    for stream in streams.values():
        numbers = derivation.lines(stream, stream.returns)
        assert numbers[0] == pytest.approx(0.0, abs=1e-18 * np.square(stream.returns).max())
        assert numbers[2] == pytest.approx(numbers[3], rel=1e-12)  # values that are returns
        assert numbers[-1] > 0


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


def test_early_values_keep_sigma_squared_within_a_factor_of_four(streams):
    for name, stream in streams.items():
        numbers = derivation.lines(stream, stream.early_values(derivation.DRAWS))
        assert 0.25 < numbers[-1] / numbers[0] < 1, name


def test_the_command_writes_figure_numbers_and_one_line(tmp_path, capsys):
    derivation.main([f"--output_dir={tmp_path}", "--seconds=1"])
    assert (tmp_path / "derivation.png").stat().st_size > 0
    assert (tmp_path / "derivation.svg").stat().st_size > 0
    with open(tmp_path / "derivation.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["values"] for row in rows} == set(derivation.KINDS)
    assert "sine, period 50" in {row["process"] for row in rows}
    assert capsys.readouterr().out.count("\n") == 1
