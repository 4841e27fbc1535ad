"""Draws the README's figure from the tables of two benchmarks; nothing is run for it.

    .venv/bin/python -m benchmarks.effect_figure

Left: training returns by reward multiplier, from docs/results/minatar_scaling.csv. Right: the errors that each of ten
heads learns from, from docs/quickstart.csv. Lines are means over seeds, and every seed is a point. Pages that show it
have the numbers with their intervals.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.minatar_scaling_results import MULTIPLIERS, Cell, read, returns_by_cell
from studies import figure

GAME, HEADS, LEARNING_RATE = "space_invaders", 10, "6e-4"  # at which both variants do best
RANDOM_RETURN = 2.74  # docs/results/minatar_scaling.md
WITH, WITHOUT = "with return-based scaling", "without"
COLOURS = {WITH: figure.COLOURS["scaled"], WITHOUT: figure.COLOURS["unscaled"]}


def returns_by_multiplier(table: Path) -> dict[str, list[np.ndarray]]:
    """Mean returns of the seeds [seeds] at each of `MULTIPLIERS`, with scaling and without."""
    cells = returns_by_cell(read(table), GAME)
    return {
        name: [cells[Cell(multiplier, HEADS, scaling, LEARNING_RATE)] for multiplier in MULTIPLIERS]
        for name, scaling in ((WITH, "return"), (WITHOUT, "none"))
    }


def errors_by_head(table: Path) -> dict[str, dict[str, list[float]]]:
    """RMS errors that were learned from, with scaling and without: head -> one number per seed."""
    found = {WITH: defaultdict(list), WITHOUT: defaultdict(list)}
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            kind, _, head = row["quantity"].partition(" ")
            if kind == "error":
                name = WITH if row["scaling"] == "return_based" else WITHOUT
                found[name][head].append(float(row["value"]))
    return found


def draw(returns: dict[str, list[np.ndarray]], errors: dict[str, dict[str, list[float]]]) -> figure.Figure:
    """Two panels; the same colours in both."""
    drawing, ((left, right),) = figure.new_figure(1, 2, panel=(5.2, 3.5))
    for name, colour in COLOURS.items():
        plot(left, MULTIPLIERS, returns[name], colour, name)
        columns = list(errors[name].values())
        means = [
            *plot(right, range(5), columns[:5], colour),  # clipped rewards
            *plot(right, range(5, 10), columns[5:], colour),
        ]
        span = float(f"{max(means) / min(means):.2g}")
        right.lines[-1].set_label(f"{name}: they span a factor of {span:,.4g}")
    left.axhline(RANDOM_RETURN, color=figure.COLOURS["reference"], ls=":", label="random policy")
    left.set(xscale="log", xlabel="rewards multiplied by", ylim=(0, None))
    left.set_xticks(MULTIPLIERS, map(str, MULTIPLIERS))
    left.minorticks_off()
    left.set_ylabel("mean training return (original points)")
    left.set_title("Returns of ten heads, three to five seeds")
    right.set_xticks(range(10), [head.partition("_")[2] for head in errors[WITH]])
    right.set(xlabel="discount of the head", yscale="log")
    right.axvline(4.5, ymax=0.75, color=figure.COLOURS["reference"], lw=0.8)
    for place, rewards in ((2, "clipped rewards"), (7, "raw rewards")):
        right.text(place, 0.12, rewards, ha="center", color=figure.COLOURS["reference"])
    right.set_ylabel("RMS TD error learned from")
    right.set_title("Errors of each head, rewards times 1000, five seeds")
    left.legend(loc="lower left")
    right.legend(loc="upper left")
    right.set_ylim(0.08, 1e5)  # room for the legend
    return drawing


def plot(
    panel, places: Sequence[float], columns: Sequence[Sequence[float]], colour: str, name: str | None = None
) -> list[float]:
    """A line through the means, and a point for each seed; returns the means."""
    for place, values in zip(places, columns, strict=True):
        panel.plot([place] * len(values), values, "o", color=colour, ms=3, alpha=0.4)
    means = [float(np.mean(values)) for values in columns]
    panel.plot(places, means, "-", color=colour, lw=2, label=name)
    return means


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", type=Path, default=Path("docs"), metavar="FOLDER")
    options = parser.parse_args(command_line)
    drawing = draw(
        returns_by_multiplier(options.docs / "results/minatar_scaling.csv"),
        errors_by_head(options.docs / "quickstart.csv"),
    )
    drawing.savefig(options.docs / "images/effect.png", dpi=110)
    print(options.docs / "images/effect.png")


if __name__ == "__main__":
    main()
