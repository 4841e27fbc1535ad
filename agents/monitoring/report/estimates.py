"""The statistics of the report: curves, their bootstrap intervals, aggregates over games, comparisons.

Intervals over seeds are 95% intervals from a stratified percentile bootstrap (Agarwal et al. 2021). What has one seed
gets no interval, NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy import stats

RESAMPLES = 2_000
AGGREGATES = ("mean", "median", "capped mean", "interquartile mean")


def bin_means(places: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Means of the values whose places lie in (edge, next edge], the first edge included: float64 [len(edges) - 1].

    Bins without a value between two that have some are interpolated; NaN before the first and after the last value.
    """
    bins = pd.cut(places, edges, labels=False, include_lowest=True)
    means = pd.Series(values, dtype=float).groupby(bins).mean().reindex(range(len(edges) - 1))
    return means.interpolate(limit_area="inside").to_numpy()


def final_mean(places: np.ndarray, values: np.ndarray, end: float) -> float:
    """Mean of the values in the last fifth before `end`, else the last value before it, else NaN."""
    last = values[(places > 0.8 * end) & (places <= end)]
    before = values[places <= end]
    if len(last):
        return float(last.mean())
    return float(before[-1]) if len(before) else np.nan


def aggregates(samples: np.ndarray) -> np.ndarray:
    """Those of `AGGREGATES`, of human-normalised scores [seeds, games]: [4].

    The interquartile mean is of all runs, the others of the games' means over seeds.
    """
    games = samples.mean(axis=0)
    capped = np.minimum(games, 1.0).mean()
    return np.array([games.mean(), np.median(games), capped, stats.trim_mean(samples, 0.25, axis=None)])


def estimate(
    samples: np.ndarray, function: Callable[[np.ndarray], np.ndarray] = lambda samples: samples.mean(axis=0)
) -> np.ndarray:
    """Point and 95% interval of each of the function's K numbers: [3, K].

    The interval is from a percentile bootstrap in which each column draws its own seeds. It is NaN for one seed, and
    wherever a number is NaN.

    Args:
      samples: [seeds, columns]: games, or points of a curve.
      function: of arrays [seeds, columns]; returns [K]. The default is the mean over seeds.
    """
    point = function(samples)
    if len(samples) < 2:
        return np.stack([point, *[np.full_like(point, np.nan)] * 2])
    drawn = np.random.default_rng(0).integers(len(samples), size=(RESAMPLES, *samples.shape))
    found = [function(np.take_along_axis(samples, rows, axis=0)) for rows in drawn]
    return np.stack([point, *np.percentile(found, [2.5, 97.5], axis=0)])
