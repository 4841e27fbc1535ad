"""The replay's cost for a collector: the same collector with a Reverb server in its process, as in the embedded mode,
or with the local replay, against one that writes into NumPy arrays.

    .venv/bin/python -m benchmarks.collector_step

Environments, seeds, network, policy, statistics, cutting of sequences and first priorities are the same on all sides,
and so must be the counts of steps and windows; the rival is a ring of blocks in memory made beforehand, with nothing to
compress, to send or to wait for, and nobody in another process could draw from it. Figures are CPU time of the whole
process, the server's threads included.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import dataclasses  # noqa: E402
import types  # noqa: E402

import numpy as np  # noqa: E402

from agents.replay.local_replay import LocalReplay  # noqa: E402
from agents.replay.replay import Replay  # noqa: E402
from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.replay.windows import Block  # noqa: E402
from agents.targets import SequenceShape  # noqa: E402
from agents.workers.collector import Collector  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402
from rbs_tf import environments  # noqa: E402

NUM_ENVS, RING_ROWS = 16, 2_000
# A name, a network, and the layout, the steps of a round and the rounds of one measurement that go with it.
SETTINGS = (
    ("minatar/space_invaders", workloads.SMALL, SequenceShape(5, 20, 10, 5), 10, 8),
    ("pong", workloads.PAPER, SequenceShape(20, 80, 40, 5), 40, 1),
)


def ring(work: Work, shape: SequenceShape, capacity: int) -> types.SimpleNamespace:
    """All that a `Collector` needs of a replay: blocks [capacity, rows, ...] and windows as (block, priority)."""
    blocks = np.zeros((capacity, shape.block, *work.observation), np.uint8)
    scalars = np.zeros((capacity, shape.block, 4), np.float32)
    core_states = np.zeros((capacity, 2, work.lstm_units), np.float32)
    kept = types.SimpleNamespace(appended=0, windows=[], statistics=[])

    def append(block: Block) -> None:
        at, steps = kept.appended % capacity, block.steps
        blocks[at] = steps.observation
        for column, values in enumerate(
            (steps.step_type, steps.previous_action, steps.reward, steps.discount)
        ):
            scalars[at, :, column] = values
        if block.core_state is not None:
            core_states[at] = block.core_state
        kept.appended += 1

    def insert(priority: float) -> None:
        kept.windows.append((kept.appended - 1, priority))

    def nothing() -> None:
        pass

    writer = types.SimpleNamespace(append=append, insert=insert, flush=nothing, close=nothing)
    kept.writer, kept.put_statistics = lambda: writer, kept.statistics.append
    return kept


def collector(
    name: str, work: Work, shape: SequenceShape, replay: Replay | types.SimpleNamespace
) -> Collector:
    """Sixteen environments and our agent's collect policy, all from the same seeds whatever the replay."""
    environment = environments.make(name, num_envs=NUM_ENVS, seed=0)
    agent = workloads.agent(dataclasses.replace(work, shape=shape))
    return Collector(environment, agent.collect_policy, agent.heads, replay, shape, agent.initial_priorities)


def measure(name: str, work: Work, shape: SequenceShape, steps: int, calls: int) -> None:
    state = workloads.network(work).state_spec
    # Nobody reads: it must take everything without waiting.
    unread = {"capacity": 40_000, "error_buffer": 1e9}
    replays = {
        name: kind(shape, work.observation_spec, state, 10, **unread)
        for name, kind in (("Reverb", ReverbReplay), ("the local replay", LocalReplay))
    }
    arrays = ring(work, shape, RING_ROWS // shape.block)
    collectors = [collector(name, work, shape, replay) for replay in (*replays.values(), arrays)]
    # After as many rounds the first windows are complete, and everything has been traced.
    filled = -(-(shape.rows - shape.burn_in) // steps)
    *measured, rival = times(
        *(lambda each=each: each.run(steps) for each in collectors), calls=calls, warm_up=filled
    )
    assert len({each.environment_steps for each in collectors}) == 1
    assert {replay.inserted for replay in replays.values()} == {len(arrays.windows)}
    done = NUM_ENVS * steps
    for kind, figures in zip(replays, measured, strict=True):
        publish(
            row(
                f"collecting with {kind}, {name}, {work.name}, {NUM_ENVS} environments",
                "the same with NumPy arrays for a replay",
                *([(cpu / done, wall / done) for cpu, wall in way] for way in (figures, rival)),
                unit="cpu-ms per environment step",
                reach="at most 1.15",
            )
        )
    for each in collectors[:2]:
        each.close()
    for replay in replays.values():
        replay.stop()


def main() -> None:
    for setting in SETTINGS:
        measure(*setting)


if __name__ == "__main__":
    main()
