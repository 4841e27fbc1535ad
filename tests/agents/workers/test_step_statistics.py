"""Statistics of scripted episodes: every step and every return is reported once."""

import numpy as np
import pytest

from agents.replay.replay import Episode
from rbs_tf import ReturnMoments, discounted_returns
from tests.agents.replay.streams import drained
from tests.agents.scripted import HEADS, ScriptedEnvironment, merged, reward_of


def scripted_steps(
    index: int, episode: int, length: int, ended: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """What the heads see of the first `length` transitions: rewards and discounts, [length, H] each."""
    rewards = np.array([reward_of(index, episode, t) for t in range(1, length + 1)])
    discounts = np.ones(length)
    if ended:
        discounts[-1] = episode % 2
    return HEADS.rewards(rewards), HEADS.discounts(discounts)


def played(scripts: list[list[int]], rows: int):
    """Environment, episode, transitions and whether it has ended, of all that was begun in so many rows of each."""
    for index, script in enumerate(scripts):
        left, episode = rows, 0
        while left > 0:
            length = script[episode % len(script)]
            yield index, episode, min(length, left - 1), left > length
            left, episode = left - length - 1, episode + 1


SCRIPTS = [[3, 5], [17]]


@pytest.fixture
def reports(start):
    """Of a collector of these scripts, after 36 rows of each environment."""
    collector, replay = start(ScriptedEnvironment(SCRIPTS))
    for _ in range(9):
        collector.run(4)
    return collector, drained(replay)


def test_every_transition_and_every_return_enters_the_statistics_once(reports):
    (collector, reported), kind = reports, ReturnMoments
    expected = kind.empty(len(HEADS))
    for index, episode, length, ended in played(SCRIPTS, 36):
        steps = scripted_steps(index, episode, length, ended)
        expected = kind.merge(expected, kind.from_steps(*steps))
        if ended:
            expected = kind.merge(expected, kind.from_returns(discounted_returns(*steps)))
    found = merged(reported, kind)
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-9)
    assert found.count.tolist() == [collector.environment_steps] * 2


def test_finished_episodes_are_returned_and_reported(reports):
    collector, reported = reports
    episodes = [Episode(*row) for report in reported for row in report["episodes"].tolist()]
    assert [(e.length, e.head, e.epsilon) for e in episodes if e.length < 17] == [
        (3 + 2 * (episode % 2), episode, 0.25) for episode in range(7)
    ]
    assert collector.episodes == len(episodes) == 9
    assert all(e.rewards == e.length for e in episodes), "sin(t) is never 0, and rows are counted over rounds"
    # Seven episodes of one environment, two of the other, of rewards from -1 to 118.
    returns = {
        (index, episode): sum(np.float64(reward_of(index, episode, t)) for t in range(1, length + 1))
        for index, episode, length, ended in played(SCRIPTS, 36)
        if ended
    }
    assert max(returns.values()) > 1000.0
    found = sorted(e.episode_return for e in episodes)
    np.testing.assert_allclose(found, sorted(returns.values()), rtol=1e-12)
