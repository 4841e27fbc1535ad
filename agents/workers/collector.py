"""Acts in a batch of environments and writes what happens: statistics first, then sequences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.policy import PolicyInfo
from agents.replay.replay import Intake
from agents.replay.rows import Piece, Rows, SequenceCutter
from agents.sequences import SequenceShape, Steps, concatenate_parts
from agents.workers.step_statistics import Reports
from agents.workers.stepper import Stepper

# Columns of a sequence that its first priority is computed from.
_OF_PRIORITIES = ("step_type", "previous_action", "reward", "discount", "taken_values", "greedy_values")


class Collector:
    """Runs a policy in N environments and feeds the replay.

    The policy's state is kept between runs. Of an episode that is unfinished when the collector is closed, complete
    sequences are in the replay and steps in the statistics, but no returns.

    Args:
      environment: batched; reset by the first run, not closed here.
      policy: gives `PolicyInfo` with every action (see `agents.policy`).
      heads: what each value head sees of rewards and discounts.
      replay: receives sequences and statistics.
      shape: layout of the sequences.
      priorities: `(steps [k, L], taken_values [k, L, H], greedy_values [k, L, H]) -> float32 [k]` for new
        sequences; `steps.observation` is None. Traced once.
      name: of this collector, in messages.

    Attributes:
      environment_steps, episodes: transitions and finished episodes so far, of all environments together.
      stepper: of the environment.
    """

    def __init__(
        self,
        environment: py_environment.PyEnvironment,
        policy: tf_policy.TFPolicy,
        heads: Heads,
        replay: Intake,
        shape: SequenceShape,
        priorities: Callable[[Steps, tf.Tensor, tf.Tensor], tf.Tensor],
        name: str = "collector",
    ):
        self.environment_steps = self.episodes = 0
        self.stepper = Stepper(environment, name)
        self._replay = replay
        batch = environment.batch_size
        spec = tensor_spec.from_spec(environment.time_step_spec())
        self._policy_state = policy.get_initial_state(batch)
        # One graph: a `tf.function` would check the types of all its arguments at every step.
        act = tf.function(lambda time_step, state: policy.action(time_step, state), autograph=False)
        self._act = act.get_concrete_function(tensor_spec.add_outer_dim(spec, batch), self._policy_state)
        self._priorities = _trace_once(priorities, shape.rows, len(heads))
        self._time_step: ts.TimeStep | None = None
        self._rows: Rows | None = None  # of a round, [K, N, ...], used again by the next
        self._rounds_steps = 0  # of each environment, in rounds before this one
        self._cutters = [SequenceCutter(shape) for _ in range(environment.batch_size)]
        self._reports = Reports(heads, environment.batch_size)
        self._writers = [replay.writer() for _ in range(environment.batch_size)]

    def run(self, num_steps: int) -> None:
        """Steps every environment `num_steps` times.

        All new steps and finished returns are in the statistics queue before the first new sequence is in the
        table, so that no scale lags behind the data. Environments insert one after the other: the order is
        reproducible.

        Raises:
          EnvironmentFault: the environment raised something, or gave a reward or observation that is NaN or infinite.
            Nothing of this round has been written.
          FloatingPointError: a first priority is NaN or infinite: the network's values are.
          ReplayStopped, TimeoutError: see `Intake.end_round`.
        """
        rows = self._collect(num_steps)
        report = self._reports.report(rows)
        self._replay.put_statistics(report)
        self._insert([cutter.cut(rows[:, index]) for index, cutter in enumerate(self._cutters)])
        self._rounds_steps += num_steps
        self.environment_steps += int(np.count_nonzero(rows.step_type != StepType.FIRST))
        self.episodes += len(report["episodes"])

    def close(self) -> None:
        """Closes the writers; never waits. Sequences that are not complete are lost."""
        for writer in self._writers:
            writer.close()

    def _collect(self, num_steps: int) -> Rows:
        rows = self._rows
        time_step = self._time_step
        if time_step is None:
            time_step = self.stepper.step(self._rounds_steps)
        for index in range(num_steps):
            action = self._act(tf.nest.map_structure(tf.constant, time_step), self._policy_state)
            info: PolicyInfo = tf.nest.map_structure(lambda tensor: tensor.numpy(), action.info)
            # The fields of a time step and of `PolicyInfo` are named as the columns; the latter has some again.
            row = time_step._asdict() | info._asdict()
            del row["previous_reward"], row["previous_discount"]
            row["observation"] = concatenate_parts(time_step.observation)
            row["core_state"] = np.concatenate(info.core_state, axis=-1)
            if rows is None or len(rows) != num_steps:
                room = {name: np.empty((num_steps, *of.shape), of.dtype) for name, of in row.items()}
                self._rows = rows = Rows(**room)
            for name, values in row.items():
                getattr(rows, name)[index] = values
            self._policy_state = action.state
            time_step = self.stepper.step(self._rounds_steps + index + 1, action.action.numpy())
            self._time_step = time_step
        assert rows is not None, "a round has at least one step"
        return rows

    def _insert(self, streams: list[list[Piece]]) -> None:
        """Stores blocks and inserts sequences, environment by environment."""
        sequences = [piece.sequence for pieces in streams for piece in pieces if piece.sequence is not None]
        priorities = np.empty(0)
        if sequences:
            columns = ([getattr(sequence, name) for sequence in sequences] for name in _OF_PRIORITIES)
            priorities = self._priorities(*map(np.stack, columns)).numpy()
        if not np.isfinite(priorities).all():  # no draw could use it, and Reverb would wait forever
            raise FloatingPointError(
                "The first priority of a sequence is NaN or infinite; have the values diverged?"
            )
        left = iter(priorities.tolist())
        for pieces, writer in zip(streams, self._writers, strict=True):
            for piece in pieces:
                priority = None if piece.sequence is None else next(left)
                writer.append(piece.block, piece.starts_sequence, priority)
        self._replay.end_round()


def _trace_once(priorities: Callable, rows: int, num_heads: int) -> Callable:
    """`priorities` as a graph for any number of sequences, called with the columns `_OF_PRIORITIES` of them."""
    of_rows = [tf.TensorSpec((None, rows), of) for of in (tf.int32, tf.int32, tf.float32, tf.float32)]
    values = tf.TensorSpec((None, rows, num_heads), tf.float32)

    def compute_priorities(*columns: tf.Tensor) -> tf.Tensor:
        # Where functions run eagerly, as people debug, columns are still arrays.
        step_type, previous_action, reward, discount, taken, greedy = map(tf.convert_to_tensor, columns)
        return priorities(Steps(step_type, None, previous_action, reward, discount), taken, greedy)

    return tf.function(compute_priorities, input_signature=[*of_rows, values, values], autograph=False)
