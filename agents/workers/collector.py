"""Acts in a batch of environments and writes what happens: statistics first, then sequences."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.policy import PolicyInfo
from agents.replay.replay import Episode, Replay, Writer
from agents.replay.windows import Block, Rows, SequenceCutter, Window
from agents.storage.state import State, joined, numbered, part
from agents.targets import SequenceShape, Steps
from agents.workers.faults import check_finite, time_step_of
from agents.workers.step_statistics import Acted, Reports
from rbs_tf.returns import LONGEST_EPISODE


@gin.configurable(module="agents")
class Collector:
    """Runs a policy in N environments and feeds the replay.

    Of each environment the policy's state is kept between runs; an episode that is unfinished when the
    collector is closed has its complete windows in the replay and its steps in the statistics, but no
    returns and not the n-step transitions of its last n - 1 steps; unless another collector takes over its `state`.

    Args:
      environment: batched; reset by the first run, closed by whoever made it.
      policy: gives `PolicyInfo` with every action (see `agents.policy`).
      heads: what each value head sees of rewards and discounts.
      replay: receives sequences and statistics.
      shape: layout of the sequences.
      priorities: `(steps [k, L], taken_values [k, L, H], greedy_values [k, L, H]) -> float32 [k]` for new
        windows; `steps.observation` is None. Traced once.
      needs: what statistics hold beside moments per head, see `Scaling.needs`.
      max_report_steps: an episode of more steps reports the returns of its first so many, cut there, and goes
        on as if a new one began: otherwise an environment that never ends would never report any. n-step
        transitions are not cut.
      name: of this collector, in messages.

    Attributes:
      environment_steps: transitions so far, all environments together; may be set, for a resumed run.
      episodes: finished episodes so far; likewise.
      activity: ("environment", "acting" or "writing", since when on the monotonic clock), for whoever supervises it.
      waited: seconds in which inserting waited for the replay.
    """

    def __init__(
        self,
        environment: py_environment.PyEnvironment,
        policy: tf_policy.TFPolicy,
        heads: Heads,
        replay: Replay,
        shape: SequenceShape,
        priorities: Callable[[Steps, tf.Tensor, tf.Tensor], tf.Tensor],
        needs: Mapping[str, Any] = types.MappingProxyType({}),
        max_report_steps: int = LONGEST_EPISODE,
        name: str = "collector",
    ):
        self.environment_steps = 0
        self.episodes = 0
        self.activity, self.waited = ("acting", time.monotonic()), 0.0
        self._name = name
        self._environment, self._replay = environment, replay
        self._act = traced_action(policy, environment.time_step_spec(), environment.batch_size)
        self._priorities = _traced_once(priorities, shape.rows, len(heads))
        self._policy_state = policy.get_initial_state(environment.batch_size)
        self._time_step: ts.TimeStep | None = None
        self._record: _Record | None = None
        self._rounds_steps = 0  # of each environment, in rounds before this one
        self._cutters = [SequenceCutter(shape) for _ in range(environment.batch_size)]
        self._reports = Reports(heads, environment.batch_size, shape.n_step, max_report_steps, needs)
        self._writers = [replay.writer() for _ in range(environment.batch_size)]

    def run(self, num_steps: int) -> list[Episode]:
        """Steps every environment `num_steps` times; returns the episodes that finished.

        All new steps and finished returns are in the statistics queue before the first new sequence is in the
        table, so that no scale lags behind the data. Environments insert one after the other: the order is
        reproducible.

        Raises:
          EnvironmentFault: the environment raised something, or gave a reward or observation that is NaN or infinite,
            or observations of another shape or dtype than its spec's. Nothing of this round has been written.
          FloatingPointError: a first priority is NaN or infinite: the network's values are.
          ReplayStopped, TimeoutError: see `Writer.flush`.
        """
        record = self._collect(num_steps)
        check_finite(record.steps.reward, record.steps.observation, self._name, self._rounds_steps)
        self.activity = "writing", time.monotonic()
        step_type, _, _, reward, discount = record.steps
        report, episodes = self._reports.report(
            Acted(step_type, reward, discount, record.head, record.epsilon)
        )
        self._replay.put_statistics(report)
        self._insert([cutter.cut(record.stream(index)) for index, cutter in enumerate(self._cutters)])
        self._rounds_steps += num_steps
        self.environment_steps += int(np.count_nonzero(step_type != StepType.FIRST))
        self.episodes += len(episodes)
        return episodes

    def state(self) -> State | None:
        """Returns what `restore` needs, together with the environment's own state; None before the first run."""
        if self._time_step is None:
            return None
        counts = self.environment_steps, self.episodes, self._rounds_steps
        return joined(
            {
                "counts": numbered([np.array(count, np.int64) for count in counts]),
                "time_step": numbered(self._time_step),
                "policy": numbered(tf.nest.flatten(self._policy_state)),
                "reports": self._reports.state(),
                "cutters": _joined(self._cutters),
                "writers": _joined(self._writers),
            }
        )

    def restore(self, state: State) -> None:
        """Goes on where another collector was, before the first run; the environment has been restored already.

        What that one had handed to the replay is not written again: it is in the replay's own checkpoint.
        """
        counts = part(state, "counts").values()
        self.environment_steps, self.episodes, self._rounds_steps = map(int, counts)
        self._time_step = ts.TimeStep(*part(state, "time_step").values())
        policy_state = map(tf.constant, part(state, "policy").values())
        self._policy_state = tf.nest.pack_sequence_as(self._policy_state, list(policy_state))
        self._reports.restore(part(state, "reports"))
        for index, (cutter, writer) in enumerate(zip(self._cutters, self._writers, strict=True)):
            cutter.restore(part(part(state, "cutters"), str(index)))
            writer.restore(part(part(state, "writers"), str(index)))

    def close(self) -> None:
        """Closes the writers; never waits. Windows that are not complete are lost."""
        for writer in self._writers:
            writer.close()

    def _collect(self, num_steps: int) -> _Record:
        if self._time_step is None:
            self._time_step = self._from_environment(0, self._environment.reset)
        record = self._record
        for row in range(num_steps):
            time_step = self._time_step
            action = self._act(ts.TimeStep(*map(tf.constant, time_step)), self._policy_state)
            info = tf.nest.map_structure(lambda tensor: tensor.numpy(), action.info)
            if record is None or len(record.head) != num_steps:
                self._record = record = _Record.allocate(num_steps, time_step, info)
            record.write(row, time_step, info)
            self._policy_state = action.state
            actions = action.action.numpy()
            self._time_step = self._from_environment(row + 1, self._environment.step, actions)
        assert record is not None, "a round has at least one step"
        return record

    def _from_environment(self, row: int, call: Callable, *args: np.ndarray) -> ts.TimeStep:
        """Takes what the environment gives at a step of this round, and checks it against its spec."""
        self.activity = "environment", time.monotonic()
        where = f"{self._name}, environments' step {self._rounds_steps + row}"
        time_step = time_step_of(self._environment, where, call, *args)
        self.activity = "acting", time.monotonic()
        return time_step

    def _insert(self, streams: list[list[Block | Window]]) -> None:
        windows = [piece for pieces in streams for piece in pieces if isinstance(piece, Window)]
        priorities = iter(self._first_priorities(windows))
        for pieces, writer in zip(streams, self._writers, strict=True):
            for piece in pieces:
                if isinstance(piece, Block):
                    writer.append(piece)
                else:
                    writer.insert(next(priorities))
            if any(isinstance(piece, Window) for piece in pieces):
                start = time.monotonic()
                writer.flush()
                self.waited += time.monotonic() - start

    def _first_priorities(self, windows: list[Window]) -> list[float]:
        if not windows:
            return []
        step_type, _, previous_action, reward, discount = zip(
            *(window.steps for window in windows), strict=True
        )
        columns = (step_type, previous_action, reward, discount, *list(zip(*windows, strict=True))[1:])
        return self._priorities(*map(np.stack, columns)).numpy().tolist()


