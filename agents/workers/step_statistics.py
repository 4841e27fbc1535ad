"""Statistics of a round of collecting: every step once, returns when an episode has ended."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.replay.replay import Episode, StatisticsReport
from agents.replay.rows import Rows
from agents.storage.state import State, joined_in_order, part
from rbs_tf import ReturnMoments, discounted_returns

_NOTHING = np.zeros(0, np.float32)


class _Unfinished(NamedTuple):
    """An environment's episode: raw return, length and rewards so far, and its steps since returns were reported."""

    rewards: np.ndarray = _NOTHING
    discounts: np.ndarray = _NOTHING
    episode_return: float = 0.0
    episode_length: int = 0
    episode_rewards: int = 0


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
        self, heads: Heads, num_envs: int, max_report_steps: int, moments: type[ReturnMoments] = ReturnMoments
    ):
        self._heads, self._moments, self._max_steps = heads, moments, max_report_steps
        self._unfinished = [_Unfinished() for _ in range(num_envs)]

    def report(self, rows: Rows) -> tuple[StatisticsReport, list[Episode]]:
        """Returns what the next rows [K, N] add to the statistics, and the episodes that have finished in them."""
        rows, heads = rows.without_stored(), self._heads
        arrived = rows.step_type != StepType.FIRST
        episodes: list[Episode] = []
        returns: list[np.ndarray] = []
        for index in range(len(self._unfinished)):
            ends = np.flatnonzero(rows.step_type[:, index] == StepType.LAST)
            for own in np.split(np.arange(len(rows)), ends + 1):
                own = own[arrived[own, index]]
                if len(own):
                    self._extend(index, rows[own, index], episodes, returns)
        steps = heads.rewards(rows.reward[arrived]), heads.discounts(rows.discount[arrived])
        moments = self._moments.from_steps(*steps)
        if returns:
            moments = self._moments.merge(moments, self._moments.from_returns(np.concatenate(returns)))
        of_episodes = np.array(episodes, np.float64).reshape(-1, len(Episode._fields))
        return {"moments": moments.to_array(), "episodes": of_episodes}, episodes

    def state(self) -> State:
        """Returns what `restore` needs in order to go on with the episodes that are not finished."""
        return joined_in_order(
            {name: np.array(value) for name, value in episode._asdict().items()}
            for episode in self._unfinished
        )

    def restore(self, state: State) -> None:
        """Goes on where another one of the same settings was."""
        for index in range(len(self._unfinished)):
            rewards, discounts, episode_return, *counts = part(state, str(index)).values()
            self._unfinished[index] = _Unfinished(
                rewards, discounts, float(episode_return), *map(int, counts)
            )

    def _extend(self, index: int, rows: Rows, episodes: list[Episode], returns: list[np.ndarray]) -> None:
        """Takes the next steps of an environment's episode, perhaps its last; appends what is due."""
        episode, heads = self._unfinished[index], self._heads
        rewards = np.concatenate([episode.rewards, rows.reward])
        discounts = np.concatenate([episode.discounts, rows.discount])
        episode_return = episode.episode_return + rows.reward.sum(dtype=np.float64)
        paid = episode.episode_rewards + np.count_nonzero(rows.reward)
        length, ended = episode.episode_length + len(rows), rows.step_type[-1] == StepType.LAST
        whole = len(rewards) if ended else len(rewards) - len(rewards) % self._max_steps
        for start in range(0, whole, self._max_steps):
            cut = slice(start, min(start + self._max_steps, whole))
            returns.append(discounted_returns(heads.rewards(rewards[cut]), heads.discounts(discounts[cut])))
        if ended:
            acted = int(rows.head[-1]), float(rows.epsilon[-1])
            episodes.append(Episode(float(episode_return), length, *acted, paid))
            self._unfinished[index] = _Unfinished()
        else:
            self._unfinished[index] = _Unfinished(
                rewards[whole:], discounts[whole:], episode_return, length, paid
            )
