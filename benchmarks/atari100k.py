"""The 26 games of Atari 100k beside published scores of small agents.

    .venv/bin/python train.py --sweep=atari100k                # an hour of two cores; the same command goes on
    .venv/bin/python -m benchmarks.atari100k runs/atari100k    # of the runs that have finished

Published scores are of docs/results/atari100k_published.csv: Table 5 of Cetin et al. 2022 (Stabilizing Off-Policy Deep
Reinforcement Learning from Pixels), which has those of SimPLe (Kaiser et al. 2020), Data-Efficient Rainbow (van Hasselt
et al. 2019), OTRainbow (Kielak 2020), CURL (Laskin et al. 2020), DrQ (Kostrikov et al. 2021) and SPR (Schwarzer et al.
2021) game by game.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from agents.monitoring.report.estimates import aggregates
from benchmarks.atari57 import write_rows
from benchmarks.performance import ROOT
from rbs_tf.scores import RANDOM, human_normalised_score

PUBLISHED = ROOT / "docs/results/atari100k_published.csv"
# Mean, median and interquartile mean of the runs of Agarwal et al. 2021 (Deep Reinforcement Learning at the Edge of the
# Statistical Precipice), 100 of each game but SimPLe's 5, computed from the copy in github.com/eloialonso/iris.
RUN_AGAIN = {
    "SimPLe": (0.332, 0.134, 0.130),
    "CURL": (0.261, 0.092, 0.113),
    "DrQ(eps)": (0.465, 0.313, 0.280),
    "SPR": (0.616, 0.396, 0.337),
}
DIFFERS = """\
Ours makes some 2,300 updates of sequences of 20 steps where the others make 100,000 or more of single steps, on one
core in minutes; its episodes are cut at 4,500 steps (18,000 frames), theirs at 27,000. One run a game and ten greedy
episodes: scores of single games say little. The interquartile mean of published scores is one of means of several runs,
which leaves out fewer good runs than one of all runs does: compare ours with those of Agarwal et al."""


def published() -> dict[str, dict[str, float]]:
    """Score in points: agent -> game -> mean over its runs; the random agent's come first."""
    with PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    agents = [name for name in rows[0] if name != "game"]
    scores = {name: {row["game"]: float(row[name]) for row in rows} for name in agents}
    return {"random": {row["game"]: RANDOM[row["game"]] for row in rows}, **scores}


def ours(root: Path) -> dict[str, float]:
    """Greedy score in points of each game that has a finished run below a folder; a mean over its runs."""
    found: dict[str, list[float]] = {}
    for path in sorted(root.glob("*/atari57_runs.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault(row["game"], []).append(float(row["greedy"]))
    return {game: float(np.mean(scores)) for game, scores in found.items()}


def report(scores: dict[str, float]) -> str:
    """Markdown: aggregates over the games that have a score, ours and the published ones, then each game's.

    Raises:
      SystemExit: none of the 26 games has one.
    """
    others = published()
    games = [game for game in others["random"] if game in scores]
    if not games:
        raise SystemExit("No run of any of the 26 games of Atari 100k has finished there.")
    agents = {"random": others.pop("random"), "ours": scores, **others}
    lines = [
        f"Human-normalised, {len(games)} of {len(others['SPR'])} games (0: a random player, 1: a human)",
        "",
        "| agent | mean | median | interquartile mean |",
        "|---|---|---|---|",
    ]
    for name, of in agents.items():
        normalised = np.array([human_normalised_score(game, of[game]) for game in games])
        mean, median, _, iqm = aggregates(normalised[None])
        lines.append(f"| {name} | {mean:.3f} | {median:.3f} | {iqm:.3f} |")
    if len(games) == len(others["SPR"]):
        lines += [
            f"| {name}, of Agarwal et al. | {mean:.3f} | {median:.3f} | {iqm:.3f} |"
            for name, (mean, median, iqm) in RUN_AGAIN.items()
        ]
    lines += ["", DIFFERS, "", f"| points | {' | '.join(agents)} |", "|---" * (1 + len(agents)) + "|"]
    lines += [f"| {game} | {' | '.join(f'{of[game]:,.6g}' for of in agents.values())} |" for game in games]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, metavar="ROOT_DIR", help="parent of the runs' folders")
    root = parser.parse_args().root
    write_rows(root)
    print(report(ours(root)))


if __name__ == "__main__":
    main()
