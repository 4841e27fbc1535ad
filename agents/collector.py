"""Acts in a batch of environments and writes what happens: statistics first, then sequences."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.policies import tf_policy
from tf_agents.trajectories import time_step as ts

from agents.heads import Heads
from agents.replay import Replay, StatisticsReport
from agents.sequences import FIRST, LAST, Block, Rows, SequenceCutter, SequenceShape, Steps, Window
from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.joint_moments import JointMoments
from rbs_tf.returns import n_step_sums


class EnvironmentFault(RuntimeError):
    """An environment did what it must not; the message names it, the step and the collector."""


class Episode(NamedTuple):
    """A finished episode."""

    episode_return: float  # raw: undiscounted, unclipped rewards
    length: int  # transitions
    head: int  # that acted
    epsilon: float  # of its exploration


@gin.configurable(module="agents")
class Collector:
    """Runs a policy in N environments and feeds the replay.

    Of each environment the policy's state is kept between runs; an episode that is unfinished when the
    collector is closed has its complete windows in the replay and its steps in the statistics, but no
    returns and not the n-step transitions of its last n - 1 steps.

    Args:
      environment: batched; reset by the first run, closed by whoever made it.
      policy: gives `PolicyInfo` with every action (see `agents.policy`).
      heads: what each value head sees of rewards and discounts.
      replay: receives sequences and statistics.
      shape: layout of the sequences.
      priorities: `(steps [k, L], taken_values [k, L, H], greedy_values [k, L, H]) -> float32 [k]` for new
        windows; `steps.observation` is None. Traced once.
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
        max_report_steps: int = 27_000,
        name: str = "collector",
    ):
        if max_report_steps < 1:
            raise ValueError(f"Collector.max_report_steps must be at least 1, got {max_report_steps}")
        self.environment_steps = 0
        self.episodes = 0
        self.activity, self.waited = ("acting", time.monotonic()), 0.0
        self._name, self._spec = name, environment.observation_spec()
        self._environment, self._heads, self._replay = environment, heads, replay
        self._act = tf.function(policy.action, autograph=False)
        self._priorities = _traced_once(priorities, shape.rows, len(heads))
        self._policy_state = policy.get_initial_state(environment.batch_size)
        self._time_step: ts.TimeStep | None = None
        self._record: _Record | None = None
        self._rounds_steps = 0  # of each environment, in rounds before this one
        self._cutters = [SequenceCutter(shape) for _ in range(environment.batch_size)]
        self._stretches = [_Stretch(max_report_steps) for _ in range(environment.batch_size)]
        self._n_step = _NStepTransitions(shape.n_step, environment.batch_size)
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
          ReplayStopped, TimeoutError: see `SequenceWriter.flush`.
        """
        record = self._collect(num_steps)
        self._check_finite("reward", record.steps.reward)
        if np.issubdtype(self._spec.dtype, np.floating):
            self._check_finite("observation", record.steps.observation)
        self.activity = "writing", time.monotonic()
        episodes = self._report(record)
        self._insert([cutter.cut(record.stream(index)) for index, cutter in enumerate(self._cutters)])
        self._rounds_steps += num_steps
        self.environment_steps += np.count_nonzero(record.steps.step_type != FIRST)
        self.episodes += len(episodes)
        return episodes

    def close(self) -> None:
        """Closes the writers; never waits. Windows that are not complete are lost."""
        for writer in self._writers:
            writer.close()

    def _collect(self, num_steps: int) -> _Record:
        if self._time_step is None:
            self._time_step = self._from_environment(0, self._environment.reset)
        for row in range(num_steps):
            time_step = self._time_step
            action = self._act(tf.nest.map_structure(tf.convert_to_tensor, time_step), self._policy_state)
            info = tf.nest.map_structure(lambda tensor: tensor.numpy(), action.info)
            if self._record is None or len(self._record.head) != num_steps:
                self._record = _Record.allocate(num_steps, time_step, info)
            self._record.write(row, time_step, info)
            self._policy_state = action.state
            actions = action.action.numpy()
            self._time_step = self._from_environment(row + 1, self._environment.step, actions)
        return self._record

    def _from_environment(self, row: int, call: Callable, *args: np.ndarray) -> ts.TimeStep:
        """What the environment gives at a step of this round, checked against its spec."""
        self.activity = "environment", time.monotonic()
        where = f"{self._name}, environments' step {self._rounds_steps + row}"
        try:
            time_step = call(*args)
        except Exception as error:
            raise EnvironmentFault(f"{where}: {type(error).__name__}: {error}") from error
        observation = np.asarray(time_step.observation)
        expected = (self._environment.batch_size, *self._spec.shape)
        if observation.shape != expected or observation.dtype != self._spec.dtype:
            raise EnvironmentFault(
                f"{where}: observations are {observation.dtype} {observation.shape}, and the environment's spec says "
                f"{np.dtype(self._spec.dtype)} {expected}"
            )
        self.activity = "acting", time.monotonic()
        return time_step

    def _check_finite(self, what: str, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            row, index, *rest = np.argwhere(~np.isfinite(values))[0]
            raise EnvironmentFault(
                f"{self._name}, environment {index}: {what} {values[(row, index, *rest)]} at its step "
                f"{self._rounds_steps + row}; it must be finite. Repair the environment, or clip there what it gives"
            )

    def _report(self, record: _Record) -> list[Episode]:
        """Puts the statistics of the round into the queue."""
        step_type, _, _, reward, discount = record.steps
        arrived = step_type != FIRST
        heads, episodes, returns = self._heads, [], []
        for index, stretch in enumerate(self._stretches):
            ends = np.flatnonzero(step_type[:, index] == LAST)
            for rows in np.split(np.arange(len(step_type)), ends + 1):
                rows = rows[arrived[rows, index]]
                if not len(rows):
                    continue
                ended = step_type[rows[-1], index] == LAST
                for rewards, discounts in stretch.extend(reward[rows, index], discount[rows, index], ended):
                    returns.append(discounted_returns(heads.rewards(rewards), heads.discounts(discounts)))
                if ended:
                    head, epsilon = record.head[rows[-1], index], record.epsilon[rows[-1], index]
                    episodes.append(Episode(*stretch.finish(), int(head), float(epsilon)))
        steps = heads.rewards(reward[arrived]), heads.discounts(discount[arrived])
        moments, joint = (kind.from_steps(*steps) for kind in (ReturnMoments, JointMoments))
        if returns:
            known = np.concatenate(returns)
            moments, joint = (each.merge(each, each.from_returns(known)) for each in (moments, joint))
        n_step = ReturnMoments.from_steps(*self._n_step.extend(reward, discount, step_type, heads))
        rows = [(e.head, e.epsilon, e.episode_return, e.length) for e in episodes]
        self._replay.put_statistics(
            StatisticsReport(
                moments=moments.to_array(),
                n_step=n_step.to_array(),
                joint=joint.to_array(),
                episodes=np.array(rows).reshape(-1, 4),
            )
        )
        return episodes

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


class _Record(NamedTuple):
    """A round: K rows of N environments. Reused, so whoever keeps something copies it."""

    steps: Steps  # [K, N, ...]
    core_state: tuple  # (h, c), each float32 [K, N, U]
    taken_values: np.ndarray  # float32 [K, N, H]
    greedy_values: np.ndarray  # float32 [K, N, H]
    head: np.ndarray  # int32 [K, N]
    epsilon: np.ndarray  # float32 [K, N]

    @classmethod
    def allocate(cls, num_steps: int, time_step: ts.TimeStep, info) -> _Record:
        return tf.nest.map_structure(
            lambda column: np.empty((num_steps, *column.shape), column.dtype), cls._row(time_step, info)
        )

    def write(self, row: int, time_step: ts.TimeStep, info) -> None:
        for column, values in zip(self._columns(), self._row(time_step, info)._columns(), strict=True):
            column[row] = values

    def stream(self, index: int) -> Rows:
        """One environment's rows."""

        def own(columns):
            return tuple(column[:, index] for column in columns)

        return Rows(
            Steps(*own(self.steps)), own(self.core_state), *own((self.taken_values, self.greedy_values))
        )

    def _columns(self) -> list[np.ndarray]:
        return [*self.steps, *self.core_state, *self[2:]]

    @classmethod
    def _row(cls, time_step: ts.TimeStep, info) -> _Record:
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


