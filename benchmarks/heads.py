"""The learner's step with ten heads against one.

    .venv/bin/python -m benchmarks.heads

Same network but for the heads, same windows, same scaling.
"""

from __future__ import annotations

from benchmarks.side_by_side import compare, one_core

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import tensorflow as tf  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402


def ten_against_one(work: Work, reach: str, calls: int) -> None:
    sequence = workloads.windows(work)
    ten, one = (tf.function(workloads.agent(work, num_heads).train) for num_heads in (10, 1))
    compare(
        f"learner step, {work.name}, ten heads",
        "one head",
        lambda: ten(sequence).loss.numpy(),
        lambda: one(sequence).loss.numpy(),
        calls=calls,
        unit="cpu-ms per update",
        reach=reach,
    )


def main() -> None:
    ten_against_one(workloads.PAPER, "at most 1.05", calls=1)
    ten_against_one(workloads.SMALL, "at most 1.25", calls=20)


if __name__ == "__main__":
    main()
