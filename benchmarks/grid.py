"""Works through a grid of training runs, some at a time, each a process of one thread that ends with lines for tables.

Every finished run has a line in its table; runs that have theirs are not repeated, so the same command goes on where it
stopped, on any machine. Run folders are deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from agents.commands.flags import count
from agents.running import processes
from agents.running.embedded import EmbeddedRun
from agents.tags import LOSS, PROBABILITY, SCALED, UNSCALED
from agents.workers.parts import Result
from benchmarks.quickstart_curves import scalars

ROOT = Path(__file__).parents[1]
DIAGNOSED_BATCHES = 20  # of sequences, for the torso's gradients

Run = Any  # a NamedTuple of strings and integers: the key of its lines
Lines = dict[str, list[dict[str, str]]]  # by table, keys left out
Tables = Mapping[str, Path]  # "runs", of a line each, and others


def digest(run: Run) -> int:
    """A number below 2^31 from a run's key, the same everywhere: its seed, or its place in a random order."""
    return int.from_bytes(hashlib.sha256(json.dumps(run).encode()).digest()[:4], "big") >> 1


@contextlib.contextmanager
def trained(config: str, bindings: Sequence[str], folder: Path) -> Iterator[tuple[EmbeddedRun, Result]]:
    """A run that has been made in this process, without evaluations; its draws from the replay are seeded.

    Args:
      config: files of gin, separated by commas.
      bindings: of gin.
      folder: of the run, not there yet.
    """
    quiet = (
        "train.updates = 10_000_000",
        "train.eval_interval = 0",
        "train.checkpoint_interval = 10_000_000",
    )
    gin.parse_config_files_and_bindings(
        config.split(","), [*quiet, "train.final_eval_rounds = 0", "Replay.backend = 'local'", *bindings]
    )
    with EmbeddedRun(folder) as embedded:
        result = embedded.run()
        if result.stopped_by is not None:
            raise SystemExit(128 + result.stopped_by)
        yield embedded, result


def head_lines(embedded: EmbeddedRun, folder: Path, value_errors: np.ndarray) -> list[dict[str, str]]:
    """A line for each head of a trained agent.

    Means over the run: RMS TD error before and after scaling, share of the loss, probability to act. At the end: share
    of the torso's gradient, and the relative error of values that the greedy episodes have had (`Evaluator`).
    """
    training, heads = scalars(folder / "train"), embedded.agent.heads.names
    gradients = torso_gradients(embedded)

    def over_time(tag: str) -> np.ndarray:
        return np.array([training[f"{tag}/{head}"][:, 1].mean() for head in heads])

    losses = over_time(LOSS)
    per_head = {
        "error": over_time(UNSCALED),
        "scaled_error": over_time(SCALED),
        "loss_share": losses / losses.sum(),
        "probability": over_time(PROBABILITY),
        "gradient_share": gradients / gradients.sum(),
        "relative_value_error": value_errors,
    }
    return [
        {"head": head} | {name: f"{values[index]:.4g}" for name, values in per_head.items()}
        for index, head in enumerate(heads)
    ]


def binned(places: np.ndarray, values: np.ndarray, end: float, bins: int) -> np.ndarray:
    """Mean values [bins] between 0 and `end`; NaN where there is none."""
    index = np.minimum(places * bins / end, bins - 1).astype(int)
    sums, counts = (np.bincount(index, weights, bins) for weights in (values, np.ones_like(values)))
    return np.divide(sums, counts, out=np.full(bins, np.nan), where=counts > 0)


def torso_gradients(embedded: EmbeddedRun) -> np.ndarray:
    """Root mean square over batches of each head's gradient norm in the shared weights, at the end: float64 [H]."""
    norms = tf.function(embedded.agent.shared_gradient_norms, autograph=False)
    batches = embedded.replay.dataset(8).take(DIAGNOSED_BATCHES)
    return np.sqrt(np.mean([np.square(norms(sequence).numpy()) for sequence, _ in batches], axis=0))


def begin(module: str, run: Run, folder: Path) -> subprocess.Popen:
    """Starts a run in a process of one thread; what it prints is thrown away."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", *module.split(), "--measure", json.dumps(run), str(folder)]
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return processes.start(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | threads)


def read(path: Path) -> list[dict[str, str]]:
    """A table's lines; none where it is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def processors(rows: Sequence[Mapping[str, str]]) -> str:
    """How many of these lines were made on which processor, the most frequent first."""
    return ", ".join(
        f"{name}: {count}" for name, count in Counter(row["processor"] for row in rows).most_common()
    )


def append(path: Path, run: Run, lines: Sequence[dict[str, str]]) -> None:
    """Adds a run's lines to a table."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*run._fields, *lines[0]], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(run._asdict() | line for line in lines)


def main(
    module: str,
    description: str | None,
    runs: Sequence[Run],
    measure: Callable[[Run, Path], Lines],
    tables: Tables,
    command_line: Sequence[str] | None = None,
) -> None:
    """The command line of a benchmark that is a grid.

    Args:
      module: its name, and what comes before options on its command line; its `--measure` makes one run.
      description: for `--help`.
      runs: the grid, in the order in which it is worked through.
      measure: makes a run in a folder; its lines by table.
      tables: where they go; the last is "runs", and a run that has its line there is finished.
      command_line: by default that of the process.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after so long")
    parser.add_argument("--processes", type=count(1), default=2)
    parser.add_argument(
        "--measure", nargs=2, metavar=("RUN", "FOLDER"), help="one run alone, in this process"
    )
    options = parser.parse_args(command_line)
    if options.measure:
        key, place = options.measure
        by_key = {json.dumps(run): run for run in runs}
        if key not in by_key:
            parser.error(f"--measure: {key} is no run of the grid, such as '{next(iter(by_key))}'")
        if Path(place, "run").exists():  # it would go on
            parser.error(f"--measure: there is a run in {place} already. Name another folder")
        lines = measure(by_key[key], Path(place) / "run")
        (Path(place) / "lines.json").write_text(json.dumps(lines))
        print(*(f"{name}: {value}" for name, value in lines["runs"][0].items()), sep="\n")
        return
    end = time.monotonic() + 60 * options.minutes
    done = {tuple(row[field] for field in runs[0]._fields) for row in read(tables["runs"])}
    waiting = [run for run in runs if tuple(map(str, run)) not in done]
    print(f"{len(runs) - len(waiting)} runs are done, {len(waiting)} to go.", flush=True)

    in_time = itertools.takewhile(lambda _: time.monotonic() < end, waiting)
    with tempfile.TemporaryDirectory(prefix=f"{module}_") as scratch:
        folders = {run: Path(scratch, *map(str, run)) for run in waiting}
        ended = processes.work_through(
            in_time, lambda run: begin(module, run, folders[run]), options.processes
        )
        with contextlib.closing(ended):
            for run, code in ended:
                if code:
                    raise SystemExit(f"{json.dumps(run)} failed with exit code {code}")
                lines = json.loads((folders[run] / "lines.json").read_text())
                shutil.rmtree(folders[run])
                for name, table in tables.items():
                    append(table, run, lines[name])
                line = lines["runs"][0]
                print(*run, line["mean_return"], f"({line['minutes']} minutes)", flush=True)
