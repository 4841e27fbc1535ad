"""The work's cost as it grows: the learner's step, the collector's rate, the replay's memory and time to draw.

    .venv/bin/python -m benchmarks.growth

Draws docs/performance_growth.png: in each panel the cost at some sizes, median and extremes of three rounds by turns,
and the exponent of a power law fitted to the larger half of the sizes: 1 is proportional, 0 free of charge. On one
core, but for the last panel: whole runs on two, which need an idle machine.
"""

from __future__ import annotations

import os

from benchmarks.side_by_side import one_core, times

CORES, ENVIRONMENT = os.sched_getaffinity(0), dict(os.environ)  # of whole runs

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import argparse  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

import matplotlib  # noqa: E402

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from agents.heads import Heads  # noqa: E402
from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.replay.windows import Block  # noqa: E402
from agents.targets import SequenceShape, Steps  # noqa: E402
from agents.workers.collector import Collector  # noqa: E402
from benchmarks import two_cores, workloads  # noqa: E402
from benchmarks.memory import resident  # noqa: E402
from benchmarks.workloads import SMALL, Work  # noqa: E402
from rbs_tf import environments  # noqa: E402
from rbs_tf.environments.batched import GymnasiumVectorEnvironment  # noqa: E402

PICTURE = Path(__file__).parents[1] / "docs/performance_growth.png"
ROUNDS = 3
HEADS, BATCHES, LENGTHS = (1, 2, 5, 10, 20, 50), (4, 16, 64), (10, 40, 80)
ENVIRONMENTS, SEQUENCES = (1, 16, 64, 256), (100, 300, 1000, 3000, 10000)
# Numbers in a frame -> its shape.
FRAMES = {int(np.prod(shape)): shape for shape in ((84, 84, 1), (84, 84, 3), (210, 160, 1), (210, 160, 3))}
COLLECTORS = (1, 2, 3, 4)


class Curve(NamedTuple):
    """One panel."""

    title: str
    along: str
    sizes: Sequence[int]
    unit: str
    costs: np.ndarray  # [sizes, rounds]

    @property
    def exponent(self) -> float:
        """Slope of log cost over log size, in the larger half of the sizes."""
        start = len(self.sizes) // 2
        return float(np.polyfit(np.log(self.sizes[start:]), np.log(self._medians()[start:]), 1)[0])

    def draw(self, axes: plt.Axes) -> None:
        middle = self._medians()
        below, above = middle - self.costs.min(axis=1), self.costs.max(axis=1) - middle
        axes.errorbar(self.sizes, middle, yerr=(below, above), fmt="o-", ms=4, lw=1.2, capsize=2)
        axes.set(xscale="log", yscale="log", xlabel=self.along, ylabel=self.unit)
        labels = [f"{size:,}" if size <= 10_000 else f"{size / 1000:.0f}k" for size in self.sizes]
        axes.set_xticks(self.sizes, labels, minor=False)
        axes.set_xticks([], minor=True)
        axes.set_title(f"{self.title}\nexponent {self.exponent:.2f}", fontsize=9)
        axes.grid(True, which="major", lw=0.3)

    def _medians(self) -> np.ndarray:
        return np.median(self.costs, axis=1)


def step_curve(
    title: str, along: str, sizes: Sequence[int], work_of: Callable[[int], tuple[Work, int]]
) -> Curve:
    """Cost of an update over sizes; `work_of` gives the work and its number of heads."""

    def way(size: int) -> Callable[[], object]:
        work, num_heads = work_of(size)
        step, sequence = tf.function(workloads.agent(work, num_heads).train), workloads.windows(work)
        return lambda: step(sequence).loss.numpy()

    measured = times(*map(way, sizes), rounds=ROUNDS, calls=2)
    costs = 1e3 * np.array([[cpu for cpu, _ in rounds] for rounds in measured])
    return Curve(title, along, sizes, "cpu-ms per update", costs)


