"""Scaling in somebody else's agent: bsuite's reward-scale experiments with TF-Agents' stock DQN.

    .venv/bin/python -m benchmarks.bsuite_scale --minutes=60
    .venv/bin/python -m benchmarks.bsuite_scale --experiments=cartpole_scale --minutes=60
    .venv/bin/python -m benchmarks.bsuite_scale --minutes=0      # the table alone, from the lines there are

Catch, bandit and cartpole with rewards times 0.001 to 1000, four repeats each (Osband et al. 2020), one update per
step with the hyper-parameters of bsuite's own DQN. Every finished run is one line of docs/results/bsuite_scale.csv;
runs that have theirs are not repeated. The scores are bsuite's: the mean over scales, lowered by half their standard
deviation.
"""

from __future__ import annotations

import argparse
import collections
import csv
import importlib
import itertools
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported
# One thread for each of the processes; the networks are too small for more.
os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np  # noqa: E402

RESULTS = Path(__file__).parents[1] / "docs/results/bsuite_scale.csv"
EXPERIMENTS = ("catch_scale", "bandit_scale", "cartpole_scale")
VARIANTS = {
    "none": "errors as they are",
    "clip": "rewards clipped to [-1, 1]",
    "return": "errors over sigma",
    "return_1e-4": "errors over sigma, sigma_v = 1e-4",
}
SCALES, REPEATS = ("0.001", "0.03", "1.0", "30.0", "1000.0"), 4
GAMMA, BATCH_SIZE, REPLAY, WARM_UP = 0.99, 32, 10_000, 100
RESAMPLES = 500


class Run(NamedTuple):
    """The key of a line in the results."""

    experiment: str
    setting: int  # of bsuite's sweep: four repeats of each scale, smallest scale first
    variant: str


def measure(run: Run, episodes: int | None = None) -> dict[str, str]:
    """Learns one setting; returns the last line of bsuite's own log, with the reward scale.

    Args:
      episodes: to play; None: bsuite's number.
    """
    import bsuite
    import tensorflow as tf
    from bsuite import sweep
    from bsuite.logging import csv_logging

    name = f"{run.experiment}/{run.setting}"
    # bsuite leaves the environment's seed to the operating system.
    settings = dict(sweep.SETTINGS[name]) | {"seed": run.setting}
    tf.keras.utils.set_random_seed(
        run.setting
    )  # Keras draws its initial weights' seeds from Python's generator
    generator = np.random.default_rng(run.setting)
    environment = bsuite.load(run.experiment, settings)
    act, learn = stock_dqn(environment, run.variant)
    limit = 1.0 if run.variant == "clip" else np.inf
    replay = None
    steps = 0
    with tempfile.TemporaryDirectory() as folder:
        logged = csv_logging.wrap_environment(environment, name, folder)
        for _ in range(episodes or environment.bsuite_num_episodes):
            time_step, first = logged.reset(), True
            before = np.ravel(time_step.observation).astype(np.float32)
            action = act(before)
            while not time_step.last():
                time_step = logged.step(int(action))
                reward = np.clip(time_step.reward, -limit, limit)
                after = np.ravel(time_step.observation).astype(np.float32)
                row = np.concatenate([before, after, [action, reward, time_step.discount]]).astype(np.float32)
                if replay is None:
                    replay = np.zeros((REPLAY, len(row)), np.float32)
                replay[steps % REPLAY] = row
                steps += 1
                drawn = generator.integers(min(steps, REPLAY), size=BATCH_SIZE)
                action = learn(replay[drawn], row, np.array([first, time_step.last()]))
                before, first = after, False
        logged.flush()
        with next(Path(folder).glob("*.csv")).open(newline="") as file:
            *_, final = csv.DictReader(file)
    columns = ("episode", "total_return", "total_regret", "raw_return", "best_episode")
    return {"reward_scale": str(settings["reward_scale"])} | {
        column: final.get(column, "") for column in columns
    }


