"""The collector against a real replay: scripted episodes go in, every step of them is accounted for."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories.time_step import StepType

from agents.errors import EnvironmentFault
from agents.replay.backends import LOCAL, REVERB
from agents.replay.replay import ReplayStopped
from tests.agents.replay.streams import drained, whole_table
from tests.agents.scripted import SMALL, ScriptedEnvironment, merged, reward_of

LENGTHS = [1, 2, 3, 4, 5, 9]


@pytest.fixture(params=[LOCAL, REVERB])
def backend(request):
    if request.param == REVERB:
        pytest.importorskip("reverb")
    return request.param


def test_no_transition_is_lost_or_trained_too_often(start):
    scripts = [LENGTHS, LENGTHS[::-1]]
    collector, replay = start(ScriptedEnvironment(scripts), shape=SMALL)
    rows = sum(length + 1 for length in LENGTHS)  # both streams end with an episode
    for taken in range(0, 2 * rows, 7):
        collector.run(min(7, 2 * rows - taken))
    (steps, core_state, *_), _ = whole_table(replay)
    trained = collections.Counter()
    for window, whose in enumerate(steps.observation.astype(int)):
        step_type = steps.step_type[window]
        real = (whose[:, 2] > 0) | (step_type == StepType.FIRST)
        (index, episode, first), t = whose[real][0], whose[real, 2]
        length = scripts[index][episode % len(LENGTHS)]
        assert (whose[real, :2] == (index, episode)).all() and t.tolist() == [*range(first, t[-1] + 1)]
        columns = (
            (steps.reward, [reward_of(index, episode, k) for k in t]),
            (steps.previous_action, np.where(t == 0, -1, (t - 1) % 5)),
            (steps.discount, np.where((t == length) & (episode % 2 == 0), 0.0, 1.0)),
        )
        for column, expected in columns:
            np.testing.assert_array_equal(column[window][real], expected)
        assert (step_type[~real] == StepType.LAST).all() and not steps.reward[window][~real].any()
        # The policy's state counts rows: what is stored is the state that entered the window's first row.
        assert (
            core_state[0][window].tolist() == [first] * 2 and core_state[1][window].tolist() == [-first] * 2
        )
        trains = (np.arange(SMALL.rows) - SMALL.burn_in) // SMALL.length == 0
        for k in whose[trains & (step_type != StepType.LAST), 2]:
            trained[index, episode, k] += 1
    transitions = {
        (index, episode, t)
        for index in range(2)
        for episode in range(2 * len(LENGTHS))
        for t in range(scripts[index][episode % len(LENGTHS)])
    }
    assert set(trained) == transitions
    assert set(trained.values()) == {1, 2}
    assert collector.environment_steps == len(transitions)


def test_statistics_are_there_before_the_sequences_that_they_scale(start):
    collector, replay = start(ScriptedEnvironment([[8]] * 4), shape=SMALL)
    replay.stop()
    with pytest.raises(ReplayStopped):
        collector.run(40)
    assert replay.size == 0
    assert merged(drained(replay)).count.tolist() == [collector_rows(40, 8) * 4] * 2


def collector_rows(rows: int, length: int) -> int:
    """Transitions among the first `rows` rows of episodes of `length` transitions."""
    return rows - -(-rows // (length + 1))


def test_values_that_are_no_numbers_are_refused_as_priorities(start):
    def priorities(steps, taken_values, greedy_values):
        return tf.reduce_sum(taken_values, axis=(1, 2)) * np.nan

    collector, _ = start(ScriptedEnvironment([[8]]), shape=SMALL, priorities=priorities)
    with pytest.raises(FloatingPointError, match="first priority"):
        collector.run(10)


def test_first_priorities_come_from_the_values_seen_while_acting(start):
    traces = []

    def priorities(steps, taken_values, greedy_values):
        traces.append(steps.observation)
        rows = tf.cast(tf.shape(taken_values)[1], tf.float32)
        row = SMALL.burn_in + 1
        return greedy_values[:, row, 0] + 100.0 * steps.reward[:, row] + 1_000.0 * rows

    collector, replay = start(ScriptedEnvironment([[30]] * 2), shape=SMALL, priorities=priorities)
    for _ in range(6):
        collector.run(5)
    sequence, info = whole_table(replay)
    t = sequence.steps.observation[:, SMALL.burn_in + 1, 2]  # the policy's first value is the row's number
    reward = sequence.steps.reward[:, SMALL.burn_in + 1]
    np.testing.assert_allclose(info.priority, (t + 1.0) + 100.0 * reward + 8_000.0, rtol=1e-6)
    assert traces == [None]


class FaultyEnvironment(ScriptedEnvironment):
    """Goes wrong at its step 12."""

    def __init__(self, fault):
        super().__init__([[8]] * 2)
        self._fault = fault

    def _step(self, action):
        time_step = super()._step(action)
        if self._steps == 12:
            raise self._fault
        return time_step


@pytest.mark.parametrize(
    "fault, message",
    [
        (KeyError("left"), "^collector, environments' step 12: KeyError: 'left'$"),
        (EnvironmentFault("Mine-v0: nan"), "^collector, environments' step 12: Mine-v0: nan$"),
    ],
)
def test_what_an_environment_does_wrong_is_named_and_nothing_of_the_round_is_written(start, fault, message):
    collector, replay = start(FaultyEnvironment(fault), shape=SMALL)
    collector.run(9)
    drained(replay)
    size = replay.size
    with pytest.raises(EnvironmentFault, match=message):
        collector.run(9)
    assert (drained(replay), replay.size) == ([], size)
