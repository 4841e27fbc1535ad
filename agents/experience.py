"""What the agent trains on, in either form: TF-Agents' `Trajectory`, or the `Sequence` of our own replay."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.trajectories.trajectory import Trajectory

from agents.sequences import Sequence, SequenceShape, Steps, unpack


def read_sequences(experience: Trajectory | Sequence, spec: Trajectory, shape: SequenceShape) -> Sequence:
    """Experience of either form, [B, L, ...], as a `Sequence` with whole observations.

    L rows of a `Trajectory` are L rows of the `Sequence`. Each has the reward and the discount that follow its action;
    those that led to it are in its `policy_info`, see `agents.policy`. The core state is the one that enters row 0, and
    all sequences weigh the same.

    Args:
      spec: the agent's `collect_data_spec`, of one row.
      shape: of the sequences: L is `shape.rows`.

    Raises:
      ValueError: a `Trajectory` of another structure, length, shape or dtype.
    """
    if isinstance(experience, Sequence):
        return unpack(experience, spec.observation)
    trajectory = _check_trajectory(experience, spec, shape)
    info = trajectory.policy_info
    steps = Steps(
        trajectory.step_type,
        trajectory.observation,
        info.previous_action,
        info.previous_reward,
        info.previous_discount,
    )
    ones = tf.ones_like(info.epsilon[:, 0])
    return Sequence(steps, tuple(state[:, 0] for state in info.core_state), ones, tf.cast(ones, tf.int64))


def read_weights(weights: Any, sequence: Sequence) -> tf.Tensor | None:
    """The weights of sequences as float32 [B] or []; raises ValueError for another shape."""
    if weights is None:
        return None
    weights = tf.cast(weights, tf.float32)
    if weights.shape.rank == 0:
        return weights
    sequences = sequence.probability
    wanted = "weights must have shape [B], one number per sequence"
    if not weights.shape.is_compatible_with(sequences.shape):
        raise ValueError(f"{wanted}, {sequences.shape} here; got {weights.shape}")
    # What is known only when a graph runs must not spread either.
    fits = tf.debugging.assert_equal(tf.size(weights), tf.size(sequences), wanted)
    with tf.control_dependencies([] if fits is None else [fits]):
        return tf.identity(weights)


def _check_trajectory(trajectory: Any, spec: Trajectory, shape: SequenceShape) -> Trajectory:
    """The trajectory as tensors [B, L, ...] with L known; raises as `read_sequences`."""
    if not isinstance(trajectory, Trajectory):
        raise ValueError(
            f"train() takes a Trajectory of agent.collect_data_spec, or a Sequence; got {type(trajectory).__name__}"
        )
    rows = shape.rows
    takes = f"train() takes a Trajectory [B, L, ...] of agent.collect_data_spec, L = {rows} rows (burn_in + length + "
    takes += "n_step of its shape: agent.train_sequence_length)"
    for name, expected in spec._asdict().items():
        given = getattr(trajectory, name)
        try:
            tf.nest.assert_same_structure(expected, given)
        except (TypeError, ValueError) as error:
            acted = (
                " It comes from agent.collect_policy: a random policy's steps have none."
                if name == "policy_info"
                else ""
            )
            raise ValueError(f"{takes}; its {name} has another structure than the spec.{acted}") from error
        for part, values in zip(tf.nest.flatten(expected), tf.nest.flatten(given), strict=True):
            found, dtype = tf.TensorShape(values.shape), tf.as_dtype(values.dtype)
            if dtype != part.dtype or not found.is_compatible_with([None, rows, *part.shape]):
                turned = found.rank and found[0] == rows and found[1:2] != [rows]
                words = ": time-major, it seems, where TF-Agents is batch-first" if turned else ""
                if found.rank == 1 + part.shape.rank:
                    words = ", and has no batch axis: tf.nest.map_structure(lambda x: x[None], trajectory) gives it one"
                wanted = f"{part.dtype.name} [B, {', '.join(map(str, [rows, *part.shape]))}]"
                raise ValueError(f"{takes}; its {name} is {dtype.name} {found}, not {wanted}{words}")
    return tf.nest.map_structure(
        lambda part, values: tf.ensure_shape(values, [None, rows, *part.shape]), spec, trajectory
    )