def stock_dqn(environment: Any, variant: str) -> tuple[Callable, Callable]:
    """Makes two functions: act on an observation; observe a step, learn from a batch and act again, in one graph.

    Both take few arrays, flat observations float32 [P] and rows float32 [2P + 3] of observation, next observation,
    action, reward and discount: of small steps, most of the time goes into handing over arguments.
    """
    import tensorflow as tf
    from tf_agents.agents.dqn import dqn_agent
    from tf_agents.networks import sequential
    from tf_agents.specs import tensor_spec
    from tf_agents.trajectories import StepType, Trajectory
    from tf_agents.trajectories import time_step as ts

    from rbs_tf import ScaledLoss

    losses = {
        "return": lambda: ScaledLoss(GAMMA),
        "return_1e-4": lambda: ScaledLoss(GAMMA, sigma_v=1e-4),
    }
    scaled = losses[variant]() if variant in losses else None
    actions, pixels = environment.action_spec().num_values, math.prod(environment.observation_spec().shape)
    time_step_spec = ts.time_step_spec(tf.TensorSpec((pixels,), tf.float32))
    dense = tf.keras.layers.Dense
    agent = dqn_agent.DqnAgent(
        time_step_spec,
        tensor_spec.BoundedTensorSpec((), tf.int32, 0, actions - 1),
        q_network=sequential.Sequential(
            [dense(64, "relu"), dense(64, "relu"), dense(actions)],
            input_spec=time_step_spec.observation,
        ),
        optimizer=tf.keras.optimizers.legacy.Adam(1e-3, epsilon=1e-8),
        epsilon_greedy=0.05,
        target_update_period=4,
        gamma=GAMMA,
        td_errors_loss_fn=scaled
        or (lambda targets, values: 0.5 * tf.math.squared_difference(targets, values)),
    )
    agent.initialize()
    policy = agent.collect_policy
    seen = tf.Variable(0)

    def act(observation):
        return policy.action(ts.restart(observation[None], batch_size=1)).action[0]

    def learn(batch, row, ends):
        def either(at_end, condition):
            return tf.where(condition, tf.constant(at_end, tf.int32), tf.constant(StepType.MID, tf.int32))

        if scaled is not None:
            kinds = {
                "step_type": either(StepType.FIRST, ends[0]),
                "next_step_type": either(StepType.LAST, ends[1]),
            }
            rest = {
                "observation": (),
                "action": (),
                "policy_info": (),
                "reward": row[-2],
                "discount": row[-1],
            }
            scaled.observe(Trajectory(**kinds, **rest))
        seen.assign_add(1)
        if seen >= WARM_UP:
            mid = tf.fill([BATCH_SIZE, 2], tf.constant(StepType.MID, tf.int32))
            observations = tf.reshape(batch[:, : 2 * pixels], [BATCH_SIZE, 2, pixels])
            action, reward, discount = (tf.stack([batch[:, i]] * 2, axis=1) for i in (-3, -2, -1))
            action = tf.cast(action, tf.int32)
            agent.train(Trajectory(mid, observations, action, (), mid, reward, discount))
        return act(row[pixels : 2 * pixels])

    def compiled(function, *shapes):
        graph = tf.function(function).get_concrete_function(
            *(tf.TensorSpec(shape, kind) for shape, kind in shapes)
        )
        return lambda *arrays: graph(*map(tf.constant, arrays)).numpy()

    return (
        compiled(act, ((pixels,), tf.float32)),
        compiled(
            learn,
            ((BATCH_SIZE, 2 * pixels + 3), tf.float32),
            ((2 * pixels + 3,), tf.float32),
            ((2,), tf.bool),
        ),
    )


