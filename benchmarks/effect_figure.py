"""Draws the README's figure from the tables of two benchmarks; nothing is run for it.

    .venv/bin/python -m benchmarks.effect_figure

Left: returns of two games by reward multiplier, from docs/results/scales_table.csv. Right: the errors
that each of ten heads learns from, from docs/quickstart.csv. Lines are means over runs, and every run is a point.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.performance import ROOT
from studies import figure

FIGURE = ROOT / "docs/images/effect.png"
SCORES, ERRORS = ROOT / "docs/results/scales_table.csv", ROOT / "docs/quickstart.csv"
WITH, WITHOUT, OUTPUTS = "scaled errors", "without scaling", "scaled outputs, too (return_out)"
SCALINGS = {WITH: "return", WITHOUT: "none", OUTPUTS: "return_out"}
MULTIPLIERS = ("x0.001", "x1", "x10000")
COLOURS = {WITH: figure.COLOURS["scaled"], WITHOUT: figure.COLOURS["unscaled"], OUTPUTS: "tab:blue"}


def shares_by_multiplier() -> dict[str, list[np.ndarray]]:
    """Returns over those of `none` in the clean game, geometric over games: [repeats] for each of `MULTIPLIERS`."""
    logs: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with SCORES.open(newline="") as file:
        for row in csv.DictReader(file):
            logs[row["method"], row["task"]][row["game"]].append(np.log(float(row["mean_return"])))
    reference = {game: np.mean(values) for game, values in logs["none", "x1"].items()}

    def share(method: str, task: str) -> np.ndarray:
        above = [np.array(values) - reference[game] for game, values in logs[method, task].items()]
        return np.exp(np.mean(above, axis=0))

    return {name: [share(method, task) for task in MULTIPLIERS] for name, method in SCALINGS.items()}


def errors_by_head() -> dict[str, dict[str, list[float]]]:
    """RMS errors that were learned from, with scaling and without: head -> one number per seed."""
    found: dict[str, dict[str, list[float]]] = {WITH: defaultdict(list), WITHOUT: defaultdict(list)}
    with ERRORS.open(newline="") as file:
        for row in csv.DictReader(file):
            kind, _, head = row["quantity"].partition(" ")
            if kind == "error":
                name = WITH if row["scaling"] == "return_based" else WITHOUT
                found[name][head].append(float(row["value"]))
    return found


def draw() -> figure.Figure:
    """Two panels; the same colours in both."""
    drawing, ((left, right),) = figure.new_figure(1, 2, panel=(5.2, 3.5))
    for name, shares in shares_by_multiplier().items():
        plot(left, range(3), shares, COLOURS[name], name)
    errors = errors_by_head()
    for name, of_heads in errors.items():
        colour, columns = COLOURS[name], list(of_heads.values())
        # Clipped rewards, and raw ones.
        means = [x for k in (0, 5) for x in plot(right, range(k, k + 5), columns[k : k + 5], colour)]
        span = float(f"{max(means) / min(means):.2g}")
        right.lines[-1].set_label(f"{name}: they span a factor of {span:,.4g}")
    left.axhline(1.0, color=figure.COLOURS["reference"], ls=":")
    left.set_xticks(range(3), ["0.001", "1", "10,000"])
    left.set(xlabel="rewards multiplied by", ylabel="return, over that without scaling at 1", ylim=(0, 1.25))
    left.set_title("Space Invaders and Breakout, ten heads, three runs each")
    right.set_xticks(range(10), [head.partition("_")[2] for head in errors[WITH]])
    right.set(xlabel="discount of the head", yscale="log", ylabel="RMS error that the head learns from")
    right.axvline(4.5, ymax=0.75, color=figure.COLOURS["reference"], lw=0.8)
    for place, rewards in ((2, "clipped rewards"), (7, "raw rewards")):
        right.text(place, 0.12, rewards, ha="center", color=figure.COLOURS["reference"])
    right.set_title("Space Invaders, rewards times 1000, five seeds")
    left.legend(loc="lower center")
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


def main() -> None:
    draw().savefig(FIGURE, dpi=110)
    print(FIGURE)


if __name__ == "__main__":
    main()