def with_length(length: int) -> Work:
    return dataclasses.replace(SMALL, shape=SequenceShape(length // 4, length, max(length // 2, 1), 5))


def step_curves() -> list[Curve]:
    return [
        step_curve(
            "update, small network",
            "windows in a batch",
            BATCHES,
            lambda n: (dataclasses.replace(SMALL, batch=n), 10),
        ),
        step_curve(
            "update, small network", "training rows of a window", LENGTHS, lambda n: (with_length(n), 10)
        ),
        step_curve("update, small network", "heads", HEADS, lambda n: (SMALL, n)),
        step_curve(
            "update, paper's network,\n2 windows of 2 + 8 + 5 rows",
            "heads",
            (1, 10, 50),
            lambda n: (with_frames(max(FRAMES)), n),
        ),
        step_curve(
            "update, paper's network,\n2 windows of 2 + 8 + 5 rows",
            "numbers in a frame",
            tuple(FRAMES),
            lambda n: (with_frames(n), 10),
        ),
    ]


def collector_curve(
    title: str,
    along: str,
    sizes: Sequence[int],
    made: Callable[[int], tuple[Work, GymnasiumVectorEnvironment]],
) -> Curve:
    """Cost of an environment step over sizes; `made` gives the work and its environments."""
    steps, nums = 20, []

    def way(size: int) -> Callable[[], object]:
        work, environment = made(size)
        nums.append(environment.batch_size)
        agent = workloads.agent(work)
        state, settings = agent.network.state_spec, {"capacity": 20_000, "error_buffer": 1e9}
        replay = ReverbReplay(work.shape, work.observation_spec, state, 10, **settings)
        collector = Collector(
            environment, agent.collect_policy, Heads(), replay, work.shape, agent.initial_priorities
        )

        def collect() -> None:
            collector.run(steps)
            for _ in replay.statistics():
                pass

        return collect

    measured = times(*map(way, sizes), rounds=ROUNDS, calls=2, warm_up=2)
    costs = 1e6 * np.array([[cpu for cpu, _ in rounds] for rounds in measured])
    return Curve(
        title, along, sizes, "cpu-µs per environment step", costs / (steps * np.array(nums)[:, None])
    )


def collector_curves() -> list[Curve]:
    def frames(size: int) -> tuple[Work, GymnasiumVectorEnvironment]:
        height, width, channels = FRAMES[size]
        grey = {"img_height": height, "img_width": width, "grayscale": channels == 1}
        return with_frames(size), environments.make("pong", num_envs=16, seed=0, **grey)

    return [
        collector_curve(
            "collecting, small network",
            "environments of a collector",
            ENVIRONMENTS,
            lambda n: (SMALL, environments.make("minatar/space_invaders", num_envs=n, seed=0)),
        ),
        collector_curve("collecting, Pong, paper's network", "numbers in a frame", tuple(FRAMES), frames),
    ]


def with_frames(size: int) -> Work:
    return dataclasses.replace(
        workloads.PAPER, batch=2, shape=SequenceShape(2, 8, 4, 5), observation=FRAMES[size]
    )


def run_curve() -> Curve:
    """Wall time of an update over the number of collectors whose environments cost nothing, each sequence used once."""
    costs = []
    for number in COLLECTORS:
        free = "--env=benchmarks.free_environment:Free-v0", "--gin_bindings=Replay.replay_ratio = 1.0"
        with two_cores.running(f"--collectors={number}", *free, cores=CORES, environment=ENVIRONMENT) as run:
            costs.append([1e3 / two_cores.rate(*run, CORES)[0] for _ in range(ROUNDS)])
    what = "quickstart on two cores,\nfree environments"
    return Curve(what, "collectors", COLLECTORS, "wall-ms per update", np.array(costs))


def replay_curves() -> list[Curve]:
    """Memory, and the time to draw a batch of 32, over the number of sequences in the table; observations are noise."""
    random, shape = np.random.default_rng(0), SMALL.shape
    spec = tf.TensorSpec((20, 20, 3), tf.uint8)
    state = (tf.TensorSpec((SMALL.lstm_units,), tf.float32),) * 2
    capacity = shape.period * SEQUENCES[-1]
    replay = ReverbReplay(shape, spec, state, 10, capacity=capacity, min_sequences=32, error_buffer=1e9)
    writer, inserted, memory, draws = replay.writer(), 0, [], []
    batches, blocks, before = None, 0, resident(os.getpid())
    for size in SEQUENCES:
        while inserted < size:
            rows = np.ones((4, shape.block), np.float32)
            pixels = random.integers(0, 256, (shape.block, *spec.shape), np.uint8)
            core = tuple(random.normal(size=(2, SMALL.lstm_units)).astype(np.float32))
            starts = blocks % (shape.period // shape.block) == 0
            writer.append(Block(Steps(rows[0], pixels, *rows[1:]), core if starts else None))
            blocks += 1
            if blocks >= shape.blocks and (blocks - shape.blocks) % (shape.period // shape.block) == 0:
                writer.insert(random.random())
                inserted += 1
        writer.flush()
        memory.append([resident(os.getpid()) - before] * ROUNDS)
        batches = batches or iter(replay.dataset(32))
        drawn = times(functools.partial(next, batches), rounds=ROUNDS, calls=10)
        draws.append([1e3 * cpu for cpu, _ in drawn[0]])
    replay.stop()
    return [
        Curve("replay, 20 x 20 x 3 noise", "sequences", SEQUENCES, "MB", np.array(memory)),
        Curve("replay", "sequences", SEQUENCES, "cpu-ms to draw a batch of 32", np.array(draws)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=PICTURE)
    picture = parser.parse_args().picture
    curves = [*step_curves(), *collector_curves(), *replay_curves(), run_curve()]
    figure, panels = plt.subplots(2, 5, figsize=(17, 6.2), layout="constrained")
    for curve, axes in zip(curves, panels.flat, strict=False):
        print(
            f"{curve.title} over {curve.along}: exponent {curve.exponent:.2f}".replace("\n", " "), flush=True
        )
        curve.draw(axes)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main()
