"""Tables and figures of what benchmarks/minatar_scaling.py has measured, finished or not.

    .venv/bin/python -m benchmarks.minatar_scaling_results [--results=FOLDER]

Reads minatar_scaling.csv and minatar_scaling_heads.csv in the folder and writes beside them minatar_scaling.md,
minatar_scaling.png and minatar_scaling_heads.png. Estimates are rliable's (Agarwal et al. 2021): 95% intervals from a
stratified percentile bootstrap over seeds; what has one seed gets no interval.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.monitoring.report.estimates import difference_and_probability, estimate, mean_and_iqm
from agents.running.startup import quiet
from benchmarks.contrasts import contrast, permutation
from studies import figure
from studies.episodes import random_episodes

MULTIPLIERS = (1, 10, 100, 1000)
# The same in all panels; the order is that of the tables.
COLOURS = {
    "none": "tab:red",
    "clip": "tab:brown",
    "signed_hyperbolic": "tab:orange",
    "pop_art": "tab:blue",
    "pop_art_free": "skyblue",
    "return": "tab:green",
    "return_out": "indigo",
}
Variant = tuple[int, str]  # heads, scaling
COMPARISONS: tuple[tuple[Variant, Variant], ...] = (  # the first minus the second
    ((10, "return"), (10, "none")),
    ((10, "return_out"), (10, "return")),
    ((10, "return_out"), (10, "pop_art")),
    ((10, "return_out"), (10, "pop_art_free")),
    ((10, "return"), (10, "pop_art")),
    ((10, "return"), (1, "clip")),
    ((10, "return_out"), (1, "clip")),
    ((1, "return_out"), (1, "clip")),
    ((1, "return"), (1, "none")),
)
HEAD_PANELS = {
    "scaled_error": "RMS TD error learned from (mean over the run)",
    "loss_share": "share of the loss (mean over the run)",
    "gradient_share": "share of the torso's gradient (at the end)",
    "relative_value_error": "RMSE of values / std of returns (at the end)",
}
METHOD = """\
Entries: mean training return in original points over the whole run [95% bootstrap interval] (seeds). The percentile
bootstrap is too narrow with few seeds: of three it is the smallest to the largest. For normally distributed returns it
covers the mean 75% of the time with three seeds and 83% with five.
"""
COMPARISON_METHOD = """\
Entries: difference of means, then P, the probability that a run of the first beats one of the second, where both have
more than one seed. Own best: each method at the learning rate (in brackets) at which its mean is highest, chosen on the
same runs. All multipliers: each is a task, with as many seeds as every multiplier has.
"""
RATIOS: tuple[tuple[str, str], ...] = (  # of ten heads
    ("return", "none"),
    ("pop_art", "none"),
    ("return", "pop_art"),
    ("return_out", "return"),
    ("return_out", "pop_art"),
)
RATIO_METHOD = """\
Ten heads, both games: geometric mean ratio, then its 95% interval, Student's t with the variance between runs of equal
cells pooled, and p, from dealing each cell's runs to the two sides at random. Seeds are shared by multipliers, so that
intervals over several of them are somewhat too narrow.
"""
AGGREGATE_METHOD = "Multipliers are tasks; each scaling at its best learning rate, chosen on the same runs.\n"


class Cell(NamedTuple):
    """Runs of one game that differ in their seed alone."""

    multiplier: int
    heads: int
    scaling: str
    learning_rate: str


Rows = Sequence[Mapping[str, str]]
Cells = Mapping[Cell, np.ndarray]  # float64 [seeds]


def read(path: Path) -> list[dict[str, str]]:
    """A table's lines, of each run (and head) the last: those of an interrupted run are written again."""
    if not path.exists():
        return []
    keys = ("game", *Cell._fields, "seed", "head")
    with path.open(newline="") as file:
        return list({tuple(row.get(key) for key in keys): row for row in csv.DictReader(file)}.values())


def returns_by_cell(rows: Rows, game: str) -> Cells:
    """`mean_return` of each cell's runs, by seed."""
    cells = defaultdict(list)
    for row in sorted((row for row in rows if row["game"] == game), key=lambda row: int(row["seed"])):
        cell = Cell(int(row["multiplier"]), int(row["heads"]), row["scaling"], row["learning_rate"])
        cells[cell].append(float(row["mean_return"]))
    return {cell: np.array(values) for cell, values in cells.items()}


def scalings_in(names: Iterable[str]) -> list[str]:
    """Scalings, each once, in the order of `COLOURS`; those that it lacks come last, and are black."""
    return sorted(set(names), key=lambda name: ([*COLOURS, name].index(name), name))


def rates_in(cells: Iterable[Cell]) -> list[str]:
    """Learning rates, the smallest first."""
    return sorted({cell.learning_rate for cell in cells}, key=float)