class _Stretch:
    """Raw rewards and discounts of one environment since the returns before them were reported."""

    def __init__(self, max_steps: int):
        self._max_steps = max_steps
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._steps = 0
        self._episode_return, self._episode_length = 0.0, 0

    def extend(
        self, rewards: np.ndarray, discounts: np.ndarray, ended: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Takes the next steps of an episode, perhaps its last; returns stretches whose returns are due."""
        self._parts.append((rewards.copy(), discounts.copy()))
        self._steps += len(rewards)
        self._episode_return += rewards.sum(dtype=np.float64)
        self._episode_length += len(rewards)
        if not ended and self._steps < self._max_steps:
            return []
        rewards, discounts = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        whole = self._steps if ended else self._steps - self._steps % self._max_steps
        self._parts, self._steps = [(rewards[whole:], discounts[whole:])], self._steps - whole
        cuts = range(self._max_steps, whole, self._max_steps)
        return list(zip(np.split(rewards[:whole], cuts), np.split(discounts[:whole], cuts), strict=True))

    def finish(self) -> tuple[float, int]:
        """Raw return and length of the episode that has just ended; the next one begins."""
        finished = float(self._episode_return), self._episode_length
        self._episode_return, self._episode_length = 0.0, 0
        return finished


class _NStepTransitions:
    """The n-step transitions of N environments, each handed out as soon as its last step has happened."""

    def __init__(self, n: int, num_envs: int):
        self._n = n
        # The last n - 1 rows, and which of their transitions still wait for steps to come.
        self._rewards, self._discounts = np.zeros((2, n - 1, num_envs), np.float32)
        self._waiting = np.zeros((n - 1, num_envs), bool)

    def extend(
        self, rewards: np.ndarray, discounts: np.ndarray, step_type: np.ndarray, heads: Heads
    ) -> tuple[np.ndarray, np.ndarray]:
        """Takes the next rows, [K, N] each; returns rewards and discounts, float64 [M, H], of what is complete."""
        rewards = np.concatenate([self._rewards, rewards])
        discounts = np.concatenate([self._discounts, discounts])
        # What waits is behind the last end of its environment: earlier rows need not tell theirs.
        ends = np.concatenate([np.zeros_like(self._waiting), step_type == LAST])
        waiting = np.concatenate([self._waiting, step_type != FIRST])
        complete = waiting & np.logical_or.accumulate(ends[::-1])[::-1]
        kept = len(step_type)
        complete[:kept] = waiting[:kept]

        ends[-1] = True  # One environment after the other makes a single column.
        columns = (heads.rewards(rewards.T.ravel()), heads.discounts(discounts.T.ravel()))
        sums = n_step_sums(*columns, self._n, ends=ends.T.ravel())
        self._rewards, self._discounts = rewards[kept:], discounts[kept:]
        self._waiting = (waiting & ~complete)[kept:]
        shape = (*rewards.T.shape, len(heads))
        return tuple(values.reshape(shape).swapaxes(0, 1)[complete] for values in sums)


def _traced_once(priorities: Callable, rows: int, num_heads: int) -> Callable:
    """`priorities` as a graph for any number of windows, called with their columns one by one."""

    def scalars(dtype):
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
    def traced(step_type, previous_action, reward, discount, taken_values, greedy_values):
        steps = Steps(step_type, None, previous_action, reward, discount)
        return priorities(steps, taken_values, greedy_values)

    return traced
