"""Statistics of a round of collecting: every step once, returns when an episode has ended."""

from __future__ import annotations

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.replay.replay import Episode, StatisticsReport
from agents.replay.rows import Rows
from rbs_tf.episode_statistics import EpisodeStatistics

# Of an open episode: its raw return, its steps, and those with a reward.
_SO_FAR = ("episode_return", "episode_length", "episode_rewards")


class Reports:
    """Follows the episodes of N environments.

    Args:
      heads: what each value head sees of rewards and discounts.
      num_envs: N.
    """

    def __init__(self, heads: Heads, num_envs: int):
        self._statistics = EpisodeStatistics(num_envs, heads)
        self._so_far = np.zeros((num_envs, len(_SO_FAR)))

    def report(self, rows: Rows) -> StatisticsReport:
        """Takes in the next rows [K, N]; returns what they add to the statistics and the episodes that they end."""
        arrived = rows.step_type != StepType.FIRST
        ended = rows.step_type == StepType.LAST
        for reward, discount, counts, over in zip(rows.reward, rows.discount, arrived, ended, strict=True):
            self._statistics.step(reward, discount, counts, over)
        episodes = []
        for index, so_far in enumerate(self._so_far):
            for own in np.split(np.arange(len(arrived)), np.flatnonzero(ended[:, index]) + 1):
                own = own[arrived[own, index]]
                rewards = rows.reward[own, index]
                so_far += rewards.sum(dtype=np.float64), len(own), np.count_nonzero(rewards)
                if ended[own, index].any():
                    head = int(rows.head[own[-1], index])
                    epsilon = float(rows.epsilon[own[-1], index])
                    episodes.append(Episode(float(so_far[0]), int(so_far[1]), head, epsilon, int(so_far[2])))
                    so_far[:] = 0.0
        of_episodes = np.array(episodes, np.float64).reshape(-1, len(Episode._fields))
        return {"moments": self._statistics.take().to_array(), "episodes": of_episodes}
