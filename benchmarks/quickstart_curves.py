"""Draws finished runs: returns over updates, and the errors that each head learns from.

    for seed in 0 1 2 3 4; do make train ARGS="--seed=$seed"; make train ARGS="--seed=$seed --scaling=none"; done
    .venv/bin/python -m benchmarks.quickstart_curves runs/quickstart-* --output=docs/quickstart.png

Beside the figure it writes the numbers as CSV. For each scaling it prints the mean over seeds, with a 95% interval
(Student's t), of training returns (epsilon-greedy) in the first and last fifth of the run, and of its last four
evaluations (greedy). Given both scalings, it compares the final accuracy of each head: the ratio of their unscaled TD
errors, with a 95% interval (Welch, on logarithms).
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import stats

from agents.monitoring.figure import new_figure
from agents.monitoring.report import recorded
from agents.monitoring.report.runs import Run, read

COLOURS = {"return_based": "tab:green", "none": "tab:red"}  # the paper's
LAST_SUMMARIES = 30  # of each run, for final accuracies
BINS = 25  # of updates, over which training returns are averaged
RANDOM_RETURN = 2.75  # of MinAtar's Space Invaders with all six actions


def mean_and_interval(values: list[float]) -> str:
    """Mean and half width of its 95% interval over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
    return f"{np.mean(values):.2f} +- {half:.2f}"


def final_log_errors(runs: list[Run]) -> np.ndarray:
    """Logarithm of each head's unscaled RMS TD error at the end: [seeds, H]."""
    return np.log(
        [
            [run.train[f"td_error/unscaled/{head}"][-LAST_SUMMARIES:, 1].mean() for head in run.heads]
            for run in runs
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.png")
    options = parser.parse_args()
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in map(read, options.runs):
        groups[run.settings[recorded.SCALING].rpartition(".")[2]].append(run)

    figure, ((left, right, accuracy),) = new_figure(1, 3, (5, 4))
    rows: list[tuple] = []
    for name, runs in sorted(groups.items(), reverse=True):
        colour, curves, final, heads = COLOURS[name], [], [], runs[0].heads
        for run in runs:
            updates, returns = run.returns("training")
            edges = np.linspace(0, updates.max(), BINS + 1)
            curve = stats.binned_statistic(updates, returns, "mean", edges)[0]
            curves.append(curve)
            final.append(run.returns("evaluation")[1][-4:].mean())
            left.plot(edges[1:], curve, color=colour, alpha=0.3)
        left.plot(edges[1:], np.mean(curves, axis=0), color=colour, lw=2, label=name)
        rows += [
            (name, seed, "training return", round(edge), f"{value:.4g}")
            for seed, curve in enumerate(curves)
            for edge, value in zip(edges[1:], curve, strict=True)
        ]
        fifth = BINS // 5
        print(
            f"{name}, {len(runs)} seeds: training {mean_and_interval([c[:fifth].mean() for c in curves])} in the first "
            f"fifth, {mean_and_interval([c[-fifth:].mean() for c in curves])} in the last; greedy "
            f"{mean_and_interval(final)} ({', '.join(f'{value:.1f}' for value in final)})"
        )
        errors = np.array(
            [[run.train[f"td_error/scaled/{head}"][:, 1].mean() for head in heads] for run in runs]
        )
        means = errors.mean(axis=0)
        span = float(f"{means.max() / means.min():.3g}")
        right.plot(heads, means, "o-", color=colour, label=f"{name}: span {span:,.4g}")
        rows += [
            (name, seed, f"error {head}", "", f"{value:.4g}")
            for seed, values in enumerate(errors)
            for head, value in zip(heads, values, strict=True)
        ]
    if len(groups) == 2 and min(map(len, groups.values())) > 1:
        none, scaled = (final_log_errors(groups[name]) for name in ("none", "return_based"))
        interval = stats.ttest_ind(none, scaled, equal_var=False).confidence_interval()
        ratio, low, high = np.exp([none.mean(0) - scaled.mean(0), interval.low, interval.high])
        accuracy.errorbar(heads, ratio, [ratio - low, high - ratio], fmt="o", color="tab:gray", capsize=3)
        for head, *values in zip(heads, ratio, low, high, strict=True):
            print("final error of {}, none / return_based: {:.2f} [{:.2f}, {:.2f}]".format(head, *values))
    accuracy.axhline(1, color="gray", ls=":")
    accuracy.set(xlabel="head: rewards and discount", ylabel="final value error, none / return_based")
    left.axhline(RANDOM_RETURN, color="gray", ls=":", label="random")
    left.set(xlabel="learner updates", ylabel="training return (original points)", ylim=(0, None))
    right.set(xlabel="head: rewards and discount", ylabel="RMS TD error learned from", yscale="log")
    for panel in (right, accuracy):
        panel.tick_params(axis="x", rotation=40)
    for panel in (left, right):
        panel.legend()
    figure.savefig(options.output, dpi=110)
    with options.output.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([("scaling", "run", "quantity", "update", "value"), *rows])


if __name__ == "__main__":
    main()
