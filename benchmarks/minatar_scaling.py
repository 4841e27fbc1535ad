"""What the scalings are for: MinAtar with rewards times 1 to 1000, the real recurrent agent, 50,000 environment steps.

    .venv/bin/python -m benchmarks.minatar_scaling --minutes=60

Works through a grid of games, reward multipliers, heads, scalings, learning rates and seeds, most telling part first,
two processes of one thread each. Every finished run is one line of docs/results/minatar_scaling.csv; runs that have
theirs are not repeated, so the same command goes on where it stopped, on any machine. Run folders are deleted.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.quickstart_curves import scalars

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/minatar_scaling.csv"
STEPS = 50_000
ONE_HEAD = "Heads.pairs = ((0.997, False),)"


class Run(NamedTuple):
    """One cell of the grid, and the key of its line in the results."""

    game: str
    multiplier: int
    heads: int
    scaling: str
    learning_rate: str
    seed: int


def grid() -> list[Run]:
    """All runs, most telling first: Space Invaders times 100, one seed of everything before the next seed."""
    at_100 = [(10, name) for name in ("none", "return", "pop_art", "return_out")]
    at_100 += [(1, name) for name in ("none", "return", "clip", "signed_hyperbolic", "pop_art", "return_out")]
    elsewhere = [(10, name) for name in ("none", "return", "pop_art", "return_out")]
    runs = []
    for game, multipliers, variants, seeds in (
        ("space_invaders", (100,), at_100, 5),
        ("space_invaders", (1, 10, 1000), elsewhere, 3),
        ("breakout", (100,), at_100, 3),
        ("breakout", (1, 10, 1000), elsewhere, 3),
    ):
        runs += [
            Run(game, multiplier, heads, name, rate, seed)
            for seed in range(seeds)
            for rate in ("2e-4", "6e-4")
            for multiplier in multipliers
            for heads, name in variants
        ]
    return runs


def finished() -> set[tuple[str, ...]]:
    """Keys of the runs that have their line."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {tuple(row[field] for field in Run._fields) for row in csv.DictReader(file)}


def measure(run: Run) -> dict[str, str]:
    """Trains once; returns the line."""
    folder = Path(tempfile.mkdtemp(prefix="minatar_scaling_"))
    bindings = [
        f"environments.make.reward_multiplier = {run.multiplier}.0",
        f"RecurrentMultiHeadAgent.learning_rate = {run.learning_rate}",
        f"train.environment_steps = {STEPS}",
        "train.updates = 1000000",
        "train.eval_interval = 0",
        "train.checkpoint_interval = 1000000",
        *([ONE_HEAD] if run.heads == 1 else []),
    ]
    flags = [f"--env=minatar/{run.game}", f"--scaling={run.scaling}", f"--seed={run.seed}"]
    command = [sys.executable, "train.py", *flags, f"--root_dir={folder / 'run'}"]
    command += [f"--gin_bindings={binding}" for binding in bindings]
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    try:
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=os.environ | threads)
        training, evaluation = scalars(folder / "run/train"), scalars(folder / "run/eval")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    returns = training["episode/return"][:, 1]
    errors = [values[:, 1].mean() for tag, values in training.items() if tag.startswith("td_error/scaled/")]
    return dict(zip(Run._fields, map(str, run), strict=True)) | {
        "mean_return": f"{returns.mean():.4g}",
        "last_fifth": f"{returns[-len(returns) // 5 :].mean():.4g}",
        "greedy": f"{evaluation['episode/return'][-1, 1]:.4g}",
        "updates": str(int(training["loss"][-1, 0])),
        "span": f"{np.max(errors) / np.min(errors):.3g}",
        "minutes": f"{(time.monotonic() - start) / 60:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after so long")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    done = finished()
    waiting = [run for run in grid() if tuple(map(str, run)) not in done]
    print(f"{len(done)} runs are done, {len(waiting)} to go.", flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)

    def attempt(run: Run) -> dict[str, str] | None:
        return measure(run) if time.monotonic() < end else None

    with ThreadPoolExecutor(options.processes) as pool:
        for run, line in zip(waiting, pool.map(attempt, waiting), strict=True):
            if line is None:
                break
            new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                writer = csv.DictWriter(file, line)
                if new:
                    writer.writeheader()
                writer.writerow(line)
            print(*run, line["mean_return"], f"({line['minutes']} minutes)", flush=True)


if __name__ == "__main__":
    main()
