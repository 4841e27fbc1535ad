"""The learner's step against the stock one.

    .venv/bin/python -m benchmarks.learner_step

Ours has ten heads, 5-step targets, burn-in, priorities and scaling, and compiles what lies behind the torso with XLA;
TF-Agents' `DqnAgent` with a `QRnnNetwork` has the same torso and sizes, one head and 1-step targets. Both see the same
frames in windows of the same length, are one `tf.function` and finish with Adam. The stock agent knows neither burn-in
nor stored states: it trains on every row, and ours on all but the burn-in and the last five. A torso in bfloat16 is
measured on CPUs that have such arithmetic alone.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import dataclasses  # noqa: E402
import functools  # noqa: E402
import statistics  # noqa: E402

import tensorflow as tf  # noqa: E402
from tf_agents.trajectories import trajectory  # noqa: E402

from agents import agent as agent_module  # noqa: E402
from agents.agent import RecurrentMultiHeadAgent  # noqa: E402
from agents.targets import Sequence  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402


def as_trajectory(sequence: Sequence) -> trajectory.Trajectory:
    """The same windows for the stock agent."""
    steps = sequence.steps
    return trajectory.Trajectory(
        steps.step_type,
        steps.observation,
        steps.previous_action,
        (),
        steps.step_type,
        steps.reward,
        steps.discount,
    )


def main() -> None:
    narrow = {"bfloat16": "at most 0.45"} if workloads.native_bfloat16() else {}
    compare(workloads.PAPER, {"float32": "at most 0.85", **narrow})
    compare(workloads.SMALL, {"float32": "at most 0.9"}, calls=8)
    compare_compiled(workloads.QUICKSTART, "at most 0.65", calls=16)
    compare_compiled(workloads.SMALL, "at most 1", calls=8)
    compare_compiled(workloads.ATARI_SMALL, "at most 0.7", calls=4)
    # Why larger cores are not compiled.
    more = dataclasses.replace(workloads.SMALL, name="small network with a core of 256", lstm_units=256)
    compare_compiled(more, calls=8)
    compare_compiled(workloads.PAPER)


def compare(work: Work, reaches: dict[str, str], calls: int = 1) -> None:
    """Publishes a row per type that our torso computes in; `reaches`: type -> bound."""
    sequence = workloads.windows(work)
    experience = as_trajectory(sequence)
    stock = tf.function(workloads.stock_agent(work).train)
    ours = [tf.function(workloads.agent(work, compute_dtype=dtype).train) for dtype in reaches]
    *measured, rival = times(
        *(lambda step=step: step(sequence).loss.numpy() for step in ours),
        lambda: stock(experience).loss.numpy(),
        calls=calls,
    )
    for (dtype, reach), figures in zip(reaches.items(), measured, strict=True):
        publish(
            row(
                f"learner step, {work.name}, ten heads, torso in {dtype}",
                "stock DqnAgent + QRnnNetwork, one head",
                figures,
                rival,
                unit="cpu-ms per update",
                reach=reach,
            )
        )


def compare_compiled(work: Work, reach: str = "", calls: int = 1) -> None:
    """Publishes a row for all but the torso compiled with XLA, the default of small cores, against nothing compiled."""
    sequence = workloads.windows(work)
    agent_module.MOST_COMPILED_UNITS = work.lstm_units
    agents = {
        jit_compile: workloads.agent(work, jit_compile=jit_compile) for jit_compile in (None, False, True)
    }
    in_part, plain, whole = (tf.function(agent.train) for agent in agents.values())
    torso = tf.function(functools.partial(torso_alone, agents[None]))
    figures = times(
        *(lambda step=step: step(sequence).loss.numpy() for step in (in_part, plain, whole)),
        lambda: [gradient.numpy() for gradient in torso(sequence.steps.observation)],
        calls=calls,
    )
    cpu = [1e3 * statistics.median(seconds for seconds, _ in each) for each in figures]
    publish(
        row(
            f"learner step, {work.name}, ten heads, compiled behind the torso",
            "nothing compiled",
            *figures[:2],
            unit="cpu-ms per update",
            reach=reach,
            note=f"All of it compiled: {cpu[2]:.3g}. The torso alone, which is not: {cpu[3]:.3g}.",
        )
    )


def torso_alone(agent: RecurrentMultiHeadAgent, observation: tf.Tensor) -> list[tf.Tensor]:
    """The torso's part of an update: forward three times, backward once."""
    with tf.GradientTape() as tape:
        features = agent._features(observation)
    gradients = tape.gradient(features.online, agent.network.torso_variables, features.online)
    return [*gradients, tf.reduce_sum(features.target), tf.reduce_sum(features.burn_in)]


if __name__ == "__main__":
    main()
