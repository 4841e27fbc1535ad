"""What the replay costs those who collect and those who draw: the local replay, Reverb, and next to nothing.

    .venv/bin/python -m benchmarks.replay

Collectors differ only in their replay: environments, seeds, network, policy, statistics, cutting of sequences and first
priorities are the same, and so must be the counts of steps and windows. Their rival keeps the newest blocks in memory
as they are, with nothing to compress, to send or to wait for. Then batches are drawn from what they have collected, by
priority, and get new priorities. Figures are CPU time of the whole process, the Reverb server's threads included.
"""

from __future__ import annotations

from benchmarks.side_by_side import compare, one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import collections  # noqa: E402
import dataclasses  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import tensorflow as tf  # noqa: E402

from agents.replay.local_replay import LocalReplay  # noqa: E402
from agents.replay.replay import Replay  # noqa: E402
from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.targets import SequenceShape  # noqa: E402
from agents.workers.collector import Collector  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402
from rbs_tf import environments  # noqa: E402

NUM_ENVS, KEPT_ROWS, BATCH = 16, 2_000, 32
FREE = {"capacity": 40_000, "error_buffer": 1e9, "min_sequences": 1}  # nobody waits for anybody
BACKENDS = {"the local replay": LocalReplay, "Reverb": ReverbReplay}


class NoReplay:
    """All that a `Collector` needs of a replay, and its writer in one; counts windows."""

    def __init__(self, blocks: int):
        self._blocks: collections.deque[tuple] = collections.deque(maxlen=blocks)
        self.inserted = 0

    def writer(self) -> NoReplay:
        return self

    def append(self, *block: Any) -> None:
        self._blocks.append(block)

    def insert(self, priority: float) -> None:
        self.inserted += 1

    def put_statistics(self, report: Any) -> None:
        pass

    def flush(self) -> None:
        pass

    close = flush


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


def measure(name: str, work: Work, shape: SequenceShape, steps: int, calls: int) -> None:
    """Publishes the rows of a game.

    Args:
      name: of the environment.
      work: its network.
      shape: layout of the windows.
      steps: of each environment in one call of a collector.
      calls: of a collector in one measurement.
    """
    specs = work.observation_spec, workloads.network(work).state_spec
    replays = [backend(shape, *specs, 10, **FREE) for backend in BACKENDS.values()]
    counts = NoReplay(KEPT_ROWS // shape.block)
    collectors = [collector(name, work, shape, each) for each in (*replays, counts)]
    *measured, rival = times(
        *(lambda each=each: each.run(steps) for each in collectors),
        calls=calls,
        warm_up=-(-(shape.rows - shape.burn_in) // steps),  # until the first windows are complete
    )
    assert len({each.environment_steps for each in collectors}) == 1
    assert replays[0].inserted == replays[1].inserted == counts.inserted >= BATCH
    for backend, figures in zip(BACKENDS, measured, strict=True):
        publish(
            row(
                f"collecting with {backend}, {name}, {work.name}, {NUM_ENVS} environments",
                "the same with NumPy arrays for a replay",
                figures,
                rival,
                unit="cpu-ms per environment step",
                per_call=NUM_ENVS * steps,
                at_most=1.15,
            )
        )
    compare(
        f"drawing {BATCH} windows of {shape.rows} rows from the local replay, {name}, and new priorities",
        "from Reverb",
        *map(drawing, replays),
        calls=4 * calls,
        unit="cpu-ms per batch",
        at_most=1.0,
    )
    for each in collectors:
        each.close()
    for each in replays:
        each.stop()


def main() -> None:
    measure("minatar/space_invaders", workloads.SMALL, SequenceShape(5, 20, 10, 5), steps=10, calls=8)
    measure("pong", workloads.PAPER, SequenceShape(20, 80, 40, 5), steps=40, calls=1)


if __name__ == "__main__":
    main()
