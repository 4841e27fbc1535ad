"""Draws what `atari_small` learns on one core: curves of finished and of running runs, as figure, table and CSV.

    for seed in 0 1 2; do for game in pong breakout; do
      taskset -c 0 .venv/bin/python train.py --config=atari_small --env=$game --seed=$seed
    done; done
    for game in space_invaders freeway; do
      taskset -c 0 .venv/bin/python train.py --config=atari_small --env=$game
    done
    .venv/bin/python -m benchmarks.atari_small runs/atari_small-*

These eight runs count, all of them. Pong and Breakout are what the config was tuned on; nobody looked at the other two
before: Space Invaders, whose scores are in the hundreds, and Freeway, whose reward is rare.

Seeds 0 and 1 of Pong were begun before the config gave lost lives a signal, which Pong has not; by Breakout's seed 0
that signal was chosen.

Minutes are those of a quiet core, at the rate that Pong's seed 1 had on one, evaluations included: other runs shared
theirs with other work. Greedy returns are means of 20 whole games with the head that the bandit rates best, cut after
18,000 frames; training returns are those of exploring episodes, in bins of 50,000 steps. Where
docs/results/atari_rivals.csv is there (`make rivals`), what Stable-Baselines3 makes of the same hour goes beside them.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.monitoring.report import runs
from rbs_tf import scores
from studies import figure

RESULTS = Path(__file__).parents[1] / "docs/results"
RIVALS = RESULTS / "atari_rivals.csv"
BIN = 50_000  # steps that a training return is the mean of
STEPS_PER_SECOND = 272  # of a quiet core of an Intel Xeon (AVX-512): 1,005,569 steps in 61.7 minutes
QUARTERS = (15, 30, 45, 60)  # minutes
COLUMNS = ("game", "seed", "kind", "update", "steps", "minutes", "return")


class Point(NamedTuple):
    """A mean return, and when it was reached."""

    game: str
    seed: int
    kind: str  # "greedy" or "training"
    update: int
    steps: int
    minutes: float
    mean_return: float


def points(run: runs.Run) -> list[Point]:
    """Reads what a run has logged, greedy evaluations first."""
    steps_at = run.train.scalars["environment_steps"]

    def point(kind: str, update: float, value: float) -> Point:
        steps = np.interp(update, *steps_at.T)
        minutes = steps / STEPS_PER_SECOND / 60
        return Point(run.environment, run.seed, kind, round(update), round(steps), minutes, float(value))

    greedy = [point("greedy", *row) for row in run.evaluation.scalars.get("episode/return", ())]
    update, value = run.train.scalars["episode/return"].T
    bins = np.interp(update, *steps_at.T) // BIN
    training = [
        point("training", update[bins == index].max(), value[bins == index].mean())
        for index in np.unique(bins)
    ]
    return greedy + training


def at(found: Iterable[Point], minutes: float) -> Point | None:
    """The last of them within so many minutes."""
    return max((p for p in found if p.minutes <= minutes), key=lambda p: p.minutes, default=None)


def read_rivals() -> list[dict[str, str]]:
    """Rows of the table of rivals; empty where nobody has made them."""
    if not RIVALS.is_file():
        return []
    with RIVALS.open(newline="") as file:
        return list(csv.DictReader(file))


def page(found: Sequence[Point], rivals: Sequence[dict[str, str]]) -> str:
    """Tables in Markdown: the course of each run, and the first hour beside Stable-Baselines3."""
    greedy: dict[tuple[str, int], list[Point]] = {}
    for p in found:
        if p.kind == "greedy":
            greedy.setdefault((p.game, p.seed), []).append(p)
    lines = [
        "# Atari on one core\n",
        "`.venv/bin/python -m benchmarks.atari_small runs/atari_small-*`: mean greedy return of 20 games.\n",
        "| game | seed | within an hour | at the end | minutes | steps | best evaluation |",
        "|---|---|---|---|---|---|---|",
    ]
    for (game, seed), course in sorted(greedy.items()):
        hour, end = at(course, 60.0), course[-1]
        first = "" if hour is None else f"{hour.mean_return:.2f} at {hour.steps:,} steps"
        best = max(p.mean_return for p in course)
        lines.append(
            f"| {game} | {seed} | {first} | {end.mean_return:.2f} | {end.minutes:.0f} | {end.steps:,} | {best:.2f} |"
        )
    lines += ["\n## The first hour, beside Stable-Baselines3\n"]
    lines += [
        "| game | agent | seed | minutes | steps | updates | greedy return |",
        "|---|---|---|---|---|---|---|",
    ]
    for game in sorted({game for game, _ in greedy}):
        for (of, seed), course in sorted(greedy.items()):
            reached = [at(course, minutes) for minutes in QUARTERS] if of == game else []
            for p in dict.fromkeys(filter(None, reached)):
                counts = f"{p.minutes:.0f} | {p.steps:,} | {p.update:,}"
                lines.append(f"| {game} | `atari_small` | {seed} | {counts} | {p.mean_return:.2f} |")
        for row in rivals:
            if row["game"] == game:
                counts = f"{float(row['minutes']):.0f} | {int(row['environment_steps']):,} | {int(row['updates']):,}"
                value = f"{float(row['mean_return_served']):.2f}"
                lines.append(f"| {game} | {row['algorithm']} | {row['seed']} | {counts} | {value} |")
    return "\n".join(lines) + "\n"


def draw(found: Sequence[Point], rivals: Sequence[dict[str, str]]):
    """A panel for each game: greedy and training returns of every seed over minutes, and the rivals'."""
    games = sorted({p.game for p in found})
    drawing, axes = figure.new_figure(1, len(games), panel=(4.6, 3.6))
    for panel, game in zip(np.ravel(axes), games, strict=True):
        for seed in sorted({p.seed for p in found if p.game == game}):
            for kind, style in (("greedy", "o-"), ("training", ":")):
                course = [p for p in found if (p.game, p.seed, p.kind) == (game, seed, kind)]
                course.sort(key=lambda p: p.minutes)
                panel.plot(
                    [p.minutes for p in course],
                    [p.mean_return for p in course],
                    style,
                    ms=3,
                    color=f"C{seed}",
                    label=f"seed {seed}, {kind}",
                )
        for algorithm, mark in (("dqn", "s"), ("qrdqn", "^")):
            rows = [row for row in rivals if (row["game"], row["algorithm"]) == (game, algorithm)]
            if rows:
                x, y = zip(
                    *((float(r["minutes"]), float(r["mean_return_served"])) for r in rows), strict=True
                )
                panel.plot(x, y, mark, color="black", mfc="white", label=f"Stable-Baselines3 {algorithm}")
        panel.axhline(scores.RANDOM[game], color="gray", ls="--", lw=0.8, label="random policy")
        panel.set(title=game, xlabel="minutes on one core", ylabel="return per game")
    by_label = {
        text: line
        for panel in np.ravel(axes)
        for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    drawing.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=5, fontsize=8)
    return drawing


def main(argv: Sequence[str] | None = None) -> None:
    """Reads the run folders and writes three files into docs/results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_DIR")
    options = parser.parse_args(argv)
    found = [p for folder in runs.find(options.folders) for p in points(runs.read(folder))]
    if not found:
        parser.exit(2, "There is no run below these folders. Make one: the commands are in --help\n")
    rivals = read_rivals()
    with (RESULTS / "atari_small.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for p in found:
            table.writerow((*p[:5], f"{p.minutes:.1f}", f"{p.mean_return:.4g}"))
    (RESULTS / "atari_small.md").write_text(page(found, rivals))
    draw(found, rivals).savefig(RESULTS / "atari_small.png", dpi=110)


if __name__ == "__main__":
    main()
