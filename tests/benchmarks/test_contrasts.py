"""Intervals and tests of comparisons against closed forms, SciPy and simulation."""

import itertools

import numpy as np
import pytest
from scipy import stats

from benchmarks.contrasts import contrast, holm, permutation

RANDOM = np.random.default_rng(0)


def test_one_task_is_students_test_with_pooled_variance():
    a, b = RANDOM.normal(1.0, 2.0, 5), RANDOM.normal(0.0, 2.0, 4)
    expected = stats.ttest_ind(a, b)
    found = contrast([a], [b])
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval()))
    assert found.difference / found.error == pytest.approx(expected.statistic)
    assert found.freedom == expected.df


def test_one_task_is_welchs_test_without_pooling():
    a, b = RANDOM.normal(1.0, 2.0, 5), RANDOM.normal(0.0, 0.5, 4)
    expected = stats.ttest_ind(a, b, equal_var=False)
    found = contrast([a], [b], pooled=False)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval()))


def test_intervals_hold_the_truth_as_often_as_they_say():
    truth, hits = np.array([1.0, 0.5, -0.3]), 0
    for _ in range(1000):
        ours, theirs = ([RANDOM.normal(mean, 1.0, 2) for mean in means] for means in (truth, 0 * truth))
        low, high = contrast(ours, theirs).interval()
        hits += low <= truth.mean() <= high
    assert stats.binomtest(hits, 1000, 0.95).pvalue > 1e-3


def test_drawing_three_runs_anew_gives_intervals_that_are_too_narrow():
    hits = 0
    for _ in range(1000):
        runs = RANDOM.normal(0.0, 1.0, (20, 3))  # tasks, runs
        drawn = RANDOM.integers(0, 3, (500, 20, 3))
        low, high = np.quantile(runs[np.arange(20)[:, None], drawn].mean(axis=(1, 2)), (0.025, 0.975))
        hits += low <= 0.0 <= high
    assert stats.binomtest(hits, 1000, 2 * stats.norm.cdf(1.96 * np.sqrt(2 / 3)) - 1).pvalue > 1e-3


def test_without_pooling_intervals_of_cells_that_differ_are_not_too_narrow():
    spreads, hits = (0.01, 0.1, 1.0), 0
    for _ in range(1000):
        ours, theirs = ([RANDOM.normal(0.0, spread, 3) for spread in spreads] for _ in range(2))
        low, high = contrast(ours, theirs, pooled=False).interval()
        hits += low <= 0.0 <= high
    assert stats.binomtest(hits, 1000, 0.95, alternative="less").pvalue > 1e-3


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    a, b = RANDOM.normal(0.1, 0.2, 8), RANDOM.normal(0.0, 0.2, 8)
    sides = (
        stats.ttest_ind(a, b + shift, alternative=side).pvalue
        for shift, side in ((0.3, "less"), (-0.3, "greater"))
    )
    assert contrast([a], [b]).equivalence(0.3) == pytest.approx(max(sides))


def test_permutation_is_exact_where_all_ways_to_deal_can_be_counted():
    ours, theirs = [np.array([3.0, 5.0]), np.array([1.0, 4.0])], [np.array([1.0, 2.0]), np.array([0.0, 2.5])]

    def ways(a, b):
        both = np.concatenate([a, b])
        for chosen in itertools.combinations(range(4), 2):
            rest = [i for i in range(4) if i not in chosen]
            yield both[list(chosen)].mean() - both[rest].mean()

    sums = [x + y for x in ways(ours[0], theirs[0]) for y in ways(ours[1], theirs[1])]
    seen = sum(a.mean() - b.mean() for a, b in zip(ours, theirs, strict=True))
    expected = np.mean(np.abs(sums) >= seen - 1e-9)
    assert permutation(ours, theirs) == pytest.approx(expected, abs=0.01)


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])


def test_a_cell_without_runs_and_other_tasks_are_refused():
    for ours, theirs in (([np.ones(2)], []), ([np.ones(2)], [np.ones(0)])):
        with pytest.raises(ValueError, match="same tasks on both sides"):
            contrast(ours, theirs)


def test_single_runs_have_no_interval():
    alone = contrast([np.ones(1)], [np.zeros(1)])
    assert alone.interval() == (-np.inf, np.inf) and alone.equivalence(5.0) == 1.0
