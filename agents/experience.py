"""What the agent trains on, in either form: TF-Agents' `Trajectory`, or the `Sequence` of our own replay."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.trajectories.trajectory import Trajectory

from agents.sequences import Sequence, SequenceShape, Steps, unpacked


def sequences_of(experience: Trajectory | Sequence, spec: Trajectory, shape: SequenceShape) -> Sequence:
    """The sequences of either form as a `Sequence` with whole observations.

    Args:
      experience: [B, L, ...].
      spec: the agent's `collect_data_spec`, of one row.
      shape: of the sequences: L is `shape.rows`.

    Raises:
      ValueError: a `Trajectory` of another structure, length, shape or dtype.
    """
    if isinstance(experience, Sequence):
        return unpacked(experience, spec.observation)
    return from_trajectory(checked(experience, spec, shape))


def from_trajectory(trajectory: Trajectory) -> Sequence:
    """The same sequences as a `Sequence`: L rows of the one are L rows of the other.

    A row of a `Trajectory` has the reward and the discount that follow its action; those that led to the row are in its
    `policy_info`, see `agents.policy`. The core state is the one that enters row 0. All sequences weigh the same.

    Args:
      trajectory: [B, L, ...].
    """
    info = trajectory.policy_info
    led_to = info.previous_action, info.previous_reward, info.previous_discount
    core_state = tuple(state[:, 0] for state in info.core_state)
    ones = tf.ones_like(info.epsilon[:, 0])
    steps = Steps(trajectory.step_type, trajectory.observation, *led_to)
    return Sequence(steps, core_state, ones, tf.cast(ones, tf.int64))


def checked(trajectory: Any, spec: Trajectory, shape: SequenceShape) -> Trajectory:
    """The trajectory as tensors [B, L, ...] with L known; raises as `sequences_of`."""
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
