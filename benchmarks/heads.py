"""The learner's step with ten heads against one.

    .venv/bin/python -m benchmarks.heads

Same network but for the heads, same windows, same scaling.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from rbs_tf.startup import quiet  # noqa: E402

quiet()

import tensorflow as tf  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402


def compare(work: Work, reach: str, calls: int) -> None:
    sequence = workloads.windows(work)
    ten, one = (tf.function(workloads.agent(work, num_heads).train) for num_heads in (10, 1))
    measured = times(*(lambda step=step: step(sequence).loss.numpy() for step in (ten, one)), calls=calls)
    publish(
        row(
            f"learner step, {work.name}, ten heads",
            "one head",
            *measured,
            unit="cpu-ms per update",
            reach=reach,
        )
    )


def main() -> None:
    compare(workloads.PAPER, "at most 1.05", calls=1)
    compare(workloads.SMALL, "at most 1.25", calls=20)


if __name__ == "__main__":
    main()
