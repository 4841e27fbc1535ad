"""What the programs of docs/examples come to, with scaling and without, rewards times 1 and 1000: its README's table.

    make rivals-venv
    .venv/bin/python -m benchmarks.examples          # an hour or two of one core; it goes on
    .venv/bin/python -m benchmarks.examples --table  # writes the table

Rules, written before the first run that counts: every example with its own steps, --scaling=off and units, seeds 0 to
2. Score: the mean of the returns that it prints in the last fifth of its steps, each of the last 20 episodes, or of ten
in evaluation (sb3_ppo.py). SAC's examples have a study of their own, benchmarks/sac_scales.py. Shown are the mean of
three seeds, the lowest and the highest. One row a run in docs/results/examples.csv; runs that are there are skipped.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import time

import numpy as np

from benchmarks.performance import ROOT, put_between
from benchmarks.rows import Row, add, missing, read

TABLE, PAGE = ROOT / "docs/results/examples.csv", ROOT / "docs/examples/README.md"
BEGIN, END = "<!-- table: written by benchmarks/examples.py -->", "<!-- end of table -->"
# Example -> the environment that it needs, and what it plays.
EXAMPLES = {
    "keras_dqn": (".venv", "CartPole, at most 500"),
    "tf_agents_dqn": (".venv", "CartPole, at most 500"),
    "tf_agents_r2d2": (".venv", "its corridor, at most 108"),
    "torch_ppo": (".venv-rivals", "CartPole, at most 500"),
    "sb3_ppo": (".venv-rivals", "CartPole, at most 500"),
    "jax_ppo": (".venv-rivals", "CartPole, at most 500"),
}
SCALINGS, TIMES, SEEDS = ("off", "units"), ("1", "1000"), ("0", "1", "2")
PRINTED = (
    r"^step ([\d,]+)  return of the last \d+ episodes (\S+)$|^Eval num_timesteps=(\d+), episode_reward=(\S+) "
)


def score_printed(printed: str) -> float:
    """Mean of the returns printed in the last fifth of the steps."""
    found = [
        (steps or also, value or other) for steps, value, also, other in re.findall(PRINTED, printed, re.M)
    ]
    returns = [(int(steps.replace(",", "")), float(value)) for steps, value in found]
    return float(np.mean([value for steps, value in returns if steps > 0.8 * returns[-1][0]]))


def make() -> None:
    """Makes the runs that the table lacks."""
    order = itertools.product(EXAMPLES, SEEDS, SCALINGS, TIMES)
    runs = (
        {"example": name, "scaling": scaling, "times": times, "seed": seed}
        for name, seed, scaling, times in order
    )
    for run in missing(TABLE, runs):
        name, scaling, times, seed = run.values()
        started = time.perf_counter()
        options = [f"--scaling={scaling}", f"--reward-scale={times}", f"--seed={seed}"]
        score = score_printed(run_example(EXAMPLES[name][0], name, options))
        seconds = time.perf_counter() - started
        add(TABLE, run | {"score": f"{score:.1f}", "seconds": f"{seconds:.0f}"})


def run_example(environment: str, name: str, options: list[str]) -> str:
    """Runs an example as a program, with the Python of an environment of this clone; returns what it prints."""
    command = [ROOT / environment / "bin/python", ROOT / f"docs/examples/{name}.py", *options]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


def table(rows: list[Row]) -> str:
    """The table, of the examples all of whose runs are there."""
    columns = list(itertools.product(TIMES, SCALINGS))
    titles = [f"rewards times {times}, {scaling}" for times, scaling in columns]
    lines = [f"| {' | '.join(['example', 'plays', *titles, 'minutes'])} |", "|---" * (len(titles) + 3) + "|"]
    for name, (_, plays) in EXAMPLES.items():
        own = [row for row in rows if row["example"] == name]
        if len(own) != len(columns) * len(SEEDS):
            continue
        cells = []
        for times, scaling in columns:
            scores = [
                float(row["score"]) for row in own if (row["times"], row["scaling"]) == (times, scaling)
            ]
            cells.append(f"{np.mean(scores):.0f} ({min(scores):.0f} to {max(scores):.0f})")
        minutes = np.mean([float(row["seconds"]) for row in own]) / 60
        lines.append(f"| `{name}.py` | {plays} | {' | '.join(cells)} | {minutes:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="write the table to docs/examples/README.md")
    if parser.parse_args().table:
        put_between(PAGE, BEGIN, END, table(read(TABLE)))
    else:
        make()


if __name__ == "__main__":
    main()
