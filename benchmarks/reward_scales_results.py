"""What benchmarks/reward_scales.py has found: one page and one figure, of finished runs.

    .venv/bin/python -m benchmarks.reward_scales_results

Reads docs/results/scales_*.csv and writes scales.md and scales.png beside them.

The rules were written before the first run; that about looks after the learning rates, before the table; `same_rate`
after the table's first look. Methods are compared by logarithms of mean returns, so that differences are ratios, and
all tasks count alike. The variance between runs is pooled over all cells of a comparison; intervals are 95%,
Student's t, about chance between runs on these tasks. p comes from dealing each task's runs to the two sides at
random, and is adjusted by Holm's method for the number of contrasts of its table. A contrast is decided where that is
below 0.05, or where two one-sided tests at 5% bound the ratio between 0.95 and 1.05; both p are multiplied by the
number of looks at the table so far, one for every three repeats: of a look that is not complete, nothing is shown.
The one-sided tests are not adjusted for the number of contrasts. What decides is the speed of learning, `mean_return`,
the mean over the run; the last fifth and greedy play at the end stand beside it. Returns below 1e-3 count as 1e-3: a
single greedy policy that earns nothing makes its method's ratio over all tasks smaller by about a fifth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from agents.monitoring.figure import new_figure
from benchmarks import grid, reward_scales
from benchmarks.contrasts import Cells, Contrast, contrast, holm, permutation

MEASURES = {"mean_return": "over the run", "last_fifth": "last fifth", "greedy": "greedy, at the end"}
MARGIN = float(np.log(1.05))
LEAST = 1e-3  # returns are not negative; a greedy policy may earn nothing
# Ours, theirs.
TABLE_CONTRASTS = (
    ("return_out", "pop_art_first"),
    ("return_out", "pop_art"),
    ("return_out", "max_reward"),
    ("return_out", "clip"),
    ("return_out", "return"),
    ("pop_art_first", "pop_art"),
    ("return", "pop_art"),
    ("return_support", "return_out"),
    ("two_hot", "return_out"),
)
AFTERWARDS = (
    ("return", "none"),
    ("return_out", "none"),
    ("return_out", "gymnasium"),
    ("return", "clip"),
    ("return", "max_reward"),
    ("max_reward", "clip"),
    ("max_reward", "pop_art_first"),
)
LEADING = ("x0.001", "x10000", "offset")  # where `return_out` leads `return`, picked from the ratios by task
FACTORS = (("returns", "targets"), ("taken", "preserved"), ("sigma", "s"), ("sigma", "geometric"))
RETURN_OUT = "returns, taken, sigma"  # `return_out` among the combinations of factors
FAMILIES = {"x0.001": "times 0.001", "x1": "as they are", "x10000": "times 10,000"}
KNOBS = {
    "none": 0,
    "clip": 1,
    "return": 0,
    "return_out": 0,
    "pop_art": 3,
    "pop_art_first": 2,
    "max_reward": 0,
    "gymnasium": 1,
    "two_hot": 2,
    "return_support": 2,
}
Rows = Sequence[Mapping[str, str]]
Logs = dict[tuple[str, str, str], np.ndarray]  # (game, task, method) -> float64 [runs]


class Line(NamedTuple):
    """A contrast by one measure."""

    name: str
    compared: Contrast
    p_value: float  # adjusted
    looks: int

    @property
    def decided(self) -> str:
        if self.p_value < 0.05:
            return "different"
        return "the same" if self.looks * self.compared.equivalence(MARGIN) < 0.05 else "open"


def logs(rows: Rows, measure: str) -> Logs:
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        key = row["game"], row["task"], row["method"]
        found.setdefault(key, []).append(np.log(max(float(row[measure]), LEAST)))
    return {key: np.array(values) for key, values in found.items()}


def sides(found: Logs, pairs: Iterable[tuple[str, str]]) -> tuple[Cells, Cells]:
    """Cells of both sides of some pairs of methods, in every task that has runs of both."""
    tasks = sorted({key[:2] for key in found})
    both = [
        (found[(*task, ours)], found[(*task, theirs)])
        for ours, theirs in pairs
        for task in tasks
        if (*task, ours) in found and (*task, theirs) in found
    ]
    return [ours for ours, _ in both], [theirs for _, theirs in both]


def compared(named: Mapping[str, tuple[Cells, Cells]], looks: int = 1) -> list[Line]:
    """Contrasts of one table, p-values adjusted for their number and for looks; those without runs are left out."""
    named = {name: cells for name, cells in named.items() if cells[0]}
    adjusted = holm([min(1.0, looks * permutation(*cells)) for cells in named.values()])
    return [
        Line(name, contrast(*cells), float(p), looks)
        for (name, cells), p in zip(named.items(), adjusted, strict=True)
    ]


def table_contrasts(found: Logs) -> list[Line]:
    looks = max(map(len, found.values())) // reward_scales.LOOK
    return compared({f"`{a}` over `{b}`": sides(found, [(a, b)]) for a, b in TABLE_CONTRASTS}, looks)


def looked_at(rows: Rows) -> Rows:
    """The table's rows of all looks that are complete; further repeats count from the next one on."""
    cells = len(reward_scales.GAMES) * len(reward_scales.TASKS) * len(reward_scales.METHODS)
    found: Rows = ()
    for end in (reward_scales.LOOK * look for look in (1, 2, 3)):
        before = [row for row in rows if int(row["repeat"]) < end]
        found = before if len(before) == cells * end else found
    return found


