"""The learner's step: against the stock one, compiled against not, ten heads against one, with scaling against without.

    .venv/bin/python -m benchmarks.learner_step

Ours has ten heads, 5-step targets, burn-in, priorities and scaling, and compiles what lies behind the torso with XLA;
TF-Agents' `DqnAgent` with a `QRnnNetwork` has the same torso and sizes, one head and 1-step targets. Both see the same
frames in windows of the same length, are one `tf.function` and finish with Adam. The stock agent knows neither burn-in
nor stored states: it trains on every row, and ours on all but the burn-in and the last five. A torso in bfloat16 is
measured only on CPUs that have such arithmetic. A scaled step takes in new statistics first, as a run does before every
update.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import dataclasses  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tf_agents.agents import tf_agent  # noqa: E402
from tf_agents.trajectories import trajectory  # noqa: E402

from agents.scalings import Scaling  # noqa: E402
from agents.sequences import Sequence  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402
from networks import loss_behind_torsos  # noqa: E402
from rbs_tf import ReturnMoments  # noqa: E402

UNIT = "cpu-ms per update"


def training(agent: tf_agent.TFAgent, experience: Any) -> Callable[[], np.ndarray]:
    """Makes one update and waits for it."""
    step = tf.function(agent.train)
    return lambda: step(experience).loss.numpy()


def as_trajectory(sequence: Sequence) -> trajectory.Trajectory:
    """The same windows for the stock agent."""
    steps = sequence.steps
    kinds = steps.step_type, steps.observation, steps.previous_action, (), steps.step_type
    return trajectory.Trajectory(*kinds, steps.reward, steps.discount)


def compare_stock(work: Work, bounds: dict[str, float], calls: int = 1) -> None:
    """Publishes a row per type that our torso computes in; `bounds`: type -> bound."""
    sequence = workloads.windows(work)
    stock = training(workloads.stock_agent(work), as_trajectory(sequence))
    ours = [training(workloads.agent(work, compute_dtype=dtype), sequence) for dtype in bounds]
    *measured, rival = times(*ours, stock, calls=calls)
    against = "stock DqnAgent + QRnnNetwork, one head"
    for (dtype, bound), figures in zip(bounds.items(), measured, strict=True):
        what = f"learner step, {work.name}, ten heads, torso in {dtype}"
        publish(row(what, against, figures, rival, unit=UNIT, at_most=bound))


def compare_compiled(work: Work, bound: float | None = None, calls: int = 1) -> None:
    """Publishes a row for all but the torso compiled with XLA, the default of small cores, against nothing compiled."""
    sequence = workloads.windows(work)
    loss_behind_torsos.MOST_COMPILED_UNITS = work.lstm_units
    ways = (training(workloads.agent(work, jit_compile=how), sequence) for how in (None, False))
    what = f"learner step, {work.name}, ten heads, compiled behind the torso"
    publish(row(what, "nothing compiled", *times(*ways, calls=calls), unit=UNIT, at_most=bound))


def compare_heads(work: Work, bound: float, calls: int) -> None:
    sequence = workloads.windows(work)
    ways = (training(workloads.agent(work, heads), sequence) for heads in (10, 1))
    what = f"learner step, {work.name}, ten heads"
    publish(row(what, "one head", *times(*ways, calls=calls), unit=UNIT, at_most=bound))


def compare_scaling(work: Work, bound: float, calls: int) -> None:
    sequence = workloads.windows(work)
    scaled = workloads.agent(work)
    step = training(scaled, sequence)
    moments = ReturnMoments.from_episode(np.ones((100, 10)), np.full((100, 10), 0.99))

    def with_scaling() -> np.ndarray:
        scaled.observe(moments)
        return step()

    what = f"learner step, {work.name}, ten heads, with scaling, sigma_batch and statistics"
    plain = training(workloads.agent(work, scaling=Scaling), sequence)
    publish(row(what, "without", *times(with_scaling, plain, calls=calls), unit=UNIT, at_most=bound))


def main() -> None:
    narrow = {"bfloat16": 0.45} if workloads.native_bfloat16() else {}
    compare_stock(workloads.PAPER, {"float32": 0.85, **narrow})
    compare_stock(workloads.SMALL, {"float32": 0.9}, calls=8)
    default = loss_behind_torsos.MOST_COMPILED_UNITS
    compare_compiled(workloads.QUICKSTART, 0.65, calls=16)
    compare_compiled(workloads.SMALL, 1.0, calls=8)
    compare_compiled(workloads.ATARI_SMALL, 0.7, calls=4)
    # Why larger cores are not compiled.
    more = dataclasses.replace(workloads.SMALL, name="small network with a core of 256", lstm_units=256)
    compare_compiled(more, calls=8)
    compare_compiled(workloads.PAPER)
    loss_behind_torsos.MOST_COMPILED_UNITS = default
    compare_heads(workloads.PAPER, 1.05, calls=1)
    compare_heads(workloads.SMALL, 1.25, calls=20)
    compare_scaling(workloads.PAPER, 1.005, calls=1)
    compare_scaling(workloads.SMALL, 1.005, calls=30)


if __name__ == "__main__":
    main()