def scores(cells: Cells, variant: Variant, rate: str, multipliers: Sequence[int]) -> np.ndarray | None:
    """Returns [seeds, multipliers], as many seeds as every multiplier has; None if one of them has no run."""
    columns = [cells.get(Cell(multiplier, *variant, rate)) for multiplier in multipliers]
    if any(column is None for column in columns):
        return None
    return np.stack([column[: min(map(len, columns))] for column in columns], axis=1)


def best_rate(cells: Cells, variant: Variant, multipliers: Sequence[int]) -> str | None:
    """The learning rate with the highest mean return, None without any run."""
    found = {rate: scores(cells, variant, rate, multipliers) for rate in rates_in(cells)}
    means = {rate: values.mean() for rate, values in found.items() if values is not None}
    return max(means, key=means.get, default=None)


def text(numbers: np.ndarray, form: str = ".2f") -> str:
    """Point and, where there is one, interval, from [3]."""
    point, low, high = (format(number, form) for number in numbers)
    return point if np.isnan(numbers[1]) else f"{point} [{low}, {high}]"


def compared(x: np.ndarray | None, y: np.ndarray | None) -> str:
    """A comparison's entry; nothing where a side has no run."""
    if x is None or y is None:
        return ""
    difference, probability = estimate(x, y, function=difference_and_probability).T
    # With a single run on one side the probability would look surer than it is.
    return text(difference, "+.2f") + ("" if np.isnan(difference[1]) else f", P {text(probability)}")


def label(heads: int, more: str) -> str:
    """Names an agent of so many heads."""
    return f"{heads} head{'s' * (heads > 1)} {more}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, or a line that says that there is none."""
    lines = (f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *rows))
    return "".join(lines) if rows else "No runs yet.\n"


def returns_table(cells: Cells) -> str:
    """Heads and scalings by multipliers and learning rates."""
    columns = [(m, rate) for m in sorted({cell.multiplier for cell in cells}) for rate in rates_in(cells)]
    rows = []
    scalings = scalings_in(cell.scaling for cell in cells)
    for heads, scaling in itertools.product(sorted({cell.heads for cell in cells}), scalings):
        found = [cells.get(Cell(m, heads, scaling, rate)) for m, rate in columns]
        entries = ["" if v is None else f"{text(estimate(v)[:, 0])} ({len(v)})" for v in found]
        rows += [[str(heads), scaling, *entries]] if any(entries) else []
    return markdown(["heads", "scaling", *(f"x {m}, {rate}" for m, rate in columns)], rows)


def comparison_table(cells: Cells) -> str:
    """Comparisons and multipliers by learning rates."""
    rates, rows = rates_in(cells), []
    for pair, multipliers in itertools.product(COMPARISONS, [*((m,) for m in MULTIPLIERS), MULTIPLIERS]):
        best = [best_rate(cells, side, multipliers) for side in pair]
        if all(best):
            *entries, at_best = (
                compared(*(scores(cells, *side, multipliers) for side in zip(pair, chosen, strict=True)))
                for chosen in [*((rate, rate) for rate in rates), best]
            )
            where = f"x {multipliers[0]}" if len(multipliers) == 1 else "all"
            sides = " - ".join(label(*side) for side in pair)
            rows.append([sides, where, *entries, f"{at_best} ({', '.join(best)})"])
    return markdown(["comparison", "rewards", *rates, "own best"], rows)


def ratio_table(rows: Rows) -> str:
    """Ratios of mean returns by multiplier, both learning rates together; then at 6e-4 by what is measured."""

    def entry(pair: tuple[str, str], multipliers: Sequence[int], rates: Sequence[str], column: str) -> str:
        sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for game, multiplier, rate in itertools.product(("space_invaders", "breakout"), multipliers, rates):
            key = game, str(multiplier), "10", rate
            found = [
                [
                    np.log(float(row[column]))
                    for row in rows
                    if (row["game"], row["multiplier"], row["heads"], row["learning_rate"]) == key
                    and row["scaling"] == scaling
                ]
                for scaling in pair
            ]
            if all(found):
                for side, values in zip(sides, found, strict=True):
                    side.append(np.array(values))
        if not sides[0]:
            return ""
        compared = contrast(*sides)
        low, high = compared.interval()
        interval = f" [{np.exp(low):.2f}, {np.exp(high):.2f}]" if np.isfinite(low) else ""
        return f"{np.exp(compared.difference):.2f}{interval}, {permutation(*sides):.4f}"

    both, larger = ("2e-4", "6e-4"), ("6e-4",)
    columns = [
        *((f"x {m}", (m,), both, "mean_return") for m in MULTIPLIERS),
        ("all", MULTIPLIERS, both, "mean_return"),
        ("all, 6e-4", MULTIPLIERS, larger, "mean_return"),
        ("last fifth", MULTIPLIERS, larger, "last_fifth"),
        ("greedy", MULTIPLIERS, larger, "greedy"),
    ]
    lines = [[f"{a} / {b}", *(entry((a, b), *options) for _, *options in columns)] for a, b in RATIOS]
    return markdown(["ratio", *(name for name, *_ in columns)], [line for line in lines if any(line[1:])])


