"""The report's statistics against scipy and numbers by hand."""

import numpy as np
import pytest
from scipy import stats

from agents.monitoring.report import estimates


def test_bins_are_means_and_gaps_are_bridged():
    rng = np.random.default_rng(0)
    places, values = np.sort(rng.uniform(0, 10, 200)), rng.normal(size=200)
    edges = np.linspace(0, 10, 8)
    expected = stats.binned_statistic(places, values, "mean", edges)[0]
    np.testing.assert_allclose(estimates.bin_means(places, values, edges), expected)
    sparse = estimates.bin_means(np.array([2.5, 8.0, 12.0]), np.array([1.0, 4.0, 99.0]), np.arange(11.0))
    # (2, 3] holds the first, (7, 8] the second: a place on an edge belongs to what comes before it.
    np.testing.assert_allclose(sparse, [np.nan] * 2 + [1, 1.6, 2.2, 2.8, 3.4, 4] + [np.nan] * 2)
    assert np.isnan(estimates.bin_means(np.empty(0), np.empty(0), np.arange(3.0))).all()


def test_the_final_return_is_of_the_last_fifth_before_the_end():
    places, values = np.arange(1.0, 11), np.arange(10.0, 110, 10)
    assert estimates.final_mean(places, values, end=10) == np.mean([90, 100])
    assert (
        estimates.final_mean(places, values, end=5) == 50
    )  # 40 is at the lower edge, which is not part of it
    assert estimates.final_mean(places[:3], values[:3], end=10) == 30
    assert np.isnan(estimates.final_mean(places, values, end=0.5))


def test_intervals_of_a_curve():
    curves = np.random.default_rng(1).normal(size=(7, 3))
    point, low, high = estimates.estimate(curves)
    np.testing.assert_allclose(point, curves.mean(axis=0))
    expected = stats.bootstrap((curves,), np.mean, n_resamples=20_000, method="percentile", random_state=0)
    np.testing.assert_allclose([low, high], expected.confidence_interval, atol=0.05)
    # Of three, drawing only the smallest has probability 1/27 > 2.5%.
    three = estimates.estimate(curves[:3])
    np.testing.assert_allclose(three[1:], [curves[:3].min(axis=0), curves[:3].max(axis=0)])
    assert np.isnan(estimates.estimate(curves[:1])[1:]).all()
    curves[0, 2] = np.nan
    assert np.isnan(estimates.estimate(curves)).all(axis=0).tolist() == [False, False, True]


def test_aggregates_are_of_games_and_the_interquartile_mean_is_of_runs():
    samples = np.random.default_rng(3).normal(1, 1, size=(4, 6))
    mean, median, capped, middle = estimates.aggregates(samples)
    games = samples.mean(axis=0)
    assert (mean, median) == pytest.approx((games.mean(), np.median(games)))
    assert capped == pytest.approx(np.minimum(games, 1).mean())
    assert middle == pytest.approx(stats.trim_mean(samples, 0.25, axis=None))


def test_an_interval_of_aggregates_draws_seeds_in_each_game():
    samples = np.random.default_rng(4).normal(1, 1, size=(5, 3))
    point, low, high = estimates.estimate(samples, estimates.aggregates)
    assert point == pytest.approx(estimates.aggregates(samples))
    assert (low < point).all() and (point < high).all()
    # The mean's variance is that of games drawn on their own: the sum of theirs, a third each.
    spread = np.sqrt(samples.var(axis=0).sum() / len(samples)) / 3
    assert (high - low)[0] / (2 * 1.96 * spread) == pytest.approx(1.0, abs=0.1)
