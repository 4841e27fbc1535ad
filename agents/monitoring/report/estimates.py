"""The statistics of the report: curves, their bootstrap intervals, aggregates over games, comparisons.

Estimates over seeds are rliable's (Agarwal et al. 2021): 95% intervals from a stratified percentile bootstrap. What has
one seed gets no interval, NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from rliable import library, metrics

RESAMPLES = 2_000
AGGREGATES = ("mean", "median", "capped mean", "interquartile mean")


def binned(places: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Means of the values whose places lie in (edge, next edge], the first edge included: float64 [len(edges) - 1].

    Bins without a value between two that have some are interpolated; NaN before the first and after the last value.
    """
    bins = pd.cut(places, edges, labels=False, include_lowest=True)
    means = pd.Series(values, dtype=float).groupby(bins).mean().reindex(range(len(edges) - 1))
    return means.interpolate(limit_area="inside").to_numpy()


def final(places: np.ndarray, values: np.ndarray, end: float) -> float:
    """Mean of the values in the last fifth before `end`, else the last value before it, else NaN."""
    last = values[(places > 0.8 * end) & (places <= end)]
    before = values[places <= end]
    return float(last.mean() if len(last) else before[-1] if len(before) else np.nan)


def curve_interval(curves: np.ndarray) -> np.ndarray:
    """Mean over seeds and its pointwise 95% percentile bootstrap interval: [seeds, K] -> [3, K].

    NaN wherever a seed has none, and for the interval of one seed.
    """
    point = curves.mean(axis=0)
    if len(curves) < 2:
        return np.stack([point, *[np.full_like(point, np.nan)] * 2])
    drawn = np.random.default_rng(0).integers(len(curves), size=(RESAMPLES, len(curves)))
    return np.stack([point, *np.percentile(curves[drawn].mean(axis=1), [2.5, 97.5], axis=0)])


def aggregates(samples: np.ndarray) -> np.ndarray:
    """Those of `AGGREGATES`, of human-normalised scores [seeds, games]: [4].

    The interquartile mean is of all runs, the others of the games' means over seeds.
    """
    games = samples.mean(axis=0)
    capped = np.minimum(games, 1.0).mean()
    return np.array([games.mean(), np.median(games), capped, metrics.aggregate_iqm(samples)])


def estimate(samples: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Point and 95% interval of each of the function's K numbers: [3, K]; NaN for an interval from one seed.

    Args:
      samples: [seeds, tasks].
      function: of arrays [seeds, tasks]; returns [K].
    """
    if len(samples) < 2:
        return curve_interval(function(samples)[None])
    # rliable 1.2 draws from NumPy's global generator, whatever `random_state` it is given.
    state = np.random.get_state()
    np.random.seed(0)
    try:
        points, intervals = library.get_interval_estimates({"": samples}, function, reps=RESAMPLES)
    finally:
        np.random.set_state(state)
    return np.vstack([points[""], intervals[""]])