def aggregate_table(cells: Cells) -> str:
    """Scalings over all multipliers, each at its best learning rate."""
    rows = []
    for scaling in scalings_in(cell.scaling for cell in cells):
        rate = best_rate(cells, (10, scaling), MULTIPLIERS)
        if rate is not None:
            values = scores(cells, (10, scaling), rate, MULTIPLIERS)
            numbers = estimate(values, function=mean_and_iqm).T
            rows.append([scaling, rate, str(len(values)), *map(text, numbers)])
    return markdown(["scaling, ten heads", "learning rate", "seeds", "mean", "interquartile mean"], rows)


def random_returns(game: str, episodes: int) -> np.ndarray:
    """Returns of a uniformly random policy; 50 episodes at a time, so as many as asked for or a few more."""
    batches = [random_episodes(f"minatar/{game}", 50, seed) for seed in range(-(-episodes // 50))]
    return np.array([episode.rewards.sum() for batch in batches for episode in batch])


def report(rows: Rows, random: Mapping[str, np.ndarray]) -> str:
    """The Markdown page.

    Args:
      rows: of the table of runs.
      random: a random policy's returns in each game.
    """
    games = {game: returns_by_cell(rows, game) for game in random}
    seeds = [len(values) for cells in games.values() for values in cells.values()]
    minutes, updates = sum(float(row["minutes"]) for row in rows), [int(row["updates"]) for row in rows]
    parts = [
        "# MinAtar with rewards times 1 to 1000\n",
        f"`.venv/bin/python -m benchmarks.minatar_scaling_results`: {len(rows)} runs of `benchmarks/minatar_scaling.py`"
        f" in {len(seeds)} cells, {min(seeds)} to {max(seeds)} seeds each, {minutes:.0f} minutes in all; "
        f"{min(updates)} to {max(updates)} learner updates in a run.\n",
        "## Both games\n",
        RATIO_METHOD,
        ratio_table(rows),
        METHOD,
    ]
    for game, cells in games.items():
        level = f"A random policy: {text(estimate(random[game])[:, 0])} ({len(random[game])} episodes).\n"
        parts += [f"## {game}\n", level, returns_table(cells)]
        parts += [f"### Comparisons in {game}\n", COMPARISON_METHOD, comparison_table(cells)]
        parts += [f"### All multipliers of {game}\n", AGGREGATE_METHOD, aggregate_table(cells)]
    return "\n".join(parts)


def plot(panel, places: Sequence[float], numbers: np.ndarray, **style) -> None:
    """Points with their intervals, from [3, K]."""
    point, low, high = numbers
    panel.errorbar(places, point, np.stack([point - low, high - point]), capsize=2, **style)


def draw_multipliers(panel, cells: Cells, rate: str) -> None:
    """Returns of ten heads over reward multipliers, one line per scaling."""
    for place, scaling in enumerate(scalings_in(cell.scaling for cell in cells if cell.heads == 10)):
        found = {m: cells.get(Cell(m, 10, scaling, rate)) for m in MULTIPLIERS}
        found = {m: values for m, values in found.items() if values is not None}
        if found:
            numbers = np.hstack([estimate(values) for values in found.values()])
            places = np.array(list(found)) * 1.05 ** (place - 2)  # side by side
            plot(panel, places, numbers, fmt="o-", ms=4, color=COLOURS.get(scaling, "black"), label=scaling)
    panel.set(xscale="log", xlabel="reward multiplier", xlim=(MULTIPLIERS[0] / 2, MULTIPLIERS[-1] * 2))
    panel.set_xticks(MULTIPLIERS, [f"x {m}" for m in MULTIPLIERS])
    panel.minorticks_off()


def draw_at_100(panel, cells: Cells, rates: Sequence[str]) -> None:
    """Returns of one head and of ten with rewards x 100, scaling by scaling."""
    scalings = scalings_in(cell.scaling for cell in cells if cell.multiplier == 100)
    styles = list(itertools.product((1, 10), rates))
    for index, (heads, rate) in enumerate(styles):
        style = {"fmt": "os^Dv"[rates.index(rate) % 5], "ms": 5, "mfc": "white" if heads == 1 else None}
        for place, scaling in enumerate(scalings):
            values = cells.get(Cell(100, heads, scaling, rate))
            if values is not None:
                offset = 0.7 * ((index + 0.5) / len(styles) - 0.5)
                plot(panel, [place + offset], estimate(values), color=COLOURS.get(scaling, "black"), **style)
        panel.errorbar([], [], color="gray", label=label(heads, rate), **style)
    panel.set_xticks(range(len(scalings)), scalings, rotation=20, ha="right", rotation_mode="anchor")


def draw_returns(rows: Rows, random: Mapping[str, np.ndarray]) -> figure.Figure:
    """A row of panels for each game: returns over multipliers for each learning rate, and all runs at x 100."""
    games = {game: returns_by_cell(rows, game) for game in random}
    rates = rates_in(cell for cells in games.values() for cell in cells)
    drawing, axes = figure.new_figure(len(games), len(rates) + 1, panel=(4.4, 3.6), sharey="row")
    for panels, (game, cells) in zip(axes, games.items(), strict=True):
        for panel in panels:
            panel.axhline(random[game].mean(), color="gray", ls=":", label="random policy")
            panel.tick_params(labelleft=True)
        for panel, rate in zip(panels, rates, strict=False):
            draw_multipliers(panel, cells, rate)
            panel.set_title(f"{game}, ten heads, learning rate {rate}")
        draw_at_100(panels[-1], cells, rates)
        panels[-1].set_title(f"{game}, rewards x 100")
        panels[0].set_ylabel("mean training return (original points)")
    handles = {}
    for panel in axes.flat:
        shown, names = panel.get_legend_handles_labels()
        handles |= dict(zip(names, shown, strict=True))
    drawing.legend(handles.values(), handles.keys(), loc="outside right upper")
    drawing.suptitle("Means over seeds with 95% bootstrap intervals (one seed: none)")
    return drawing


def draw_heads(rows: Rows, game: str, multiplier: int, rate: str) -> figure.Figure | None:
    """Draws what each of ten heads learns from and how well, one line per scaling; None without such a run."""
    runs = defaultdict(lambda: defaultdict(list))  # scaling -> seed -> lines of its heads
    for row in rows:
        cell = (row["game"], row["multiplier"], row["heads"], row["learning_rate"])
        if cell == (game, str(multiplier), "10", rate):
            runs[row["scaling"]][row["seed"]].append(row)
    if not runs:
        return None
    drawing, axes = figure.new_figure(2, 2, panel=(5.5, 3.6), sharex=True)
    names = [row["head"] for row in next(iter(next(iter(runs.values())).values()))]
    for panel, (column, title) in zip(axes.flat, HEAD_PANELS.items(), strict=True):
        drawn = []
        for place, scaling in enumerate(scalings_in(runs)):
            values = np.array([[float(row[column]) for row in lines] for lines in runs[scaling].values()])
            drawn.append(estimate(values))
            style = {"color": COLOURS.get(scaling, "black"), "label": f"{scaling} ({len(values)})"}
            places = np.arange(len(names)) + 0.06 * (place - 1.5)  # side by side
            plot(panel, places, drawn[-1], fmt="o-", ms=3, **style)
        points = np.array(drawn)[:, 0]
        wide = np.nanmin(points) > 0 and np.nanmax(points) > 30 * np.nanmin(points)
        if column.endswith("share"):
            panel.axhline(1 / len(names), color="gray", ls=":")
        elif wide or column == "scaled_error":
            panel.set_yscale("log")
        panel.set_title(title)
        panel.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes[0, 0].legend(title="scaling (seeds)")
    drawing.suptitle(
        f"{game}, rewards x {multiplier}, ten heads, learning rate {rate}: means over seeds with 95% bootstrap "
        "intervals (one seed: none); dotted: equal shares"
    )
    return drawing


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("docs/results"), metavar="FOLDER")
    parser.add_argument("--random_episodes", type=int, default=1_000, help="of a random policy in each game")
    parser.add_argument("--game", default="space_invaders", help="of the figure of heads, as the next two")
    parser.add_argument("--multiplier", type=int, default=100)
    parser.add_argument("--learning_rate", default="2e-4")
    options = parser.parse_args(command_line)
    quiet()
    table = options.results / "minatar_scaling.csv"
    rows = read(table)
    if not rows:
        raise SystemExit(f"{table} has no runs: python -m benchmarks.minatar_scaling makes them")
    games = dict.fromkeys(row["game"] for row in rows)
    random = {game: random_returns(game, options.random_episodes) for game in games}
    table.with_suffix(".md").write_text(report(rows, random))
    draw_returns(rows, random).savefig(table.with_suffix(".png"), dpi=110)
    heads = table.with_name("minatar_scaling_heads.csv")
    drawing = draw_heads(read(heads), options.game, options.multiplier, options.learning_rate)
    if drawing is not None:
        drawing.savefig(heads.with_suffix(".png"), dpi=110)
    print(f"{len(rows)} runs: {table.with_suffix('.md')} and the figures beside it")


if __name__ == "__main__":
    main()