def same_rate_rows(read: Mapping[str, Rows]) -> Rows:
    """What the contrast of `same_rate` is about; none before all of its runs are there."""
    theirs = read["same_rate"]
    if len(theirs) < len(reward_scales.GAMES) * len(reward_scales.TASKS) * reward_scales.LOOK:
        return ()
    ours = [
        row
        for row in looked_at(read["table"])
        if row["method"] == "pop_art_first" and int(row["repeat"]) < reward_scales.LOOK
    ]
    return [*ours, *theirs]


def same_rate_contrast(found: Logs) -> list[Line]:
    return compared({"`pop_art_first` over `pop_art`": sides(found, [("pop_art_first", "pop_art")])})


def by_task(rows: Rows, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Ratios of mean returns in each task, over both games, and in all of them."""
    found, tasks = logs(rows, "mean_return"), reward_scales.TASKS
    lines = [
        f"| contrast | {' | '.join(FAMILIES.get(task, f'`{task}`') for task in tasks)} | all |",
        "|---" * (2 + len(tasks)) + "|",
    ]
    for pair in pairs:
        cells = [
            sides({key: values for key, values in found.items() if key[1] in some}, [pair])
            for some in (*((task,) for task in tasks), tasks)
        ]
        entries = " | ".join(ratio(contrast(*both)) for both in cells)
        lines.append(f"| `{pair[0]}` over `{pair[1]}` | {entries} |")
    return lines


def picked(table: Rows, attribution: Rows) -> list[str]:
    """Ratios over several tasks, or over both experiments, that the ratios by task were the reason to look at."""
    earning = logs([row for row in table if float(row["greedy"]) > LEAST], "greedy")
    found, more = logs(table, "mean_return"), logs(attribution, "mean_return")
    others = [task for task in reward_scales.TASKS if task not in LEADING]
    lines = []
    for words, tasks in (
        ("times 0.001, times 10,000 and `offset`", LEADING),
        ("the other four tasks", others),
    ):
        cells = sides({key: v for key, v in found.items() if key[1] in tasks}, [("return_out", "return")])
        lines.append(f"* `return_out` over `return`, {words}: {ratio(contrast(*cells))}")
    games = reward_scales.GAMES
    if all((game, "x1", method) in more for game in games for method in (RETURN_OUT, "none")):
        ours, theirs = (
            [np.concatenate([found[game, "x1", name], more[game, "x1", other]]) for game in games]
            for name, other in (("return_out", RETURN_OUT), ("none", "none"))
        )
        runs = min(map(len, (*ours, *theirs)))
        lines.append(
            f"* `return_out` over `none` as rewards are, with the runs of [attribution]"
            f"(#what-makes-the-difference-to-pop-art), {runs} a game: {ratio(contrast(ours, theirs))}"
        )
    greedy = contrast(*sides(earning, [("return_support", "return_out")]))
    lines.append(
        "* `return_support` over `return_out`, greedy, at the end, without policies that earn nothing: "
        + ratio(greedy)
    )
    return lines


def above_none(found: Logs) -> str:
    """How many methods are above `none` as rewards are, and by how much at most."""
    clean = {key: values for key, values in found.items() if key[1] == "x1"}
    methods = sorted({key[2] for key in clean} - {"none"})
    compared = [
        contrast(*cells) for cells in (sides(clean, [(name, "none")]) for name in methods) if cells[0]
    ]
    best = max(compared, key=lambda line: line.difference, default=None)
    above = sum(line.difference > 0 for line in compared)
    most = f", by {ratio(best)} at most" if best is not None and above else ""
    return f"As rewards are, {above} of {len(compared)} methods are above `none`{most}."


def levels(ours: str, theirs: str, within: str = "") -> list[tuple[str, str]]:
    """Pairs of methods that differ by a factor's two levels alone, of those at the level `within` of another factor."""
    split = {name: name.split(", ") for name in reward_scales.FACTORIAL}
    return [
        (name, ", ".join(theirs if word == ours else word for word in words))
        for name, words in split.items()
        if ours in words and (not within or within in words)
    ]


def factor_contrasts(found: Logs) -> list[Line]:
    """Each factor's two levels, over all combinations of the other factors."""
    return compared({f"{a} over {b}": sides(found, levels(a, b)) for a, b in FACTORS})


def interaction_table(rows: Rows) -> list[str]:
    """The factors' contrasts at each level of the other factors; `return_out` against Pop-Art and clipped rewards."""
    of_factors: list[tuple[str, ...]] = [*FACTORS[:2], ("sigma", "s", "geometric")]
    lines = [
        f"| contrast | at | {' | '.join(f'ratio {words}' for words in MEASURES.values())} |",
        "|---" * (2 + len(MEASURES)) + "|",
    ]
    by_measure = [logs(rows, measure) for measure in MEASURES]
    entries = [
        (f"{ours} over {theirs}", level, levels(ours, theirs, level))
        for ours, theirs in FACTORS
        for level in (level for factor in of_factors if ours not in factor for level in factor)
    ]
    pop_art, first = "targets, preserved, s", "targets, taken, s"
    entries += [
        (f"`return_out` ({RETURN_OUT}) over Pop-Art ({pop_art})", "", [(RETURN_OUT, pop_art)]),
        (f"`return_out` over `pop_art_first` ({first})", "", [(RETURN_OUT, first)]),
        ("`return_out` over `clip`", "", [(RETURN_OUT, "clip")]),
    ]
    for name, level, pairs in entries:
        cells = [sides(found, pairs) for found in by_measure]
        if cells[0][0]:
            lines.append(f"| {name} | {level} | {' | '.join(ratio(contrast(*both)) for both in cells)} |")
    return lines


def ratio(line: Contrast) -> str:
    low, high = line.interval()
    point = f"{np.exp(line.difference):.2f}"
    return f"{point} [{np.exp(low):.2f}, {np.exp(high):.2f}]" if np.isfinite(low) else point


def rounded_p(p_value: float) -> str:
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def contrast_table(rows: Rows, of: Callable[[Logs], list[Line]]) -> list[str]:
    by_measure = [of(logs(rows, measure)) for measure in MEASURES]
    head = " | ".join(f"ratio {words}" for words in MEASURES.values())
    lines = [f"| contrast | {head} | p, adjusted | |", "|---" * (3 + len(MEASURES)) + "|"]
    for same in zip(*by_measure, strict=True):
        entries = " | ".join(ratio(line.compared) for line in same)
        lines.append(f"| {same[0].name} | {entries} | {rounded_p(same[0].p_value)} | {same[0].decided} |")
    return lines


def kept(found: Logs, method: str, task: str) -> Contrast | None:
    """Share of the reference that a method keeps in a task, over both games: `none` in the clean game."""
    pairs = [
        (found[game, task, method], found[game, "x1", "none"])
        for game in reward_scales.GAMES
        if (game, task, method) in found and (game, "x1", "none") in found
    ]
    return contrast([ours for ours, _ in pairs], [theirs for _, theirs in pairs]) if pairs else None


def kept_table(rows: Rows) -> list[str]:
    """Methods by families of tasks."""
    found, tasks = logs(rows, "mean_return"), reward_scales.TASKS
    lines = [
        "| `--scaling` | "
        + " | ".join(FAMILIES.get(task, f"`{task}`") for task in tasks)
        + " | all | rate | knobs | "
        "cpu-ms per update |",
        "|---" * (len(tasks) + 5) + "|",
    ]
    for method in reward_scales.METHODS:
        own = [row for row in rows if row["method"] == method]
        if own:
            shares = [kept(found, method, task) for task in tasks]
            overall = np.exp(np.mean([share.difference for share in shares if share is not None] or [np.nan]))
            cost = np.median([float(row["cpu_ms_per_update"]) for row in own])
            lines.append(
                f"| `{method}` | {' | '.join('' if share is None else ratio(share) for share in shares)} | "
                f"{overall:.2f} | {own[0]['rate']} | {KNOBS[method]} | {cost:.1f} |"
            )
    return lines


def rates_table(rows: Rows) -> list[str]:
    """Mean returns, geometric over both games, and how many repeats they are of."""
    found = reward_scales.mean_logs(rows)
    rates = sorted({rate for _, rate in found}, key=float)
    lines = [f"| `--scaling` | {' | '.join(rates)} |", "|---" * (1 + len(rates)) + "|"]
    for method in reward_scales.METHODS:
        cells = [found.get((method, rate)) for rate in rates]
        entries = ("" if cell is None else f"{np.exp(cell[0]):.2f} ({cell[1]})" for cell in cells)
        lines.append(f"| `{method}` | {' | '.join(entries)} |")
    return lines


def cell_table(rows: Rows) -> list[str]:
    """Every method's mean returns by game and task."""
    columns = sorted({(row["game"], row["task"]) for row in rows})
    lines = [
        "| method | " + " | ".join(f"{game}, {task}" for game, task in columns) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for method in dict.fromkeys(sorted(row["method"] for row in rows)):
        entries = []
        for game, task in columns:
            own = [r for r in rows if (r["game"], r["task"], r["method"]) == (game, task, method)]
            mean = np.mean([float(row["mean_return"]) for row in own]) if own else np.nan
            entries.append(f"{mean:.2f} ({len(own)})" if own else "")
        lines.append(f"| `{method}` | {' | '.join(entries)} |")
    return lines


def page(read: Mapping[str, Rows]) -> str:
    """The Markdown page; `read`: the runs of each experiment."""
    every = [row for rows in read.values() for row in rows]
    minutes = sum(float(row["minutes"]) for row in every)
    parts = [
        "# What normalises best when rewards have other scales",
        "",
        "`.venv/bin/python -m benchmarks.reward_scales_results`: "
        + ", ".join(f"{len(rows)} runs of {name}" for name, rows in read.items())
        + f"; {minutes / 60:.1f} hours of one core ({grid.processors(every)}). `benchmarks/reward_scales.py` says "
        + "how they were made.",
        "",
        (__doc__ or "").split("\n\n")[-1].strip(),
        "",
        "![Share kept by reward multiplier, and contrasts](scales.png)",
        "",
    ]
    if rows := looked_at(read["table"]):
        parts += [
            "## Methods",
            "",
            "Share of the return of `none` in the clean game that is kept, over the run.",
            "",
        ]
        parts += [*kept_table(rows), "", *contrast_table(rows, table_contrasts), ""]
        pairs = [*TABLE_CONTRASTS, *AFTERWARDS]
        parts += [
            "Ratios over the run by task, and of other pairs: looked at afterwards, and so without p. What is told of "
            f"single tasks is picked from these {len(pairs) * len(reward_scales.TASKS)}.",
            "",
        ]
        parts += [
            *by_task(rows, pairs),
            "",
            "Picked after those:",
            "",
            *picked(rows, read["attribution"]),
            "",
        ]
        parts += [*cell_table(rows), ""]
    if rows := same_rate_rows(read):
        parts += ["## Pop-Art at the same learning rate", "", *contrast_table(rows, same_rate_contrast), ""]
        parts += ["By task, looked at beside it, and so without p:", ""]
        parts += [*by_task(rows, [("pop_art_first", "pop_art")]), ""]
    if rows := read["attribution"]:
        parts += ["## What makes the difference to Pop-Art", "", *contrast_table(rows, factor_contrasts), ""]
        parts += [
            "Looked at afterwards, and so without p: the same at each level of the other factors, and `return_out`.",
            "",
        ]
        parts += [*interaction_table(rows), "", above_none(logs(rows, "mean_return")), ""]
        parts += [*cell_table(rows), ""]
    if rows := read["rates"]:
        parts += [
            "## Learning rates",
            "",
            "Mean return, geometric over both games (repeats).",
            "",
            *rates_table(rows),
            "",
        ]
    return "\n".join(parts)


def draw(read: Mapping[str, Rows]):
    """Left, from the table's first look on: share kept over reward multipliers; right: the contrasts."""
    found = logs(looked_at(read["table"]), "mean_return")
    drawing, axes = new_figure(1, 2 if found else 1, panel=(6.0, 4.5))
    multipliers = {task: float(task[1:]) for task in FAMILIES}
    for place, method in enumerate(reward_scales.METHODS):
        shares = {m: kept(found, method, task) for task, m in multipliers.items()}
        known = {m: share for m, share in shares.items() if share is not None}
        if known:
            at = np.array(list(known)) * 1.06 ** (place - 5)
            points = np.exp([share.difference for share in known.values()])
            ends = np.exp([share.interval() for share in known.values()]).T
            errors = np.abs(ends - points)
            errors[~np.isfinite(errors)] = 0.0
            axes[0, 0].errorbar(at, points, errors, fmt="o-", ms=3, lw=1, capsize=2, label=method)
    if found:
        axes[0, 0].axhline(1.0, color="gray", ls=":")
        axes[0, 0].set(
            xscale="log", xlabel="reward multiplier", title="share of the clean game's return kept"
        )
        drawing.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=10)
    lines = table_contrasts(found) if found else []
    lines += factor_contrasts(logs(read["attribution"], "mean_return")) if read["attribution"] else []
    for place, line in enumerate(reversed(lines)):
        low, high = line.compared.interval()
        axes[0, -1].plot(
            np.exp([low, high]) if np.isfinite(low) else [], [place] * 2 if np.isfinite(low) else [], "k-"
        )
        axes[0, -1].plot(np.exp(line.compared.difference), place, "ko", ms=4)
    axes[0, -1].set_yticks(
        range(len(lines)), [line.name.replace("`", "") for line in reversed(lines)], fontsize=8
    )
    axes[0, -1].axvline(1.0, color="gray", ls=":")
    axes[0, -1].set(xscale="log", title="ratio of mean returns, 95%")
    axes[0, -1].xaxis.set_major_locator(
        FixedLocator((0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5))
    )
    low, high = axes[0, -1].get_xlim()
    axes[0, -1].set_xlim(min(low, 0.88), max(high, 1.14))
    axes[0, -1].xaxis.set_major_formatter("{x:.3g}")
    axes[0, -1].xaxis.set_minor_locator(NullLocator())
    return drawing


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=grid.ROOT / "docs/results", metavar="FOLDER")
    folder = parser.parse_args(command_line).results
    read = {
        name: grid.read(folder / reward_scales.tables(name)["runs"].name)
        for name in reward_scales.EXPERIMENTS
    }
    if not any(read.values()):
        parser.exit(2, f"{folder} has no runs yet. Make some: python -m benchmarks.reward_scales rates\n")
    (folder / "scales.md").write_text(page(read))
    draw(read).savefig(folder / "scales.png", dpi=100)
    print(f"{sum(map(len, read.values()))} runs: {folder / 'scales.md'} and the figure beside it")


if __name__ == "__main__":
    main()
