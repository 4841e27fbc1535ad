"""The 57 games: what each run leaves in docs/results/atari57*.csv, and the readings that were named before the first.

    .venv/bin/python train.py --sweep=benchmarks/sweeps/atari57_heads.sweep   # 456 runs; the same command goes on
    .venv/bin/python -m benchmarks.atari57 --collect runs/atari57_heads       # their rows into docs/results/
    make paper                                                                # reads them, once all are in
    .venv/bin/python -m benchmarks.atari57 --mark runs/atari57_heads          # on another machine: to go on there

An interrupted run goes on from its checkpoint with new episodes, where the rules in the sweep's file begin it again:
remove its folder first. The rows of a finished run are in its folder, too, so that its checkpoints may go.
`runs` has a row a run, `curves` one for each tenth of its steps, `heads` one for each head and fifth of its updates.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from agents.monitoring.report import runs as run_folders
from agents.monitoring.tags import DEAD, LOSS, SCALED, SIGMA, UNSCALED, VALUE_ERROR
from agents.storage.run_folder import FINISHED, checkpoints
from benchmarks import rows as shipped
from benchmarks.performance import ROOT, processor
from rbs_tf.scores import GAMES

RESULTS = ROOT / "docs/results"
RUN = ("game", "variant", "seed")
COLUMNS = {
    "runs": "updates steps late late_sd late_episodes head greedy dead_units adam_rms commit processor",
    "curves": "tenth episodes return rewards steps dead_units",
    "heads": "fifth head unscaled scaled loss_share sigma value_error",
}
# Looked at before, at any rate or size; those of the second row only in offline pilots.
SEEN = [
    "time_pilot",
    "asteroids",
    "riverraid",
    "yars_revenge",
    "pitfall",
    "centipede",
    "road_runner",
    "crazy_climber",
    "assault",
    "demon_attack",
    "pong",
    "breakout",
    "boxing",
    "space_invaders",
    "qbert",
    "freeway",
]
PILOTS = [
    "bank_heist",
    "ms_pacman",
    "gopher",
    "up_n_down",
    "hero",
    "kung_fu_master",
    "star_gunner",
    "name_this_game",
]
SETS = {
    "41 games not looked at before": [game for game in GAMES if game not in SEEN],
    "33 of them that no pilot used": [game for game in GAMES if game not in (*SEEN, *PILOTS)],
    "all 57": list(GAMES),
}
LATTICE = 8192  # steps to the sum of all sizes, in the distribution of a sum over all flips of signs
LEAST = 10  # episodes that a run's late return is a mean of

Table = list[dict[str, str]]


def late_returns(folder: Path, total: int) -> np.ndarray:
    """Training returns that decide: of episodes of the last fifth of `total` steps whose heads look ahead.

    Where fewer than `LEAST` of them have ended there, the last `LEAST` of the run.
    """
    steps, returns = [], []
    with (folder / "train/episodes.csv").open(newline="") as file:
        for episode in csv.DictReader(file):
            if not episode["head"].endswith("_0"):  # of discount 0
                steps.append(int(episode["environment_steps"]))
                returns.append(float(episode["return"]))
    late = np.array(returns)[np.array(steps) > 0.8 * total]
    return late if len(late) >= LEAST else np.array(returns[-LEAST:])


def _late(folder: Path, total: int) -> tuple[float, float, int]:
    """Mean, standard deviation and number of the returns that decide."""
    late = late_returns(folder, total)
    return float(late.mean()), float(late.std(ddof=1)), len(late)


def of_run(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a finished run, by table, without their first three columns."""
    run = run_folders.read_run(folder)
    with (folder / "train/episodes.csv").open(newline="") as file:
        episodes = list(csv.DictReader(file))
    steps = np.array([int(episode["environment_steps"]) for episode in episodes])
    returns, lengths, rewards = (
        np.array([float(episode[column]) for episode in episodes])
        for column in ("return", "steps", "rewards")
    )
    total = max(run.steps or 1, *steps)
    found = {
        "runs": [
            (run.updates, total, *_late(folder, total), *_greedy(folder))
            + (run.dead_units, _adam_rms(folder), run.versions["commit"], processor())
        ]
    }
    dead = max((of for tag, of in run.train.items() if tag.startswith(f"{DEAD}/")), key=lambda of: of[-1, 1])
    tenth = np.minimum(steps * 10 // total, 9)
    found["curves"] = [
        (k + 1, np.sum(tenth == k), *(_mean(of[tenth == k]) for of in (returns, rewards, lengths)))
        + (_mean(dead[_part(dead[:, 0], run.updates, k, 10), 1]),)
        for k in range(10)
    ]
    losses = np.array([_parts(run.train, f"{LOSS}/{head}", run.updates) for head in run.heads])
    found["heads"] = [
        (k + 1, head)
        + tuple(_parts(run.train, f"{tag}/{head}", run.updates)[k] for tag in (UNSCALED, SCALED))
        + (losses[index, k] / losses[:, k].sum(), _parts(run.train, f"{SIGMA}/{head}", run.updates)[k])
        + (run.evaluation.get(f"{VALUE_ERROR}/{head}", np.full((1, 2), np.nan))[-1, 1] if k == 4 else np.nan,)
        for k in range(5)
        for index, head in enumerate(run.heads)
    ]
    return found


def _greedy(folder: Path) -> tuple[str, float]:
    """The head of the last evaluation, and its mean return."""
    with (folder / "eval/episodes.csv").open(newline="") as file:
        *_, last = episodes = list(csv.DictReader(file))
    played = [each for each in episodes if (each["update"], each["head"]) == (last["update"], last["head"])]
    return last["head"], float(np.mean([float(each["return"]) for each in played]))


def _adam_rms(folder: Path) -> float:
    """RMS over all weights of the last update's step, in learning rates: m / (sqrt(v) + epsilon), both unbiased."""
    import tensorflow as tf

    newest, *_ = checkpoints(folder)
    reader = tf.train.load_checkpoint(str(newest / "variables"))
    slots = {
        name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if "optimizer" in name
    }
    count = int(next(value for name, value in slots.items() if "iterations" in name))
    numbered = {
        int(match[1]): value
        for name, value in slots.items()
        if (match := re.search(r"_variables/(\d+)/", name))
    }
    # Keras counts iterations and the rate first, then m and v of each weight in turn.
    arrays = [value.astype(np.float64) for _, value in sorted(numbered.items()) if value.ndim]
    squares = weights = 0.0
    for m, v in zip(arrays[::2], arrays[1::2], strict=True):
        step = m / (1 - 0.9**count) / (np.sqrt(v / (1 - 0.999**count)) + 1e-6)
        squares, weights = squares + np.sum(step**2), weights + step.size
    return math.sqrt(squares / weights)


def _part(places: np.ndarray, total: float, k: int, parts: int) -> np.ndarray:
    """Which places lie in the k-th of so many equal parts."""
    return (places > k * total / parts) & (places <= (k + 1) * total / parts)


def _parts(scalars: Mapping[str, np.ndarray], tag: str, total: float) -> np.ndarray:
    """Means over the fifths of a run: float64 [5]; NaN where nothing was logged."""
    places, values = scalars.get(tag, np.empty((0, 2))).T
    return np.array([_mean(values[_part(places, total, k, 5)]) for k in range(5)])


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else np.nan


def name_of(folder: Path) -> tuple[str, str, str]:
    """Game, variant and seed of a run, by the sweep's name for its folder."""
    match = re.fullmatch(r"atari_100k-(\w+)-(?:benchmarks_sweeps_)?(\w+)-seed(\d+)", folder.name)
    if match is None:
        raise SystemExit(
            f"{folder.name} is no name of a run of the 57 games: call it atari_100k-GAME-VARIANT-seedN"
        )
    return match.groups()  # type: ignore[return-value]  # three


def write_rows(root: Path) -> None:
    """Writes the rows of each finished run below a folder into the run's own folder, unless they are there."""
    for folder in run_folders.find_runs([root]):
        if (folder / FINISHED).exists() and not (folder / "atari57_runs.csv").exists():
            of = name_of(folder)
            tables = of_run(folder)
            for table in reversed(COLUMNS):  # that of runs is the last: it says that all are there
                rows = tables[table]
                _write(folder / f"atari57_{table}.csv", table, [[*of, *map(_text, row)] for row in rows])


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return str(value)


def _write(path: Path, table: str, rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([[*RUN, *COLUMNS[table].split()], *rows])


def collect(roots: Sequence[Path]) -> None:
    """Adds the rows of all runs below these folders to docs/results/; a run that is there already is replaced.

    What decides is counted from the run's episodes: the first runs wrote their rows before `LEAST` was named.
    """
    for table in COLUMNS:
        path, rows = RESULTS / f"atari57_{table}.csv", dict[tuple[str, ...], list[list[str]]]()
        for each in [path, *(file for root in roots for file in sorted(root.glob(f"*/{path.name}")))]:
            own: dict[tuple[str, ...], list[list[str]]] = {}
            if each.exists():
                with each.open(newline="") as file:
                    for row in list(csv.reader(file))[1:]:
                        if table == "runs" and each != path:
                            row[5:8] = map(_text, _late(each.parent, int(row[4])))
                        own.setdefault(tuple(row[:3]), []).append(row)
            rows |= own
        _write(path, table, [row for of in sorted(rows) for row in rows[of]])


def mark(root: Path) -> None:
    """Makes a sweep take the runs of the shipped table for finished: folders that say so and hold nothing else."""
    for row in read("runs"):
        own = "benchmarks_sweeps_" if row["variant"].startswith("one_head") else ""
        folder = root / f"atari_100k-{row['game']}-{own}{row['variant']}-seed{row['seed']}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / FINISHED).exists():
            (folder / FINISHED).write_text(json.dumps({"updates": sys.maxsize}))


def read(table: str) -> Table:
    """A shipped table, a dictionary a row; none if there is none yet."""
    return shipped.read(RESULTS / f"atari57_{table}.csv")


def standardised(first: Sequence[float], second: Sequence[float]) -> float:
    """Difference of two means over their pooled deviation, between -10 and 10; 0 where both are alike.

    Args:
      first, second: mean, standard deviation and number of episodes.
    """
    (mean, deviation, count), (other, others, number) = first, second
    pooled = math.sqrt(((count - 1) * deviation**2 + (number - 1) * others**2) / max(count + number - 2, 1))
    difference = mean - other
    return float(np.clip(difference / max(pooled, 1e-9), -10.0, 10.0))


def differences(rows: Table, ours: str, theirs: str) -> dict[str, float]:
    """The standardised difference of late training returns in each game that both variants have run in.

    Of several seeds of a game it is the mean. A run whose last fifth saw no episode end has no such return.
    """
    cells = {
        (row["game"], row["variant"], row["seed"]): [
            float(row[of]) for of in ("late", "late_sd", "late_episodes")
        ]
        for row in rows
        if float(row["late_episodes"])
    }
    found: dict[str, list[float]] = {}
    for (game, variant, seed), numbers in cells.items():
        if variant == ours and (game, theirs, seed) in cells:
            found.setdefault(game, []).append(standardised(numbers, cells[game, theirs, seed]))
    return {game: float(np.mean(of_seeds)) for game, of_seeds in found.items()}


def sign_flips(values: np.ndarray, level: float = 0.95) -> tuple[float, float, float, float]:
    """Mean over games, the ends of its interval and the two-sided p of the sign-flip permutation test.

    The interval holds every mean that the test does not reject at 1 - level. No draws: the distribution of the sum over
    all flips, of values rounded to a `LATTICE`th of the sum of their sizes.

    Args:
      values: float64 [G], one a game, symmetric about their mean if there is no other effect.
    """

    def p(mean: float) -> float:
        shifted = values - mean
        steps = np.rint(shifted / max(np.abs(shifted).sum(), 1e-300) * LATTICE).astype(int)
        size = 4 * LATTICE  # sums lie within LATTICE and some roundings
        angles = 2 * np.pi / size * np.arange(size // 2 + 1)
        of_sums = np.fft.irfft(np.prod(np.cos(np.outer(np.abs(steps), angles)), axis=0), size)
        beyond = abs(steps.sum())
        return float(of_sums[beyond : size - beyond + 1].sum()) if beyond else 1.0

    centre, reach = float(values.mean()), float(np.abs(values - values.mean()).max()) + 1e-12
    ends = []
    for side in (-1.0, 1.0):
        inside, outside = centre, centre + 2 * side * reach
        for _ in range(16):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if p(middle) > 1 - level else (inside, middle)
        ends.append(inside)
    return centre, ends[0], ends[1], p(0.0)


def above(values: np.ndarray) -> tuple[float, int, float, float]:
    """In how many games the difference is above 0, ties half; of how many; and the share's exact 95% interval."""
    count, number = float((values > 0).sum() + 0.5 * (values == 0).sum()), len(values)
    low = stats.beta.ppf(0.025, count, number - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, number - count) if count < number else 1.0
    return count, number, float(low), float(high)


CONTRASTS = (
    ("return", "none", "ten heads, scaled minus unscaled"),
    ("one_head_return", "one_head_none", "one head, scaled minus unscaled"),
    ("return", "one_head_return", "scaled, ten heads minus one"),
    ("none", "one_head_none", "unscaled, ten heads minus one"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--collect", nargs="+", type=Path, default=[], metavar="ROOT", help="runs' rows into docs/"
    )
    parser.add_argument(
        "--mark", type=Path, metavar="ROOT", help="let a sweep there leave out what the table has"
    )
    options = parser.parse_args()
    for root in options.collect:
        write_rows(root)
        if not any(root.glob("*/atari57_runs.csv")):
            parser.error(f"no run below {root} has rows: give the --root_dir of a sweep of the 57 games")
    if options.collect:
        collect(options.collect)
    if options.mark:
        mark(options.mark)
    print(f"{len(read('runs'))} runs are in {RESULTS / 'atari57_runs.csv'}; make paper says of what")


if __name__ == "__main__":
    main()
