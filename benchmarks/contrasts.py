"""Comparisons of two methods over several tasks with few runs each: intervals and tests that are honest about few runs.

Runs differ in their seed alone, and every run has one of its own. Intervals are Student's t. They are about chance
between runs, on these tasks, not about other tasks.

rliable (Agarwal et al. 2021) draws runs anew instead, task by task. That has (n - 1) / n of the variance for n runs:
with three, intervals of 95% hold the truth in 89% of cases, however many tasks there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

Cells = Sequence[np.ndarray]  # float64 [runs], one for each task


class Contrast(NamedTuple):
    """A mean difference over tasks, each counting alike."""

    difference: float
    error: float  # its standard error
    freedom: float  # degrees of freedom of that

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's t; infinite where no cell has two runs."""
        if self.freedom < 1:
            return -np.inf, np.inf
        half = stats.t.ppf(0.5 + level / 2, self.freedom) * self.error
        return self.difference - half, self.difference + half

    def equivalence(self, margin: float) -> float:
        """p of two one-sided tests against a difference of `margin` or more, of either sign (Schuirmann 1987)."""
        if self.freedom < 1:
            return 1.0
        distances = (margin - abs(self.difference)) / self.error
        return float(stats.t.sf(distances, self.freedom))


def contrast(ours: Cells, theirs: Cells, pooled: bool = True) -> Contrast:
    """Mean over tasks of the difference of means, task by task.

    Args:
      ours, theirs: the runs of each task.
      pooled: all cells share one variance between runs, so that a cell of two runs does not have to estimate its own.
        Otherwise each has its own, with Welch's and Satterthwaite's degrees of freedom; a cell of one run has none.

    Raises:
      ValueError: not the same number of tasks, or a cell without a run.
    """
    if len(ours) != len(theirs) or not all(len(cell) for cell in (*ours, *theirs)):
        raise ValueError(
            f"expected runs in the same tasks on both sides, got {len(ours)} and {len(theirs)} tasks"
        )
    differences = [a.mean() - b.mean() for a, b in zip(ours, theirs, strict=True)]
    cells = [*ours, *theirs]
    runs = np.array([len(cell) for cell in cells])
    squares = np.array([np.square(cell - cell.mean()).sum() for cell in cells])
    if pooled:
        freedom = float(np.sum(runs - 1))
        variances = np.sum(squares) / max(freedom, 1.0) / runs
    else:
        free = np.maximum(runs - 1, 1)
        variances = squares / free / runs
        total = np.sum(np.square(variances) / free)
        freedom = float(np.sum(variances) ** 2 / total if total else np.sum(runs - 1)) * (runs.min() > 1)
    return Contrast(float(np.mean(differences)), float(np.sqrt(variances.sum())) / len(differences), freedom)


def permutation(ours: Cells, theirs: Cells, times: int = 20_000, seed: int = 0) -> float:
    """Two-sided p of the mean difference when the runs of each task are dealt to the two sides at random."""
    generator = np.random.default_rng(seed)
    dealt = np.zeros(times)
    for a, b in zip(ours, theirs, strict=True):
        both = np.concatenate([a, b])
        shuffled = generator.permuted(np.tile(both, (times, 1)), axis=1)
        dealt += shuffled[:, : len(a)].mean(axis=1) - shuffled[:, len(a) :].mean(axis=1)
    seen = sum(a.mean() - b.mean() for a, b in zip(ours, theirs, strict=True))
    # What was seen is one of the ways to deal; and equal ones may differ by rounding.
    return float((1 + np.sum(np.abs(dealt) >= abs(seen) * (1 - 1e-12))) / (1 + times))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """p-values [N] adjusted for N tests (Holm 1979)."""
    order = np.argsort(p_values)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(order), 0, -1))
    return np.minimum(adjusted, 1.0)
