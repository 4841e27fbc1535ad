"""Statistics of scripted episodes: every step, return and n-step transition is reported once."""

import numpy as np
import pytest
import tensorflow as tf

from agents.targets import SequenceShape, n_step_targets
from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.scalings import MomentsWithMaxima
from tests.agents.queue import drained
from tests.agents.scripted import HEADS, ScriptedEnvironment, collecting, merged, reward_of


@pytest.fixture
def start():
    with collecting() as start:
        yield start


def scripted_steps(
    index: int, episode: int, length: int, ended: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """What the heads see of the first `length` transitions: rewards and discounts, [length, H] each."""
    rewards = np.array([reward_of(index, episode, t) for t in range(1, length + 1)])
    discounts = np.ones(length)
    if ended:
        discounts[-1] = episode % 2
    return HEADS.rewards(rewards), HEADS.discounts(discounts)


def scripted_episode(index: int, episode: int, length: int) -> ReturnMoments:
    return ReturnMoments.from_episode(*scripted_steps(index, episode, length))


def played(scripts: list[list[int]], rows: int):
    """Environment, episode, transitions and whether it has ended, of all that was begun in so many rows of each."""
    for index, script in enumerate(scripts):
        left, episode = rows, 0
        while left > 0:
            length = script[episode % len(script)]
            yield index, episode, min(length, left - 1), left > length
            left, episode = left - length - 1, episode + 1


def test_every_transition_and_every_return_enters_the_statistics_once(start):
    scripts = [[3, 5], [17]]
    collector, replay = start(ScriptedEnvironment(scripts))
    for _ in range(9):
        collector.run(4)
    # In 36 rows the first environment plays 7 episodes of 4 or 6 rows and begins one, the second 2 of 18.
    finished = [scripted_episode(0, episode, scripts[0][episode % 2]) for episode in range(7)]
    finished += [scripted_episode(1, episode, 17) for episode in range(2)]
    begun = np.array([reward_of(0, 7, t) for t in range(1, 2)])
    expected = ReturnMoments.from_steps(HEADS.rewards(begun), HEADS.discounts(np.ones(1)))
    for episode in finished:
        expected = ReturnMoments.merge(expected, episode)
    found = merged(drained(replay))
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-12)
    assert found.count.tolist() == [collector.environment_steps] * 2


N_STEP = {"n_step": ReturnMoments}
N_STEP_SCRIPTS = [[3, 5, 1], [17, 2], [40], [1_000_000]]


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_every_n_step_transition_enters_the_statistics_once_and_as_a_target_takes_it(start, n):
    """Rounds shorter and longer than n; terminal ends and time-outs; episodes shorter than n; a limit on returns."""
    shape = SequenceShape(burn_in=2, length=4, period=2, n_step=n)
    collector, replay = start(
        ScriptedEnvironment(N_STEP_SCRIPTS), shape=shape, max_report_steps=7, needs=N_STEP
    )
    rounds = [1, 2, 30, 1, 1, 7, 3, 20]
    for rows in rounds:
        collector.run(rows)
    transitions, waiting = [], 0
    for index, episode, length, ended in played(N_STEP_SCRIPTS, sum(rounds)):
        rewards, discounts = (tf.constant(x[:, None]) for x in scripted_steps(index, episode, length, ended))
        valid, nothing = tf.ones((length, 1), tf.bool), tf.zeros((length + 1, 1, len(HEADS)), tf.float64)
        sums = n_step_targets(nothing, rewards, discounts, valid, n)
        products = n_step_targets(nothing + 1.0, rewards, discounts, valid, n) - sums
        complete = length if ended else max(length - n + 1, 0)
        waiting += length - complete
        transitions.append(np.stack([sums, products])[:, :complete, 0])
    expected = ReturnMoments.from_steps(*np.concatenate(transitions, axis=1))
    found = merged(drained(replay), "n_step")
    assert waiting > n - 2
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-9, atol=1e-9)
    assert found.count.tolist() == [collector.environment_steps - waiting] * 2