def score(rows: list[dict[str, str]]) -> float:
    """bsuite's score of one experiment, within [0, 1], from the last lines of its settings' logs."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    numbers = frame.columns.difference(["experiment", "variant"])
    frame[numbers] = frame[numbers].apply(pd.to_numeric)
    (experiment,) = set(frame["experiment"])
    frame["bsuite_id"] = experiment + "/" + frame["setting"].astype(str)
    analysis = importlib.import_module(f"bsuite.experiments.{experiment}.analysis")
    return float(analysis.score(frame))


def table(rows: list[dict[str, str]]) -> str:
    """Scores per experiment and variant in Markdown, with 95% intervals from resampling the repeats of each scale."""
    lines = ["# bsuite's reward scales, TF-Agents' stock DQN", ""]
    lines.append(
        "`.venv/bin/python -m benchmarks.bsuite_scale`: scores [95% bootstrap interval over repeats]."
    )
    lines += ["", "| experiment | learns from | runs | score | at scale " + " | ".join(SCALES) + " |"]
    lines.append("|---" * (4 + len(SCALES)) + "|")
    generator = np.random.default_rng(0)
    for experiment, variant in itertools.product(EXPERIMENTS, VARIANTS):
        own = [row for row in rows if (row["experiment"], row["variant"]) == (experiment, variant)]
        by_scale = [[row for row in own if row["reward_scale"] == scale] for scale in SCALES]
        if not own:
            continue
        total = f"{score(own):.3f}" if all(by_scale) else ""
        if min(map(len, by_scale)) > 1:  # resampling one gives it back
            resampled = []
            for _ in range(RESAMPLES):
                draws = (generator.integers(len(repeats), size=len(repeats)) for repeats in by_scale)
                resampled.append(score([r[i] for r, draw in zip(by_scale, draws, strict=True) for i in draw]))
            low, high = np.quantile(resampled, (0.025, 0.975))
            total += f" [{low:.3f}, {high:.3f}]"
        alone = " | ".join(f"{score(repeats):.2f}" if repeats else "" for repeats in by_scale)
        lines.append(f"| `{experiment}` | {VARIANTS[variant]} | {len(own)} | {total} | {alone} |")
    return "\n".join(lines) + "\n"


def grid(experiments: list[str]) -> list[Run]:
    """All runs: one repeat of everything before the next. The lower floor matters where the usual one binds."""
    runs = itertools.product(range(REPEATS), experiments, range(len(SCALES)), VARIANTS)
    return [
        Run(experiment, REPEATS * scale + repeat, variant)
        for repeat, experiment, scale, variant in runs
        if variant != "return_1e-4" or scale == 0
    ]


def read() -> list[dict[str, str]]:
    """The lines of finished runs."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def append(run: Run, line: dict[str, str]) -> None:
    """Adds the line of a finished run."""
    new = not RESULTS.exists()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*Run._fields, *line], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(run._asdict() | line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", default="bandit_scale,catch_scale", help="separated by commas")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after so long")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    experiments = options.experiments.split(",")
    if not set(experiments) <= set(EXPERIMENTS):
        parser.error(f"--experiments={options.experiments}: choose from {','.join(EXPERIMENTS)}")
    end = time.monotonic() + 60 * options.minutes
    done = {(row["experiment"], int(row["setting"]), row["variant"]) for row in read()}
    waiting = [run for run in grid(experiments) if run not in done]
    print(f"{len(done)} runs are done, {len(waiting)} to go.", flush=True)
    # A process for every run: TensorFlow keeps what it has traced.
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        running = collections.deque()
        for number, run in enumerate(waiting):
            if time.monotonic() > end:
                break
            running.append((run, pool.apply_async(measure, [run])))
            if len(running) == options.processes or number + 1 == len(waiting):
                collect(running)
        while running:
            collect(running)
    RESULTS.with_suffix(".md").write_text(table(read()))
    print(RESULTS.with_suffix(".md").read_text())


def collect(running: collections.deque) -> None:
    """Waits for the run that was started first, and records it."""
    run, result = running.popleft()
    line = result.get()
    append(run, line)
    print(*run, line["total_return"], flush=True)


if __name__ == "__main__":
    main()
