"""Draws finished runs: returns over updates, and the error scale of each head with and without scaling.

    for seed in 0 1 2; do make train ARGS="--seed=$seed"; make train ARGS="--seed=$seed --scaling=none"; done
    .venv/bin/python -m benchmarks.quickstart_curves runs/quickstart-* --output=docs/quickstart.png

Which run is what is read from its saved configuration. Beside the figure it writes the numbers as CSV and prints the
mean of each scaling's last evaluations with a 95% interval over seeds (Student's t).
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
from scipy import stats
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend has to be chosen first

COLOURS = {"return_based": "tab:green", "none": "tab:red"}  # the paper's
LAST_EVALUATIONS = 4  # one evaluation of eight episodes says little


def scalars(folder: Path) -> dict[str, np.ndarray]:
    """Every scalar of a TensorBoard folder: tag -> [(update, value)]."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: np.array(
            [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
        )
        for tag in events.Tags()["tensors"]
        if tag != "episode/head"
    }


def scaling_of(run: Path) -> str:
    """The scaling's name in the run's saved configuration."""
    return re.search(r"train\.scaling = @scalings\.(\w+)", (run / "config.gin").read_text())[1]


def mean_and_interval(values: list[float]) -> tuple[float, float]:
    """Mean and the half width of its 95% interval; the latter is NaN for a single value."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else float("nan")
    return float(np.mean(values)), float(half)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.png")
    options = parser.parse_args()
    groups = defaultdict(list)
    for run in options.runs:
        groups[scaling_of(run)].append((scalars(run / "train"), scalars(run / "eval")))

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    rows = []
    for name, runs in sorted(groups.items(), reverse=True):
        colour = COLOURS[name]
        ends = []
        for _, evaluation in runs:
            steps, returns = evaluation["episode/return"].T
            ends.append(returns[-LAST_EVALUATIONS:].mean())
            left.plot(steps, returns, color=colour, alpha=0.3)
            rows += [
                (name, "evaluation return", int(step), value)
                for step, value in zip(steps, returns, strict=True)
            ]
        curves = [evaluation["episode/return"][:, 1] for _, evaluation in runs]
        shared = min(map(len, curves))
        left.plot(
            steps[:shared],
            np.mean([curve[:shared] for curve in curves], axis=0),
            color=colour,
            lw=2,
            label=name,
        )
        mean, half = mean_and_interval(ends)
        print(
            f"{name}: {mean:.2f} +- {half:.2f} over the last {LAST_EVALUATIONS} evaluations, {len(runs)} seeds"
        )

        heads = [
            tag.removeprefix("td_error/scaled/") for tag in runs[0][0] if tag.startswith("td_error/scaled/")
        ]
        errors = [
            np.mean([training[f"td_error/scaled/{head}"][:, 1].mean() for training, _ in runs])
            for head in heads
        ]
        right.plot(
            heads,
            errors,
            "o-",
            color=colour,
            label=f"{name}: largest / smallest {max(errors) / min(errors):.3g}",
        )
        rows += [(name, f"td error {head}", "", error) for head, error in zip(heads, errors, strict=True)]
    left.axhline(2.75, color="gray", ls=":", label="random")
    left.set(xlabel="learner updates", ylabel="greedy return per episode (original points)", ylim=(0, None))
    right.set(ylabel="root mean squared error that is learned from", yscale="log")
    right.tick_params(axis="x", rotation=40)
    for axes in (left, right):
        axes.legend()
    figure.savefig(options.output, dpi=110)
    with options.output.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([("scaling", "quantity", "update", "value"), *rows])


if __name__ == "__main__":
    main()
