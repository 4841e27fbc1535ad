"""Statistics of a round of collecting: every step once, returns and n-step transitions when complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.replay.replay import Episode, StatisticsReport
from agents.storage.state import State, joined, numbered, part
from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.returns import n_step_sums


class Acted(NamedTuple):
    """K rows of N environments, as far as statistics go."""

    step_type: np.ndarray  # int32 [K, N]
    reward: np.ndarray  # float32 [K, N], raw
    discount: np.ndarray  # float32 [K, N]
    head: np.ndarray  # int32 [K, N]
    epsilon: np.ndarray  # float32 [K, N]


class Reports:
    """Follows the episodes of N environments.

    Args:
      heads: what each value head sees of rewards and discounts.
      num_envs: N.
      n_step: of the n-step transitions.
      max_report_steps: an episode of more steps reports the returns of its first so many, cut there, and goes
        on as if a new one began. n-step transitions are not cut.
      needs: what to report beside moments per head, see `Scaling.needs`.
    """

    def __init__(
        self, heads: Heads, num_envs: int, n_step: int, max_report_steps: int, needs: Mapping[str, Any]
    ):
        self._heads = heads
        self._stretches = [_Stretch(max_report_steps) for _ in range(num_envs)]
        self._of_steps = {"moments": ReturnMoments, **needs}
        self._n_step = _NStepTransitions(n_step, num_envs) if self._of_steps.pop("n_step", None) else None

    def report(self, rows: Acted) -> tuple[StatisticsReport, list[Episode]]:
        """Returns what the next rows add to the statistics, and the episodes that have finished in them."""
        step_type, reward, discount, *_ = rows
        arrived = step_type != StepType.FIRST
        heads, episodes, returns = self._heads, [], []
        for index, stretch in enumerate(self._stretches):
            ends = np.flatnonzero(step_type[:, index] == StepType.LAST)
            for own in np.split(np.arange(len(step_type)), ends + 1):
                own = own[arrived[own, index]]
                if not len(own):
                    continue
                ended = step_type[own[-1], index] == StepType.LAST
                for rewards, discounts in stretch.extend(reward[own, index], discount[own, index], ended):
                    returns.append(discounted_returns(heads.rewards(rewards), heads.discounts(discounts)))
                if ended:
                    head, epsilon = rows.head[own[-1], index], rows.epsilon[own[-1], index]
                    episodes.append(Episode(*stretch.finish(), int(head), float(epsilon)))
        steps = heads.rewards(reward[arrived]), heads.discounts(discount[arrived])
        report = {"episodes": np.array(episodes, np.float64).reshape(-1, len(Episode._fields))}
        for name, kind in self._of_steps.items():
            moments = kind.from_steps(*steps)
            if returns:
                moments = kind.merge(moments, kind.from_returns(np.concatenate(returns)))
            report[name] = moments.to_array()
        if self._n_step is not None:
            transitions = self._n_step.extend(reward, discount, step_type, heads)
            report["n_step"] = ReturnMoments.from_steps(*transitions).to_array()
        return report, episodes

    def state(self) -> State:
        """Returns what `restore` needs in order to go on with the episodes that are not finished."""
        stretches = joined({str(index): stretch.state() for index, stretch in enumerate(self._stretches)})
        n_step = {} if self._n_step is None else {"n_step": self._n_step.state()}
        return joined({"stretches": stretches, **n_step})

    def restore(self, state: State) -> None:
        """Goes on where another one of the same settings was."""
        stretches = part(state, "stretches")
        for index, stretch in enumerate(self._stretches):
            stretch.restore(part(stretches, str(index)))
        if self._n_step is not None:
            self._n_step.restore(part(state, "n_step"))


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

    def state(self) -> State:
        nothing = np.zeros(0, np.float32)
        steps = map(np.concatenate, zip((nothing, nothing), *self._parts, strict=True))
        return numbered([*steps, np.array(self._episode_return), np.array(self._episode_length, np.int64)])

    def restore(self, state: State) -> None:
        rewards, discounts, episode_return, episode_length = state.values()
        self._parts, self._steps = [(rewards, discounts)], len(rewards)
        self._episode_return, self._episode_length = float(episode_return), int(episode_length)


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
        ends = np.concatenate([np.zeros_like(self._waiting), step_type == StepType.LAST])
        waiting = np.concatenate([self._waiting, step_type != StepType.FIRST])
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

    def state(self) -> State:
        return numbered([self._rewards, self._discounts, self._waiting])

    def restore(self, state: State) -> None:
        self._rewards, self._discounts, self._waiting = state.values()
