"""Scaling's cost inside the learner's step: return-based, with sigma_batch and float64 statistics, against none.

    .venv/bin/python -m benchmarks.scaling_cost

Each scaled step takes in new statistics first, as a run does before every update, where the other takes in nothing.
"""

from __future__ import annotations

from benchmarks.side_by_side import compare, one_core

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402
from rbs_tf import ReturnMoments  # noqa: E402
from rbs_tf.scalings import ReturnBasedScaling, Scaling  # noqa: E402


def scaled_against_plain(work: Work, reach: str, calls: int) -> None:
    sequence = workloads.windows(work)
    scaled, plain = (workloads.agent(work, scaling=kind) for kind in (ReturnBasedScaling, Scaling))
    scaled_step, plain_step = tf.function(scaled.train), tf.function(plain.train)
    moments = ReturnMoments.from_episode(np.ones((100, 10)), np.full((100, 10), 0.99))

    def with_scaling():
        scaled.observe(moments)
        return scaled_step(sequence).loss.numpy()

    compare(
        f"learner step, {work.name}, ten heads, with scaling, sigma_batch and statistics",
        "without",
        with_scaling,
        lambda: plain_step(sequence).loss.numpy(),
        calls=calls,
        unit="cpu-ms per update",
        reach=reach,
    )


def main() -> None:
    scaled_against_plain(workloads.PAPER, "at most 1.005", calls=1)
    scaled_against_plain(workloads.SMALL, "at most 1.005", calls=30)


if __name__ == "__main__":
    main()
