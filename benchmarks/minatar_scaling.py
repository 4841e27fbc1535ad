"""Scalings compared: MinAtar with rewards times 1 to 1000, the real recurrent agent, 50,000 environment steps.

    .venv/bin/python -m benchmarks.minatar_scaling --minutes=60

Works through a grid of games, reward multipliers, heads, scalings, learning rates and seeds, most telling part first,
in two processes of one thread each. Every finished run is one line of docs/results/minatar_scaling.csv and one per head
of docs/results/minatar_scaling_heads.csv; runs that have theirs are not repeated, so the same command goes on where it
stopped, on any machine. Run folders are deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import gin  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import rbs_tf.scalings  # noqa: E402, F401  gin names
from agents.running import processes  # noqa: E402
from agents.running.embedded import EmbeddedRun  # noqa: E402
from benchmarks.quickstart_curves import scalars  # noqa: E402
from rbs_tf import discounted_returns  # noqa: E402

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/minatar_scaling.csv"
HEAD_RESULTS = RESULTS.with_name("minatar_scaling_heads.csv")
STEPS = 50_000
ONE_PAIR = "Heads.pairs = ((0.997, False),)"
RATES = ("2e-4", "6e-4")
TEN_HEADS = [(10, name) for name in ("none", "return", "pop_art", "return_out")]
ONE_HEAD = [(1, name) for name in ("none", "return", "clip", "signed_hyperbolic", "pop_art", "return_out")]
# Where values outgrow Pop-Art's largest scale of 1e3, its clamp makes a smaller learning rate of it.
FREE_POP_ART = (10, "pop_art_free")
DIAGNOSED_BATCHES = 20  # of sequences, for the torso's gradients
MEASURED_EPISODES = 4  # in each of the evaluator's environments, for value accuracies
MEASURED_STEPS = 2_000  # at most, of each environment


class Run(NamedTuple):
    """One cell of the grid, and the key of its lines in the results."""

    game: str
    multiplier: int
    heads: int
    scaling: str
    learning_rate: str
    seed: int


def every_part(seeds: range) -> tuple[tuple, ...]:
    """Games, multipliers, variants and seeds of the whole comparison, with these seeds."""
    return (
        ("space_invaders", (1, 1000), TEN_HEADS, seeds),
        ("space_invaders", (100,), ONE_HEAD, seeds),
        ("breakout", (100,), TEN_HEADS, seeds),
        ("space_invaders", (10,), TEN_HEADS, seeds),
        ("space_invaders", (1000,), [FREE_POP_ART], seeds),
        ("breakout", (100,), ONE_HEAD, seeds),
        ("breakout", (1, 1000, 10), TEN_HEADS, seeds),
        ("breakout", (1000,), [FREE_POP_ART], seeds),
    )


def grid() -> list[Run]:
    """All runs, most telling first; then one seed of everything before the next seed."""
    parts = (
        ("space_invaders", (100,), TEN_HEADS, range(3)),
        *(part for seeds in (range(1), range(1, 3)) for part in every_part(seeds)),
        ("space_invaders", (100,), TEN_HEADS + ONE_HEAD, range(3, 5)),
    )
    runs = [
        Run(game, multiplier, heads, name, rate, seed)
        for game, multipliers, variants, seeds in parts
        for seed in seeds
        for rate in RATES
        for multiplier in multipliers
        for heads, name in variants
    ]
    return list(dict.fromkeys(runs))


def measure(run: Run, folder: Path) -> dict[str, list[dict[str, str]]]:
    """Trains once in this process; returns the lines for both tables, the keys left out."""
    scaling = run.scaling.removesuffix("_free")
    bindings = [
        f'train.env = "minatar/{run.game}"',
        f"train.seed = {run.seed}",
        f"Heads.reward_multiplier = {run.multiplier}.0",
        f"RecurrentMultiHeadAgent.learning_rate = {run.learning_rate}",
        f"train.environment_steps = {STEPS}",
        "train.updates = 1000000",
        "train.eval_interval = 0",
        "train.checkpoint_interval = 1000000",
        "RecurrentMultiHeadAgent.jit_compile = True",  # a network this small is all overhead: 15 ms in place of 26
        *([ONE_PAIR] if run.heads == 1 else []),
        *(["scalings.pop_art.max_scale = 1e12"] if run.scaling == "pop_art_free" else []),
    ]
    start = time.monotonic()
    gin.parse_config_files_and_bindings(["configs/minatar.gin", f"configs/scaling/{scaling}.gin"], bindings)
    with EmbeddedRun(folder) as embedded:
        result = embedded.run()
        if result.stopped_by is not None:
            raise SystemExit(128 + result.stopped_by)
        heads = embedded.agent.heads.names
        gradients = torso_gradients(embedded)
        accuracies = relative_value_errors(embedded)
    training = scalars(folder / "train")
    returns = training["episode/return"][:, 1]

    def over_time(tag: str) -> np.ndarray:
        """A tag's mean over the run for every head."""
        return np.array([training[f"{tag}/{head}"][:, 1].mean() for head in heads])

    scaled, losses = over_time("td_error/scaled"), over_time("loss")
    per_head = {
        "error": over_time("td_error/unscaled"),
        "scaled_error": scaled,
        "loss_share": losses / losses.sum(),
        "gradient_share": gradients / gradients.sum(),
        "relative_value_error": accuracies,
    }
    line = {
        "mean_return": f"{returns.mean():.4g}",
        "last_fifth": f"{returns[-len(returns) // 5 :].mean():.4g}",
        "greedy": f"{result.final_return:.4g}",
        "updates": str(result.updates),
        "span": f"{scaled.max() / scaled.min():.3g}",
        "minutes": f"{(time.monotonic() - start) / 60:.1f}",
    }
    head_lines = [
        {"head": head} | {name: f"{values[index]:.4g}" for name, values in per_head.items()}
        for index, head in enumerate(heads)
    ]
    return {"run": [line], "heads": head_lines}


