"""The learner's step against the stock one.

    .venv/bin/python -m benchmarks.learner_step

Ours has ten heads, 5-step targets, burn-in, priorities and scaling; TF-Agents' `DqnAgent` with a `QRnnNetwork` has
the same torso and sizes, one head and 1-step targets. Both see the same frames in windows of the same length, are one
`tf.function` and finish with Adam. The stock agent knows neither burn-in nor stored states: it trains on every row, and
ours on all but the burn-in and the last five. A torso in bfloat16 is measured on CPUs that have such arithmetic alone.
"""

from __future__ import annotations

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from rbs_tf.startup import quiet  # noqa: E402

quiet()

import tensorflow as tf  # noqa: E402
from tf_agents.agents.dqn import dqn_agent  # noqa: E402
from tf_agents.networks import q_rnn_network  # noqa: E402
from tf_agents.trajectories import trajectory  # noqa: E402

from agents.sequences import Sequence  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402


def stock_agent(work: Work) -> dqn_agent.DqnAgent:
    """`DqnAgent` + `QRnnNetwork` on plain Keras layers of our torso's sizes: TF-Agents' own pad differently."""
    *convolutions, _, linear = work.torso(seed=0)._stages
    torso = tf.keras.Sequential(
        [
            tf.keras.layers.Rescaling(1 / 255),
            *(
                tf.keras.layers.Conv2D(c.filters, c.kernel_size, c.strides, "same", activation="relu")
                for c in convolutions
            ),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(linear.units, "relu"),
        ]
    )
    network = q_rnn_network.QRnnNetwork(
        work.observation_spec,
        work.action_spec,
        preprocessing_layers=torso,
        input_fc_layer_params=None,
        lstm_size=(work.lstm_units,),
        output_fc_layer_params=(work.post_lstm_units,),
    )
    agent = dqn_agent.DqnAgent(
        work.time_step_spec,
        work.action_spec,
        q_network=network,
        optimizer=tf.keras.optimizers.Adam(2e-4, epsilon=1e-6),
        target_update_period=400,
        gamma=0.99,
        td_errors_loss_fn=dqn_agent.common.element_wise_squared_loss,
        train_step_counter=tf.Variable(0, dtype=tf.int64),
    )
    agent.initialize()
    return agent


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


def compare(work: Work, reaches: dict[str, str], calls: int = 1) -> None:
    """Publishes a row per type that our torso computes in; `reaches`: type -> bound."""
    sequence = workloads.windows(work)
    experience = as_trajectory(sequence)
    stock = tf.function(stock_agent(work).train)
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


if __name__ == "__main__":
    main()
