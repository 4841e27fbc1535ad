"""What scaling does where rewards are large, and which learning rates it takes: docs/paper.md.

    .venv/bin/python train.py --sweep=benchmarks/sweeps/large_rewards.sweep   # 15 hours of one core; it goes on
    .venv/bin/python -m benchmarks.learning runs/large_rewards --output=docs/results/large_rewards.csv
    .venv/bin/python -m benchmarks.large_rewards   # the page's tables, and its figure

The rules stand in the sweep's file, but for the intervals: Student's t over games, as a bootstrap of six is too narrow.
A game counts once all its runs have finished.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
from scipy import stats

from agents.monitoring.figure import new_figure
from benchmarks.performance import ROOT, put_between
from rbs_tf.scores import human_normalised_score

TABLE, FIGURE = (ROOT / f"docs/results/large_rewards.{ending}" for ending in ("csv", "png"))
PAGE = ROOT / "docs/paper.md"
BEGIN, END = "<!-- tables: written by benchmarks/large_rewards.py -->", "<!-- end of tables -->"
VARIANTS = {
    "return": "ten heads, return",
    "return_out": "ten heads, return_out",
    "none": "ten heads, none",
    "one_head_return": "one head, return",
    "one_head_none": "one head, none",
}
RATES = (1e-4, 2e-4, 5e-4, 1e-3)
# The sweep's fourth rate, of variants whose best one over the first six games is the lowest of three.
FOURTH = {"return": 1e-4, "one_head_return": 1e-4}
TRIED = np.array([[rate in (2e-4, 5e-4, 1e-3, FOURTH.get(name)) for rate in RATES] for name in VARIANTS])
CONTRASTS = (("return", "none"), ("return_out", "none"), ("one_head_return", "one_head_none"))
READINGS = ("at the rate that is best in the other games", "at its best rate", "at its worst rate")
MEASURES = {"greedy": "greedy at the end", "discounted": "training, last fifth"}


def read(path: Path, measure: str, normalised: bool = True) -> dict[str, np.ndarray]:
    """A column of the table: float64 [variants, rates] of each game whose runs are all there; NaN: not `TRIED`."""
    found: dict[str, np.ndarray] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            # The folder's name: config-env-scaling-learning_rate_RATE.
            match = re.search(
                r"atari_small-(\w+)-(?:\w+_sweeps_)?(\w+)-learning_rate_([\de.]+)", row["variant"]
            )
            assert match is not None, row["variant"]
            game, variant, rate = match.groups()
            cells = found.setdefault(game, np.full((len(VARIANTS), len(RATES)), np.nan))
            score = float(row[measure])
            place = list(VARIANTS).index(variant), RATES.index(float(rate))
            cells[place] = human_normalised_score(game, score) if normalised else score
    return {game: cells for game, cells in found.items() if np.isfinite(cells[TRIED]).all()}


def readings(scores: np.ndarray) -> np.ndarray:
    """Scores [games, variants, rates] as each of `READINGS` takes them: [readings, games, variants].

    NaN is a rate that a variant was not tried at, in any game.
    """
    games = len(scores)
    elsewhere = (scores.sum(axis=0) - scores) / max(games - 1, 1)
    best = np.nanargmax(elsewhere, axis=-1)
    left_out = np.take_along_axis(scores, best[..., None], axis=-1)[..., 0]
    return np.stack([left_out, np.nanmax(scores, axis=-1), np.nanmin(scores, axis=-1)])


def interval(differences: np.ndarray, level: float) -> np.ndarray:
    """Mean over games [G], and its interval by Student's t: float64 [3]."""
    reach = stats.t.ppf(0.5 + level / 2, len(differences) - 1) * stats.sem(differences)
    return np.mean(differences) + np.array([0.0, -reach, reach])


def tables(scores: dict[str, np.ndarray]) -> list[str]:
    """Markdown: every variant's mean score in each reading, then the nine contrasts, their levels Bonferroni's.

    Bold is what the rule calls seen: an interval of means above 0.
    """
    taken = readings(np.array(list(scores.values())))
    lines = [f"| mean | {' | '.join(READINGS)} |", "|---" * (1 + len(READINGS)) + "|"]
    for index, name in enumerate(VARIANTS.values()):
        lines.append(f"| {name} | {' | '.join(f'{mean:.2f}' for mean in taken[..., index].mean(axis=1))} |")
    lines += ["", f"| difference: mean; games above | {' | '.join(READINGS)} |"]
    lines += ["|---" * (1 + len(READINGS)) + "|"]
    level = 1 - 0.05 / (len(READINGS) * len(CONTRASTS))
    for ours, theirs in CONTRASTS:
        pair = [list(VARIANTS).index(name) for name in (ours, theirs)]
        shown = []
        for of in taken:
            differences = of[:, pair[0]] - of[:, pair[1]]
            found = interval(differences, level)
            mean = "{:.2f} [{:.2f}, {:.2f}]".format(*found)
            mean = f"**{mean}**" if found[1] > 0 else mean
            shown.append(f"{mean}; {(differences > 0).sum()} of {len(of)}")
        lines.append(f"| {VARIANTS[ours]} less {VARIANTS[theirs]} | {' | '.join(shown)} |")
    return lines


def draw(scores: dict[str, np.ndarray]):
    """A panel a game: greedy score over learning rate, a line a variant."""
    drawing, grid = new_figure(-(-len(scores) // 3), 3, (3.0, 2.6), sharex=True)
    panels = grid.ravel()
    colours = {"return": "tab:green", "return_out": "tab:blue", "none": "tab:red"}
    for panel, (game, cells) in zip(panels, scores.items(), strict=False):
        for index, (variant, name) in enumerate(VARIANTS.items()):
            style = "--" if variant.startswith("one_head") else "-"
            colour = colours[variant.removeprefix("one_head_")]
            panel.plot(RATES, cells[index], style, marker="o", ms=3, color=colour, label=name)
        panel.axhline(0.0, color="tab:gray", lw=0.6)
        panel.set_title(game.replace("_", " "))
        panel.set_xscale("log")
        panel.set_xticks(RATES, ["1e-4", "2e-4", "5e-4", "1e-3"])
        panel.minorticks_off()
    for panel in panels[len(scores) :]:
        panel.axis("off")
    drawing.supxlabel("learning rate")
    drawing.supylabel("human-normalised greedy score", fontsize="small")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(VARIANTS))
    return drawing


def of_page(path: Path) -> str:
    """What a table of runs makes of the page: Markdown."""
    parts = []
    for measure, name in MEASURES.items():
        scores = read(path, measure)
        parts += [f"#### {name.capitalize()}: {len(scores)} games", "", *tables(scores), ""]
    return "\n".join(parts).rstrip()


def main() -> None:
    written = of_page(TABLE)
    print(written)
    put_between(PAGE, BEGIN, END, written)
    draw(read(TABLE, "greedy")).savefig(FIGURE, dpi=90)


if __name__ == "__main__":
    main()
