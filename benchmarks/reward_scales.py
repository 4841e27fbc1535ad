"""The scalings' comparison: which learns best when rewards have other scales? MinAtar, 50,000 steps a run.

    .venv/bin/python -m benchmarks.reward_scales sweep benchmarks/sweeps/scales.sweep   # 8 hours of one core
    .venv/bin/python -m benchmarks.reward_scales sweep benchmarks/sweeps/scales_pop_art.sweep
    .venv/bin/python -m benchmarks.reward_scales table runs/scales runs/scales_pop_art  # or without folders

The sweeps say what a run is: two games with rewards times 0.001, 1 and 10,000, `mixed`, `spikes`, `offset` and `drift`
(`benchmarks.reward_tasks`), ten heads, an update per 10 environment steps. Each run is train.py's and leaves one thing
more, what it scored in the clean game: score.json in its folder. `table` adds these to docs/results/scales_table.csv,
leaves out runs that are there already, and prints the table of all. A scaling's learning rate is the one with the
highest mean logarithm of scores in benchmarks/sweeps/scales_rates.sweep, whose rewards are times 10.

A score is the mean return per episode of the clean game over ten parts of the run, so that the speed of learning
counts. Methods are compared by logarithms, so that differences are ratios, and all games and tasks count alike.
Intervals are those of reports, 95% bootstrap intervals over repeats; of three repeats they hold the truth in about 89%
of cases.
"""

from __future__ import annotations

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import argparse  # noqa: E402
import csv  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterable, Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import gin  # noqa: E402
import numpy as np  # noqa: E402

from agents.commands import sweep, train  # noqa: E402
from agents.commands.options import TrainOptions, parsed  # noqa: E402
from agents.monitoring.report import estimates  # noqa: E402
from agents.running.embedded import EmbeddedRun  # noqa: E402
from agents.storage import run_folder  # noqa: E402
from benchmarks import reward_tasks  # noqa: E402
from benchmarks.performance import ROOT, processor  # noqa: E402

TABLE, SCORE = ROOT / "docs/results/scales_table.csv", "score.json"
GAMES = ("space_invaders", "breakout")
TASKS = ("x0.001", "x1", "x10000", "mixed", "spikes", "offset", "drift")
BINS = 10
KEY = ("experiment", "game", "task", "method", "rate", "repeat")
Rows = Sequence[Mapping[str, str]]


def score(episodes: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Mean returns over all parts of a run, and over its last fifth; from returns and lengths of each environment."""
    returns = np.concatenate([returns for returns, _ in episodes])
    ends = np.concatenate([np.cumsum(lengths) for _, lengths in episodes])
    parts = estimates.binned(ends, returns, np.linspace(0, ends.max(), BINS + 1))
    return {"mean_return": np.nanmean(parts), "last_fifth": np.nanmean(parts[-BINS // 5 :])}


def train_and_score(flags: Sequence[str]) -> int:
    """Runs train.py with these flags; a finished run leaves score.json in its folder. Returns the exit code."""
    options = TrainOptions.of_flags(parsed(flags))
    assert options.root_dir is not None and options.env is not None
    settings = train.configure(options)
    rate = gin.query_parameter("RecurrentMultiHeadAgent.learning_rate")
    with run_folder.opened(options.root_dir) as folder:
        embedded = EmbeddedRun(folder.path, settings)
        folder.begin(flags)
        start, cpu = time.monotonic(), time.process_time()
        with embedded:
            result = embedded.run()
            episodes = reward_tasks.clean_episodes(embedded.environment)
        if result.stopped_by is not None:
            return 128 + result.stopped_by
        game, task = reward_tasks.game_and_task(options.env)
        key = dict(zip(KEY, ("table", game, task, options.scaling, f"{rate:g}", options.seed), strict=True))
        cost = {"cpu_ms_per_update": 1e3 * (time.process_time() - cpu) / result.updates}
        numbers = {name: f"{value:.5g}" for name, value in (score(episodes) | cost).items()}
        facts = {"updates": str(result.updates), "minutes": f"{(time.monotonic() - start) / 60:.1f}"}
        (folder.path / SCORE).write_text(json.dumps(key | numbers | facts | {"processor": processor()}))
        folder.finish(result.updates, result.head)
    return 0


def read(table: Path = TABLE) -> list[dict[str, str]]:
    """The table's lines."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def add(table: Path, folders: Iterable[Path]) -> None:
    """Adds the lines of the runs below the folders that the table does not have."""
    rows = read(table)

    def key(row: Mapping[str, str]) -> tuple[str | float, ...]:
        return tuple(float(row[name]) if name == "rate" else row[name] for name in KEY)

    known = {key(row) for row in rows}
    found = [json.loads(path.read_text()) for folder in folders for path in sorted(folder.rglob(SCORE))]
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writerows(line for line in found if key(line) not in known)


def logs(rows: Rows, method: str, tasks: Sequence[str] = TASKS) -> np.ndarray:
    """Logarithms of a method's scores in both games: float64 [repeats, games x tasks], of repeats that all have."""
    cells: dict[tuple[str, str], list[float]] = {(game, task): [] for game in GAMES for task in tasks}
    for row in rows:
        if row["method"] == method and row["task"] in tasks:
            cells[row["game"], row["task"]].append(np.log(float(row["mean_return"])))
    repeats = min(map(len, cells.values()))
    return np.array([cell[:repeats] for cell in cells.values()]).T


def ratio(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Ratio of scores and its interval, from logarithms [repeats, cells]; empty where one side has none."""
    if not (len(ours) and len(theirs)):
        return ""
    found = estimates.estimate(ours, theirs, function=lambda a, b: np.array([a.mean() - b.mean()]))
    point, low, high = np.exp(found[:, 0])
    return f"{point:.2f} [{low:.2f}, {high:.2f}]" if np.isfinite(low) else f"{point:.2f}"


def tables(rows: Rows) -> list[str]:
    """Markdown: the share of the score of `none` in the clean game that each method keeps, and ratios of methods."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    reference = logs(rows, "none", ["x1"])
    lines = [f"| `--scaling` | {' | '.join(TASKS)} | rate | cpu-ms per update |"]
    lines += ["|---" * (len(TASKS) + 3) + "|"]
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        cost = np.median([float(row["cpu_ms_per_update"]) for row in own])
        shares = " | ".join(ratio(logs(rows, method, [task]), reference) for task in TASKS)
        lines.append(f"| `{method}` | {shares} | {own[0]['rate']} | {cost:.1f} |")
    lines += ["", f"| over all tasks, over | {' | '.join(f'`{method}`' for method in methods)} |"]
    lines += ["|---" * (len(methods) + 1) + "|"]
    for method in methods:
        entries = [
            "" if other == method else ratio(logs(rows, method), logs(rows, other)) for other in methods
        ]
        lines.append(f"| `{method}` | {' | '.join(entries)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sweep").add_argument("file", type=Path)
    commands.add_parser("table").add_argument("folders", type=Path, nargs="*")
    if sys.argv[1:2] == ["train"]:
        return train_and_score(sys.argv[2:])
    options = parser.parse_args()
    if options.command == "sweep":
        command = (sys.executable, "-m", "benchmarks.reward_scales", "train")
        return sweep.run(options.file, None, None, train.check_commands, command)
    add(TABLE, options.folders)
    print(*tables(read(TABLE)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