def test_an_n_step_transition_is_reported_as_soon_as_its_last_step_has_happened(start):
    shape = SequenceShape(burn_in=2, length=4, period=2, n_step=4)
    collector, replay = start(ScriptedEnvironment([[10], [1_000_000]]), shape=shape, needs=N_STEP)
    counts = []
    for _ in range(7):
        collector.run(2)
        counts.append(merged(drained(replay), "n_step").count[0])
    # After 1, 3, 5, 7, 9 and, with one new episode, 10 + 0 and 10 + 2 transitions; the other environment goes on.
    reported = np.array([[0, 0, 2, 4, 6, 10, 10], [0, 0, 2, 4, 6, 8, 10]])
    np.testing.assert_array_equal(np.cumsum(counts), reported.sum(axis=0))


def test_n_step_transitions_of_one_step_are_the_steps_bit_for_bit(start):
    collector, replay = start(
        ScriptedEnvironment([[3, 5], [17]]), shape=SequenceShape(n_step=1), needs=N_STEP
    )
    for _ in range(9):
        collector.run(4)
    for report in drained(replay):
        np.testing.assert_array_equal(report["n_step"][:5], report["moments"][:5])
        np.testing.assert_array_equal(report["n_step"][5:], 0.0)


def test_steps_and_returns_are_reported_by_size_too(start):
    name, kind = "moments", MomentsWithMaxima
    scripts = [[3, 5], [17]]
    collector, replay = start(ScriptedEnvironment(scripts), needs={name: kind})
    for _ in range(9):
        collector.run(4)
    expected = kind.empty(len(HEADS))
    for index, episode, length, ended in played(scripts, 36):
        steps = scripted_steps(index, episode, length, ended)
        expected = kind.merge(expected, kind.from_steps(*steps))
        if ended:
            expected = kind.merge(expected, kind.from_returns(discounted_returns(*steps)))
    found = merged(drained(replay), name, kind)
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-9)
    assert found.count.tolist() == [collector.environment_steps] * 2


def test_finished_episodes_are_returned_and_reported(start):
    collector, replay = start(ScriptedEnvironment([[3, 5], [17]]))
    episodes = [episode for _ in range(9) for episode in collector.run(4)]
    assert [(e.length, e.head, e.epsilon) for e in episodes if e.length < 17] == [
        (3 + 2 * (episode % 2), episode, 0.25) for episode in range(7)
    ]
    assert collector.episodes == len(episodes) == 9
    # Seven episodes of one environment, two of the other, of rewards from -1 to 118.
    returns = {
        (index, episode): sum(np.float64(reward_of(index, episode, t)) for t in range(1, length + 1))
        for index, episode, length, ended in played([[3, 5], [17]], 36)
        if ended
    }
    assert max(returns.values()) > 1000.0
    found = sorted(e.episode_return for e in episodes)
    np.testing.assert_allclose(found, sorted(returns.values()), rtol=1e-12)
    reported = np.concatenate([report["episodes"] for report in drained(replay)])
    np.testing.assert_array_equal(reported, episodes)


def test_only_what_the_scaling_needs_is_collected_and_shipped(start):
    for needs in ({}, N_STEP, {"moments": MomentsWithMaxima}):
        collector, replay = start(ScriptedEnvironment([[3, 5], [17]]), needs=needs)
        collector.run(10)
        for report in drained(replay):
            assert set(report) == {"moments", "episodes", *needs}


@pytest.mark.parametrize(("round_size", "rounds"), [(5, 12), (60, 1)])
def test_an_environment_that_never_ends_reports_returns_cut_at_the_limit(start, round_size, rounds):
    collector, replay = start(ScriptedEnvironment([[1_000_000]]), max_report_steps=20)
    for _ in range(rounds):
        collector.run(round_size)
    found = merged(drained(replay))
    assert (found.count.tolist(), found.return_count.tolist()) == ([59, 59], [40, 40])
    rewards = np.array([reward_of(0, 0, t) for t in range(1, 60)])
    stretches = [
        ReturnMoments.from_episode(HEADS.rewards(part), HEADS.discounts(np.ones(20)))
        for part in (rewards[:20], rewards[20:40])
    ]
    expected = ReturnMoments.merge(*stretches)
    np.testing.assert_allclose(found.return_mean, expected.return_mean, rtol=1e-12)
    np.testing.assert_allclose(found.return_mean_square, expected.return_mean_square, rtol=1e-12)
