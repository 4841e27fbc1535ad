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
from pathlib import Path

import numpy as np

from agents.monitoring.report import runs
from agents.monitoring.tags import STEPS
from benchmarks.atari57 import late_returns
from benchmarks.performance import processor

FIFTHS = [f"fifth_{part}" for part in range(1, 6)]
COLUMNS = ("variant", "seed", "steps", *FIFTHS, "discounted", "greedy", "dead_units", "commit", "processor")


def row(folder: Path, variant: str) -> dict[str, str]:
    """The line of a finished run."""
    run = runs.read_run(folder)
    updates, returns = run.returns("training")
    # Over environment steps, linear between those that were logged.
    steps, total = (np.interp(at, *run.train[STEPS].T) for at in (updates, run.updates))
    part = np.clip(np.ceil(5 * steps / total) - 1, 0, 4)  # a report is of the time before it
    fifths = [returns[part == k].mean() if (part == k).any() else np.nan for k in range(5)]
    _, greedy = run.returns("evaluation")
    late = late_returns(folder, int(total)).mean()
    numbers = [*fifths, late, greedy[-1] if len(greedy) else np.nan, run.dead_units]
    values = (variant, run.seed, run.steps, *(f"{number:.4g}" for number in numbers))
    return dict(zip(COLUMNS, map(str, (*values, run.versions["commit"], processor())), strict=True))


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
        for place in runs.find_runs([folder]):
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
    print(options.output)


if __name__ == "__main__":
    main()
