"""Acting in a batch of 64 environments against acting in one: how many observations a CPU second decides.

    .venv/bin/python -m benchmarks.acting

Both are the collect policy as the collector calls it: one traced graph, a NumPy time step in, the next policy
state kept, actions and everything that the collector records out as NumPy. The note tells the same of the network
alone, and what a call costs when there is next to nothing to compute: Python and TensorFlow's dispatch, which a batch
shares.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks.side_by_side import one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tf_agents.policies import tf_policy  # noqa: E402
from tf_agents.trajectories import policy_step  # noqa: E402
from tf_agents.trajectories import time_step as ts  # noqa: E402

from agents.workers.collector import traced_action  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402

BATCH, SIDE = 64, 1024


def time_steps(work: Work, batch: int) -> ts.TimeStep:
    """In mid-episode, as the environments give them."""
    random = np.random.default_rng(0)
    most = work.observation_spec.maximum
    return ts.TimeStep(
        np.full(batch, ts.StepType.MID, np.int32),
        random.normal(size=batch).astype(np.float32),
        np.ones(batch, np.float32),
        random.integers(0, most, (batch, *work.observation), np.uint8, endpoint=True),
    )


def acting(work: Work, policy: tf_policy.TFPolicy, batch: int) -> Callable[[], np.ndarray]:
    """A step of `agents.workers.collector.Collector` without environment and record; gives the actions [N]."""
    act, time_step = traced_action(policy, work.time_step_spec, batch), time_steps(work, batch)
    state = policy.get_initial_state(batch)

    def step() -> np.ndarray:
        nonlocal state
        action = act(ts.TimeStep(*map(tf.constant, time_step)), state)
        tf.nest.map_structure(lambda tensor: tensor.numpy(), action.info)
        state = action.state
        return action.action.numpy()

    return step


def network_alone(work: Work, policy: tf_policy.TFPolicy, batch: int) -> Callable[[], tf.Tensor]:
    """The same network's values [N, H, A], from tensors that are there already, with a state that is not kept."""
    network, time_step = policy._network, time_steps(work, batch)
    inputs = tf.constant(time_step.observation), tf.zeros(batch, tf.int32), tf.constant(time_step.reward)
    state, step_type = network.get_initial_state(batch), tf.constant(time_step.step_type)
    values = tf.function(lambda: network(inputs, step_type, state)[0], autograph=False)
    return values.get_concrete_function()


def operations(network: Callable[[], tf.Tensor]) -> int:
    """Floating-point operations of a call, as TensorFlow counts them in the graph."""
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return tf.compat.v1.profiler.profile(network.graph, options=options).total_float_ops


def matrix_product() -> Callable[[], float]:
    """Computes a matrix product of 2 SIDE^3 operations, near enough the best that the core can do."""
    matrix = tf.random.normal((SIDE, SIDE), seed=0)
    product = tf.function(lambda: tf.reduce_sum(matrix @ matrix), autograph=False)
    return lambda: product().numpy()


def dispatch(work: Work, policy: tf_policy.TFPolicy) -> Callable[[], np.ndarray]:
    """A call for one environment that gives zeros of the right shapes instead of deciding anything."""

    class Zeros(tf_policy.TFPolicy):
        def _action(self, time_step, policy_state, seed):
            zeros = tf.nest.map_structure(
                lambda spec: tf.zeros((1, *spec.shape), spec.dtype), self.policy_step_spec
            )
            return policy_step.PolicyStep(*zeros)

    specs = policy.time_step_spec, policy.action_spec, policy.policy_state_spec, policy.info_spec
    return acting(work, Zeros(*specs, clip=False, automatic_state_reset=False, validate_args=False), 1)


def main() -> None:
    product = matrix_product()
    for work, reach, calls in ((workloads.PAPER, "at least 3", 4), (workloads.SMALL, "at least 20", 60)):
        policy = workloads.agent(work).collect_policy
        batched, single = (acting(work, policy, batch) for batch in (BATCH, 1))
        assert batched().shape == (BATCH,) and single().shape == (1,)
        of_batch, of_one = (network_alone(work, policy, batch) for batch in (BATCH, 1))
        alone = (lambda values=values: values().numpy() for values in (of_batch, of_one))
        ways = batched, single, *alone, dispatch(work, policy), product
        ours, rival, *alone, empty, peak = times(*ways, calls=calls)
        network = row("", "", *alone, work=(BATCH, 1))
        share = row("", "", alone[0], peak, work=(operations(of_batch), 2 * SIDE**3))
        publish(
            row(
                f"acting in {BATCH} environments at once, {work.name}",
                "in one",
                ours,
                rival,
                unit="observations per cpu-s",
                reach=reach,
                note=f"The network alone: {network.ratio:.3g}, {network.ours:.4g} against {network.rival:.4g}; in a "
                f"batch it works at {share.ratio:.0%} of a large matrix product's {share.rival / 1e9:.0f} GFLOP/s. An "
                f"empty call costs {1e6 * statistics.median(cpu for cpu, _ in empty):.0f} cpu-us.",
                work=(BATCH, 1),
            )
        )


if __name__ == "__main__":
    main()
