"""What the replay costs those who collect and those who draw: the local one, Ray's, Reverb, and next to nothing.

    .venv/bin/python -m benchmarks.replay

Collectors differ only in their replay: environments, seeds, network, policy, statistics, cutting of sequences and first
priorities are the same, and so must be the counts of steps and windows. Their rival keeps the newest blocks in memory
as they are, with nothing to compress, to send or to wait for. Then batches are drawn from what they have collected, by
priority, and get new priorities. Figures are CPU time of the whole process, the Reverb server's threads included, and
of the one that has Ray's table.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import collections  # noqa: E402
import dataclasses  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import tensorflow as tf  # noqa: E402

from agents.replay.backends import CALLS  # noqa: E402
from agents.replay.blocks import Layout  # noqa: E402
from agents.replay.local_replay import LocalReplay  # noqa: E402
from agents.replay.ray_replay import RayClient, RayTable  # noqa: E402
from agents.replay.replay import Replay  # noqa: E402
from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.running import ray_connection  # noqa: E402
from agents.sequences import SequenceShape  # noqa: E402
from agents.settings import ReplaySettings  # noqa: E402
from agents.workers.collector import Collector  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402
from rbs_tf import environments  # noqa: E402

NUM_ENVS, NUM_HEADS, KEPT_ROWS, BATCH = 16, 10, 2_000, 32
FREE = ReplaySettings(capacity=40_000, error_buffer=1e9, min_sequences=1)  # nobody waits for anybody


class Learner:
    """Stands for the process that has Ray's table."""

    def __init__(self, layout: Layout):
        self._table = RayTable(layout, NUM_HEADS, FREE)

    def write(self, *args: Any) -> int:
        return self._table.write(*args)

    def inserted(self) -> int:
        return self._table.inserted

    def cpu_seconds(self) -> float:
        return time.process_time()


class NoReplay:
    """All that a `Collector` needs of a replay, and its writer in one; counts windows."""

    def __init__(self, blocks: int):
        self._blocks: collections.deque[tuple] = collections.deque(maxlen=blocks)
        self.inserted = 0

    def writer(self) -> NoReplay:
        return self

    def append(self, block: Any, starts_sequence: bool, priority: float | None = None) -> None:
        self._blocks.append((block, starts_sequence))
        self.inserted += priority is not None

    def put_statistics(self, report: Any) -> None:
        pass

    def end_round(self) -> None:
        pass

    close = end_round


def collector(name: str, work: Work, shape: SequenceShape, replay: Any) -> Collector:
    """Sixteen environments and our agent's collect policy, all from the same seeds whatever the replay."""
    environment = environments.make(name, num_envs=NUM_ENVS, seed=0)
    agent = workloads.agent(dataclasses.replace(work, shape=shape))
    return Collector(environment, agent.collect_policy, agent.heads, replay, shape, agent.initial_priorities)


def drawing(replay: Replay) -> Callable[[], None]:
    """Draws a batch and sets its priorities."""
    batches = iter(replay.dataset(BATCH))
    set_priorities = tf.function(replay.update_priorities)

    def draw() -> None:
        _, info = next(batches)
        set_priorities(info.key, tf.ones(BATCH))

    return draw


def measure(ray: Any, name: str, work: Work, shape: SequenceShape, steps: int, calls: int) -> None:
    """Publishes the rows of a game.

    Args:
      ray: the module, connected.
      name: of the environment.
      work: its network.
      shape: layout of the windows.
      steps: of each environment in one call of a collector.
      calls: of a collector in one measurement.
    """
    layout = Layout(shape, work.observation_spec, workloads.network(work).state_spec, FREE.compression)
    local, reverb, table = (kind(layout, NUM_HEADS, FREE) for kind in (LocalReplay, ReverbReplay, RayTable))
    learner = ray.remote(concurrency_groups={CALLS: 4})(Learner).remote(layout)
    through_ray = RayClient(layout, learner)
    counts = NoReplay(KEPT_ROWS // shape.block)
    collectors = [collector(name, work, shape, each) for each in (local, reverb, through_ray, counts)]

    def clock() -> float:
        return time.process_time() + ray.get(learner.cpu_seconds.remote())

    *measured, rival = times(
        *(lambda each=each: each.run(steps) for each in collectors),
        calls=calls,
        warm_up=-(-(shape.rows - shape.burn_in) // steps),  # until the first windows are complete
        clock=clock,
    )
    assert len({each.environment_steps for each in collectors}) == 1
    inserted = ray.get(learner.inserted.remote())
    assert local.inserted == reverb.inserted == inserted == counts.inserted >= BATCH
    numpy = "the same with NumPy arrays for a replay", rival, 1.15
    unit = "cpu-ms per environment step"
    for backend, figures, (against, others, most) in (
        ("the local replay", measured[0], numpy),
        ("Reverb", measured[1], numpy),
        ("Ray", measured[2], numpy),
        ("Ray", measured[2], ("with Reverb", measured[1], 1.0)),
    ):
        what = f"collecting with {backend}, {name}, {work.name}, {NUM_ENVS} environments"
        publish(row(what, against, figures, others, unit=unit, per_call=NUM_ENVS * steps, at_most=most))
    filling = collector(name, work, shape, table)
    while table.inserted < local.inserted:
        filling.run(steps)
    *measured, rival = times(*map(drawing, (local, table, reverb)), calls=4 * calls)
    for which, figures in zip(("the local replay", "Ray's"), measured, strict=True):
        what = f"drawing {BATCH} windows of {shape.rows} rows from {which}, {name}, and new priorities"
        publish(row(what, "from Reverb", figures, rival, unit="cpu-ms per batch", at_most=1.0))
    for each in (*collectors, filling):
        each.close()
    for each in (local, reverb, table):
        each.stop()


def main() -> None:
    with ray_connection.opened(None, slots=2) as ray:
        small = workloads.SMALL, SequenceShape(5, 20, 10, 5)
        measure(ray, "minatar/space_invaders", *small, steps=10, calls=8)
        measure(ray, "pong", workloads.PAPER, SequenceShape(20, 80, 40, 5), steps=40, calls=1)


if __name__ == "__main__":
    main()