def _joined(parts: Sequence[SequenceCutter | Writer]) -> State:
    return joined({str(index): each.state() for index, each in enumerate(parts)})


class _Record(NamedTuple):
    """A round: K rows of N environments. Reused, so whoever keeps something copies it."""

    steps: Steps  # [K, N, ...]
    core_state: tuple  # (h, c), each float32 [K, N, U]
    taken_values: np.ndarray  # float32 [K, N, H]
    greedy_values: np.ndarray  # float32 [K, N, H]
    head: np.ndarray  # int32 [K, N]
    epsilon: np.ndarray  # float32 [K, N]

    @classmethod
    def allocate(cls, num_steps: int, time_step: ts.TimeStep, info: PolicyInfo) -> _Record:
        return tf.nest.map_structure(
            lambda column: np.empty((num_steps, *column.shape), column.dtype), cls._row(time_step, info)
        )

    def write(self, row: int, time_step: ts.TimeStep, info: PolicyInfo) -> None:
        for column, values in zip(self._columns(), self._row(time_step, info)._columns(), strict=True):
            column[row] = values

    def stream(self, index: int) -> Rows:
        """One environment's rows."""

        def own(columns: Iterable[np.ndarray]) -> tuple[np.ndarray, ...]:
            return tuple(column[:, index] for column in columns)

        return Rows(
            Steps(*own(self.steps)), own(self.core_state), *own((self.taken_values, self.greedy_values))
        )

    def _columns(self) -> list[np.ndarray]:
        return [*self.steps, *self.core_state, *self[2:]]

    @classmethod
    def _row(cls, time_step: ts.TimeStep, info: PolicyInfo) -> _Record:
        steps = Steps(
            time_step.step_type,
            time_step.observation,
            info.previous_action,
            time_step.reward,
            time_step.discount,
        )
        return cls(
            steps, tuple(info.core_state), info.taken_values, info.greedy_values, info.head, info.epsilon
        )


def traced_action(policy: tf_policy.TFPolicy, time_step_spec: ts.TimeStep, batch: int) -> Callable:
    """`policy.action` for so many environments as one graph, of tensors.

    A `tf.function` would study the types of all its arguments anew at every step.
    """
    time_step = tensor_spec.add_outer_dim(tensor_spec.from_spec(time_step_spec), batch)
    action = tf.function(lambda time_step, state: policy.action(time_step, state), autograph=False)
    return action.get_concrete_function(time_step, policy.get_initial_state(batch))


def _traced_once(priorities: Callable, rows: int, num_heads: int) -> Callable:
    """`priorities` as a graph for any number of windows, called with their columns one by one."""

    def scalars(dtype: tf.DType) -> tf.TensorSpec:
        return tf.TensorSpec((None, rows), dtype)

    values = tf.TensorSpec((None, rows, num_heads), tf.float32)
    signature = [
        scalars(tf.int32),
        scalars(tf.int32),
        scalars(tf.float32),
        scalars(tf.float32),
        values,
        values,
    ]

    @tf.function(input_signature=signature, autograph=False)
    def traced(
        step_type: Any, previous_action: Any, reward: Any, discount: Any, taken: Any, greedy: Any
    ) -> tf.Tensor:
        steps = Steps(step_type, None, previous_action, reward, discount)
        return priorities(steps, taken, greedy)

    return traced