def torso_gradients(embedded: EmbeddedRun) -> np.ndarray:
    """Root mean square over batches of each head's gradient norm in the shared weights, at the end: float64 [H]."""
    agent = embedded.agent
    norms = tf.function(agent.shared_gradient_norms, autograph=False)
    batches = embedded.replay.dataset(8).take(DIAGNOSED_BATCHES)
    return np.sqrt(np.mean([np.square(norms(sequence).numpy()) for sequence, _ in batches], axis=0))


def relative_value_errors(embedded: EmbeddedRun) -> np.ndarray:
    """RMSE of each head's values against the returns that followed, over the standard deviation of these: [H].

    Greedy episodes of the best-rated head at the end; Q(s, a) of the actions that were taken. A head's values are those
    of its own greedy policy, so another policy's returns are off for all but the acting head, as in the paper.
    """
    agent, environment = embedded.agent, embedded.eval_environment
    act = tf.function(agent.policy.action, autograph=False)
    time_step, state = environment.reset(), agent.policy.get_initial_state(environment.batch_size)
    rows, ends = [], np.zeros(environment.batch_size, int)
    for _ in range(MEASURED_STEPS):
        result = act(tf.nest.map_structure(tf.convert_to_tensor, time_step), state)
        values = agent.scaling.values(result.info.taken_values).numpy()
        rows.append((time_step.step_type, time_step.reward, time_step.discount, values))
        ends += time_step.step_type == 2
        if ends.min() >= MEASURED_EPISODES:
            break
        state, time_step = result.state, environment.step(result.action.numpy())
    step_type, reward, discount, values = (np.stack(column) for column in zip(*rows, strict=True))
    pairs = []
    for index in range(environment.batch_size):
        ends = np.flatnonzero(step_type[:, index] == 2)[:MEASURED_EPISODES]
        for first, last in zip([0, *ends[:-1] + 1], ends, strict=True):
            arrived = slice(first + 1, last + 1)
            returns = discounted_returns(
                agent.heads.rewards(reward[arrived, index]), agent.heads.discounts(discount[arrived, index])
            )
            pairs.append((values[first:last, index], returns))
    values, returns = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return np.sqrt(np.mean(np.square(values - returns), axis=0)) / np.std(returns, axis=0)


def begin(run: Run, folder: Path) -> subprocess.Popen:
    """Starts `measure` in a process of one thread; what it prints is thrown away."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.minatar_scaling", "--measure", json.dumps(run), str(folder)]
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return processes.start(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | threads)


def finished() -> set[tuple[str, ...]]:
    """Keys of the runs that have their line."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {tuple(row[field] for field in Run._fields) for row in csv.DictReader(file)}


def append(path: Path, run: Run, lines: list[dict[str, str]]) -> None:
    """Adds a run's lines to a table."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*Run._fields, *lines[0]], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(run._asdict() | line for line in lines)


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--measure", nargs=2, metavar=("RUN", "FOLDER"), help="one run alone, in this process"
    )
    options = parser.parse_args(command_line)
    if options.measure:
        key, folder = options.measure
        runs = {json.dumps(run): run for run in grid()}
        if key not in runs:
            parser.error(f"--measure: {key} is no run of the grid, such as '{next(iter(runs))}'")
        lines = measure(runs[key], Path(folder) / "run")
        (Path(folder) / "lines.json").write_text(json.dumps(lines))
        return
    end = time.monotonic() + 60 * options.minutes
    done = finished()
    waiting = [run for run in grid() if tuple(map(str, run)) not in done]
    print(f"{len(done)} runs are done, {len(waiting)} to go.", flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)

    in_time = itertools.takewhile(lambda _: time.monotonic() < end, waiting)
    with tempfile.TemporaryDirectory(prefix="minatar_scaling_") as scratch:
        folders = {run: Path(scratch, *map(str, run)) for run in waiting}
        ended = processes.work_through(in_time, lambda run: begin(run, folders[run]), options.processes)
        with contextlib.closing(ended):
            for run, code in ended:
                if code:
                    raise SystemExit(f"{json.dumps(run)} failed with exit code {code}")
                lines = json.loads((folders[run] / "lines.json").read_text())
                shutil.rmtree(folders[run])
                # The heads first: the run counts as finished once it has its own line.
                append(HEAD_RESULTS, run, lines["heads"])
                append(RESULTS, run, lines["run"])
                line = lines["run"][0]
                print(*run, line["mean_return"], f"({line['minutes']} minutes)", flush=True)


if __name__ == "__main__":
    main()
