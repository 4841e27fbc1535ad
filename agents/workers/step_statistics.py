"""Statistics of a round of collecting: every step once, returns when an episode has ended."""

from __future__ import annotations

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.replay.replay import Episode, StatisticsReport
from agents.replay.rows import Rows
from agents.storage.state import State, joined, part
from rbs_tf import ReturnMoments, discounted_returns


class Reports:
    """Follows the episodes of N environments.

    Args:
      heads: what each value head sees of rewards and discounts.
      num_envs: N.
      max_report_steps: an episode of more steps reports the returns of its first so many, cut there, and goes
        on as if a new one began.
      moments: the class of what is reported, see `Scaling.moments_class`.
    """

    def __init__(
        self,
        heads: Heads,
        num_envs: int,
        max_report_steps: int,
        moments: type[ReturnMoments] = ReturnMoments,
    ):
        self._heads, self._moments = heads, moments
        self._stretches = [_Stretch(max_report_steps) for _ in range(num_envs)]

    def report(self, rows: Rows) -> tuple[StatisticsReport, list[Episode]]:
        """Returns what the next rows [K, N] add to the statistics, and the episodes that have finished in them."""
        arrived, heads = rows.step_type != StepType.FIRST, self._heads
        episodes, returns = [], []
        for index, stretch in enumerate(self._stretches):
            ends = np.flatnonzero(rows.step_type[:, index] == StepType.LAST)
            for own in np.split(np.arange(len(rows)), ends + 1):
                own = own[arrived[own, index]]
                if not len(own):
                    continue
                last = own[-1]
                ended = rows.step_type[last, index] == StepType.LAST
                due = stretch.extend(rows.reward[own, index], rows.discount[own, index], ended)
                for rewards, discounts in due:
                    returns.append(discounted_returns(heads.rewards(rewards), heads.discounts(discounts)))
                if ended:
                    head, epsilon = rows.head[last, index], rows.epsilon[last, index]
                    episodes.append(Episode(*stretch.finish(), int(head), float(epsilon)))
        steps = heads.rewards(rows.reward[arrived]), heads.discounts(rows.discount[arrived])
        moments = self._moments.from_steps(*steps)
        if returns:
            moments = self._moments.merge(moments, self._moments.from_returns(np.concatenate(returns)))
        of_episodes = np.array(episodes, np.float64).reshape(-1, len(Episode._fields))
        return {"moments": moments.to_array(), "episodes": of_episodes}, episodes

    def state(self) -> State:
        """Returns what `restore` needs in order to go on with the episodes that are not finished."""
        return joined({str(index): stretch.state() for index, stretch in enumerate(self._stretches)})

    def restore(self, state: State) -> None:
        """Goes on where another one of the same settings was."""
        for index, stretch in enumerate(self._stretches):
            stretch.restore(part(state, str(index)))


class _Stretch:
    """Raw rewards and discounts of one environment since the returns before them were reported."""

    def __init__(self, max_steps: int):
        self._max_steps = max_steps
        nothing = np.zeros(0, np.float32)
        self._parts = [(nothing, nothing)]
        self._steps = 0
        self._episode_return, self._episode_length = 0.0, 0

    def extend(
        self, rewards: np.ndarray, discounts: np.ndarray, ended: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Takes the next steps of an episode, perhaps its last; returns stretches whose returns are due."""
        self._parts.append((rewards, discounts))
        self._steps += len(rewards)
        self._episode_return += rewards.sum(dtype=np.float64)
        self._episode_length += len(rewards)
        if not ended and self._steps < self._max_steps:
            return []
        rewards, discounts = self._joined()
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
        rewards, discounts = self._joined()
        return {
            "rewards": rewards,
            "discounts": discounts,
            "episode_return": np.array(self._episode_return),
            "episode_length": np.array(self._episode_length, np.int64),
        }

    def restore(self, state: State) -> None:
        self._parts, self._steps = [(state["rewards"], state["discounts"])], len(state["rewards"])
        self._episode_return, self._episode_length = (
            float(state["episode_return"]),
            int(state["episode_length"]),
        )

    def _joined(self) -> tuple[np.ndarray, np.ndarray]:
        rewards, discounts = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return rewards, discounts
