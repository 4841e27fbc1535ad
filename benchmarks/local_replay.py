"""The local replay against Reverb in the same process: what drawing a batch costs with either.

    .venv/bin/python -m benchmarks.local_replay

Batches are drawn from what `collector_step` collects, the same on both sides, by priority, and get new priorities.
Figures are CPU time of the whole process, the server's threads included.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

from collections.abc import Callable  # noqa: E402

import tensorflow as tf  # noqa: E402

from agents.replay.local_replay import LocalReplay  # noqa: E402
from agents.replay.replay import Replay  # noqa: E402
from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.targets import SequenceShape  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.collector_step import SETTINGS, collector  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402

BATCH = 32


def drawing(replay: Replay) -> Callable[[], None]:
    """Draws a batch and sets its priorities."""
    batches = iter(replay.dataset(BATCH))
    set_priorities = tf.function(replay.update_priorities)

    def draw() -> None:
        _, info = next(batches)
        set_priorities(info.key, tf.ones(BATCH))

    return draw


def measure(name: str, work: Work, shape: SequenceShape, steps: int, calls: int) -> None:
    state = workloads.network(work).state_spec
    # Neither side waits for the other.
    free = {"capacity": 40_000, "error_buffer": 1e9, "min_sequences": 1}
    replays = [kind(shape, work.observation_spec, state, 10, **free) for kind in (LocalReplay, ReverbReplay)]
    ours, rival = (collector(name, work, shape, replay) for replay in replays)
    filled = -(-(shape.rows - shape.burn_in) // steps)  # rounds until the first windows are complete
    for part in (ours, rival):
        for _ in range(filled + 2 * calls):
            part.run(steps)
    assert replays[0].inserted == replays[1].inserted >= BATCH
    publish(
        row(
            f"drawing {BATCH} windows of {shape.rows} rows from the local replay, {name}, and new priorities",
            "from Reverb",
            *times(*map(drawing, replays), calls=4 * calls),
            unit="cpu-ms per batch",
            reach="at most 1",
        )
    )
    for part in (ours, rival):
        part.close()
    for replay in replays:
        replay.stop()


def main() -> None:
    for setting in SETTINGS:
        measure(*setting)


if __name__ == "__main__":
    main()
