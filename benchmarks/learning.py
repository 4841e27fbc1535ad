"""Tables of what runs have learned: `python -m benchmarks.learning FOLDER... --output=docs/results/NAME.csv`.

FOLDER holds the runs of a sweep: `python train.py --sweep=benchmarks/sweeps/NAME.sweep --root_dir=FOLDER`. A row per
run: its variant, seed, mean training return in each fifth of its environment steps and, in the last, of episodes whose
heads have a discount above 0, mean greedy return at the end, and share of dead units in the torso's layer that has
most. Runs that the table has already stay in it.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy import stats
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from agents.monitoring.report import runs
from agents.monitoring.report.numbers import dead_units
from agents.monitoring.tags import RETURN, TRAIN
from benchmarks.performance import processor

FIFTHS = [f"fifth_{part}" for part in range(1, 6)]
COLUMNS = ("variant", "seed", "steps", *FIFTHS, "discounted", "greedy", "dead_units", "commit", "processor")


def discounted(run: runs.Run) -> float:
    """Mean training return of the last fifth, without reports of episodes in which a head of discount 0 acted."""
    accumulator = EventAccumulator(str(run.folder / TRAIN), {"tensors": 0})
    accumulator.Reload()
    returns, acted = map(accumulator.Tensors, (RETURN, "episode/head"))
    places, _ = run.train[RETURN].T
    blind = [index for index, name in enumerate(run.heads) if name.endswith("_0")]
    kept = []
    for place, value, heads in zip(places, returns, acted, strict=True):
        left, right, count = tensor_util.make_ndarray(heads.tensor_proto).T
        if place > 0.8 * run.length and not any(
            count[(left <= head) & (head <= right)].any() for head in blind
        ):
            kept.append(tensor_util.make_ndarray(value.tensor_proto))
    return float(np.mean(kept)) if kept else np.nan


def row(folder: Path, variant: str) -> dict[str, str]:
    """The line of a finished run."""
    run = runs.over_steps(runs.read(folder))
    steps, returns = run.returns("training")
    edges = np.linspace(0.0, run.length, len(FIFTHS) + 1)
    part = np.clip(np.searchsorted(edges, steps) - 1, 0, len(FIFTHS) - 1)
    fifths = [returns[part == k].mean() if (part == k).any() else np.nan for k in range(len(FIFTHS))]
    _, greedy = run.returns("evaluation")
    numbers = [*fifths, discounted(run), greedy[-1] if len(greedy) else np.nan, dead_units(run)]
    commit, machine = run.versions["commit"], processor()
    values = (variant, run.seed, run.steps, *(f"{number:.4g}" for number in numbers), commit, machine)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def summary(rows: Iterable[dict[str, str]], measure: str) -> list[str]:
    """A line per variant: mean of a column, and Welch's 95% interval of its difference to the first variant."""
    by_variant: dict[str, list[float]] = {}
    for each in rows:
        by_variant.setdefault(each["variant"], []).append(float(each[measure]))
    first, lines = next(iter(by_variant.values())), []
    for variant, values in by_variant.items():
        line = f"{variant}: {measure} {np.mean(values):.3g} ({', '.join(f'{value:.3g}' for value in values)})"
        if values is not first and min(len(values), len(first)) > 1:
            low, high = stats.ttest_ind(values, first, equal_var=False).confidence_interval()
            line += f"; difference {np.mean(values) - np.mean(first):.3g} [{low:.3g}, {high:.3g}]"
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    if options.output.exists():
        with options.output.open(newline="") as file:
            rows = list(csv.DictReader(file))
    known = {(each["variant"], each["seed"]) for each in rows}
    for folder in options.folders:
        for place in runs.find([folder]):
            variant = f"{folder.name} {re.sub(r'-?seed[0-9]+$', '', place.name)}".strip()
            if not (place / "finished.json").exists():
                print(f"{place} has not finished")
            elif (found := row(place, variant)) and (found["variant"], found["seed"]) not in known:
                rows.append(found)
    rows.sort(key=lambda each: (each["variant"], int(each["seed"])))
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for measure in (FIFTHS[-1], "greedy", "dead_units"):
        print(*summary(rows, measure), sep="\n")


if __name__ == "__main__":
    main()
