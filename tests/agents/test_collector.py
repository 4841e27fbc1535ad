"""The collector against a real replay: scripted episodes go in, every step of them is accounted for."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec, tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from agents.collector import Collector, EnvironmentFault
from agents.heads import Heads
from agents.policy import MultiHeadPolicy, PolicyInfo
from agents.replay import Replay
from agents.sequences import FIRST, LAST, SequenceShape
from agents.targets import n_step_targets
from networks.recurrent_q_network import RecurrentQNetwork
from networks.torsos import MlpTorso
from rbs_tf import ReturnMoments, discounted_returns
from rbs_tf.joint_moments import JointMoments
from tests.agents.queue import drained

PAPER = SequenceShape()
SMALL = SequenceShape(burn_in=2, length=4, period=2, n_step=2)
HEADS = Heads(((0.9, True), (1.0, False)))
STATE = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((2,), tf.float32))
LENGTHS = [1, 2, 39, 40, 41, 79, 80, 81, 200]


def reward_of(index: int, episode: int, t: int) -> np.float32:
    """Reward that arrives with row t."""
    return np.float32(0 if t == 0 else 100 * index + 10 * episode + np.sin(t))


class ScriptedEnvironment(py_environment.PyEnvironment):
    """Environment i plays episodes of the lengths scripts[i] over and over; odd ones end by a time-out.

    Observations are (environment, episode, row), float32, in a buffer that every step overwrites.
    """

    def __init__(self, scripts: list[list[int]], bad_reward: tuple[int, int, float] | None = None):
        super().__init__()
        self._scripts, self._bad_reward = scripts, bad_reward
        self._episode, self._t = [0] * len(scripts), [0] * len(scripts)
        self._observation = np.zeros((len(scripts), 3), np.float32)
        self._steps = 0

    batched = True
    batch_size = property(lambda self: len(self._scripts))

    def observation_spec(self):
        return array_spec.ArraySpec((3,), np.float32)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int32, 0, 4)

    def length(self, index: int) -> int:
        script = self._scripts[index]
        return script[self._episode[index] % len(script)]

    def _reset(self):
        return self._time_step()

    def _step(self, action):
        self._steps += 1
        for index in range(self.batch_size):
            if self._t[index] == self.length(index):
                self._episode[index], self._t[index] = self._episode[index] + 1, 0
            else:
                self._t[index] += 1
        return self._time_step()

    def _time_step(self):
        step_type, reward, discount = [], [], []
        for index, (episode, t) in enumerate(zip(self._episode, self._t, strict=True)):
            last = t == self.length(index)
            step_type.append(FIRST if t == 0 else LAST if last else 1)
            reward.append(reward_of(index, episode, t))
            discount.append(0.0 if last and episode % 2 == 0 else 1.0)
            self._observation[index] = index, episode, t
        if self._bad_reward is not None and self._steps == self._bad_reward[0]:
            reward[self._bad_reward[1]] = self._bad_reward[2]
        return ts.TimeStep(
            np.array(step_type, np.int32),
            np.array(reward, np.float32),
            np.array(discount, np.float32),
            self._observation,
        )


class ScriptedPolicy:
    """Takes action t mod 5 in row t; its state counts the rows since the episode's start."""

    def __init__(self, values: float = 1.0):
        self._values = values

    def get_initial_state(self, batch_size):
        return tf.fill((batch_size, 2), -7.0), tf.fill((batch_size,), -7)

    def action(self, time_step, policy_state):
        rows, previous_action = policy_state
        first = time_step.is_first()
        rows = tf.where(first[:, None], 0.0, rows)
        t = tf.cast(time_step.observation[:, 2], tf.int32)
        values = self._values * tf.stack([rows[:, 0], -rows[:, 0]], axis=1)
        info = PolicyInfo(
            core_state=(rows, -rows),
            previous_action=tf.where(first, -1, previous_action),
            head=tf.cast(time_step.observation[:, 1], tf.int32),
            epsilon=tf.fill(tf.shape(t), 0.25),
            taken_values=values,
            greedy_values=values + 1.0,
        )
        return policy_step.PolicyStep(t % 5, (rows + 1.0, t % 5), info)


def constant_priorities(steps, taken_values, greedy_values):
    return tf.ones_like(steps.reward[:, 0])


@pytest.fixture
def start():
    """Makes a collector and its replay, and closes both."""
    made = []

    def start(
        environment, policy=None, shape=PAPER, priorities=constant_priorities, heads=HEADS, state=STATE,
        max_report_steps=27_000, **settings,
    ):  # fmt: skip
        defaults = {"capacity": 100_000, "min_sequences": 1, "sampler": "fifo", "patience": 0.5}
        observation = tensor_spec.from_spec(environment.observation_spec())
        replay = Replay(shape, observation, state, len(heads), **(defaults | settings))
        made.append(replay.stop)
        policy = policy or ScriptedPolicy()
        collector = Collector(environment, policy, heads, replay, shape, priorities, max_report_steps)
        made.append(collector.close)
        return collector, replay

    yield start
    for end in reversed(made):
        end()


def stored(replay: Replay):
    """Everything in the table, in order of insertion, as one batch of numpy arrays."""
    batch = next(iter(replay.dataset(batch_size=replay.size)))
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), batch)


def merged(reports, name="moments", kind=ReturnMoments):
    return functools.reduce(kind.merge, (kind.from_array(getattr(report, name)) for report in reports))


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


@pytest.mark.parametrize("round_size", [7, 60])
def test_no_transition_is_lost_or_trained_too_often(start, round_size):
    scripts = [LENGTHS, LENGTHS[::-1]]
    collector, replay = start(ScriptedEnvironment(scripts))
    rows = sum(length + 1 for length in LENGTHS)  # both streams end with an episode
    for taken in range(0, 2 * rows, round_size):
        collector.run(min(round_size, 2 * rows - taken))
    sequence, _ = stored(replay)
    steps = sequence.steps
    trained = collections.Counter()
    for window in range(len(steps.reward)):
        real = steps.observation[window, :, 2] > 0
        real |= steps.step_type[window] == FIRST
        index, episode = steps.observation[window][real][0, :2].astype(int)
        length = scripts[index][episode % len(LENGTHS)]
        assert (steps.observation[window][real][:, :2] == (index, episode)).all()
        t = steps.observation[window][real][:, 2].astype(int)
        np.testing.assert_array_equal(t, np.arange(t[0], t[-1] + 1))
        np.testing.assert_array_equal(steps.reward[window][real], [reward_of(index, episode, k) for k in t])
        np.testing.assert_array_equal(steps.previous_action[window][real], np.where(t == 0, -1, (t - 1) % 5))
        np.testing.assert_array_equal(
            steps.discount[window][real], np.where((t == length) & (episode % 2 == 0), 0.0, 1.0)
        )
        assert (steps.step_type[window][~real] == LAST).all() and not steps.reward[window][~real].any()
        # The policy's state counts rows: what is stored is the state that entered the window's first row.
        np.testing.assert_array_equal(sequence.core_state[0][window], [t[0], t[0]])
        np.testing.assert_array_equal(sequence.core_state[1][window], [-t[0], -t[0]])
        training = slice(PAPER.burn_in, PAPER.burn_in + PAPER.length)
        for k in steps.observation[window, training, 2][steps.step_type[window, training] != LAST]:
            trained[index, episode, int(k)] += 1
    transitions = {
        (index, episode, t)
        for index in range(2)
        for episode in range(2 * len(LENGTHS))
        for t in range(scripts[index][episode % len(LENGTHS)])
    }
    assert set(trained) == transitions
    assert set(trained.values()) == {1, 2}
    assert collector.environment_steps == len(transitions)


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


N_STEP_SCRIPTS = [[3, 5, 1], [17, 2], [40], [1_000_000]]


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_every_n_step_transition_enters_the_statistics_once_and_as_a_target_takes_it(start, n):
    """Rounds shorter and longer than n; terminal ends and time-outs; episodes shorter than n; a limit on returns."""
    shape = SequenceShape(burn_in=2, length=4, period=2, n_step=n)
    collector, replay = start(ScriptedEnvironment(N_STEP_SCRIPTS), shape=shape, max_report_steps=7)
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
    collector, replay = start(ScriptedEnvironment([[10], [1_000_000]]), shape=shape)
    counts = []
    for _ in range(7):
        collector.run(2)
        counts.append(merged(drained(replay), "n_step").count[0])
    # After 1, 3, 5, 7, 9 and, with one new episode, 10 + 0 and 10 + 2 transitions; the other environment goes on.
    reported = np.array([[0, 0, 2, 4, 6, 10, 10], [0, 0, 2, 4, 6, 8, 10]])
    np.testing.assert_array_equal(np.cumsum(counts), reported.sum(axis=0))


def test_n_step_transitions_of_one_step_are_the_steps_bit_for_bit(start):
    collector, replay = start(ScriptedEnvironment([[3, 5], [17]]), shape=SequenceShape(n_step=1))
    for _ in range(9):
        collector.run(4)
    for report in drained(replay):
        np.testing.assert_array_equal(report.n_step[:5], report.moments[:5])
        np.testing.assert_array_equal(report.n_step[5:], 0.0)


def test_steps_and_returns_are_reported_across_heads_too(start):
    scripts = [[3, 5], [17]]
    collector, replay = start(ScriptedEnvironment(scripts))
    for _ in range(9):
        collector.run(4)
    expected = JointMoments.empty(len(HEADS))
    for index, episode, length, ended in played(scripts, 36):
        steps = scripted_steps(index, episode, length, ended)
        expected = JointMoments.merge(expected, JointMoments.from_steps(*steps))
        if ended:
            expected = JointMoments.merge(expected, JointMoments.from_returns(discounted_returns(*steps)))
    found = merged(drained(replay), "joint", JointMoments)
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-9)
    assert found.count.tolist() == [collector.environment_steps] * 2


def test_finished_episodes_are_returned_and_reported(start):
    collector, replay = start(ScriptedEnvironment([[3, 5], [17]]))
    episodes = [episode for _ in range(9) for episode in collector.run(4)]
    assert [(e.length, e.head, e.epsilon) for e in episodes if e.length < 17] == [
        (3 + 2 * (episode % 2), episode, 0.25) for episode in range(7)
    ]
    assert collector.episodes == len(episodes) == 9
    first = sum(np.float64(reward_of(0, 0, t)) for t in range(1, 4))
    assert episodes[0].episode_return == pytest.approx(first, rel=1e-12)
    reported = np.concatenate([report.episodes for report in drained(replay)])
    np.testing.assert_array_equal(
        reported, [(e.head, e.epsilon, e.episode_return, e.length) for e in episodes]
    )


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


def test_statistics_are_there_before_the_sequences_that_they_scale(start):
    collector, replay = start(ScriptedEnvironment([[8]] * 4), shape=SMALL, error_buffer=1.0)
    with pytest.raises(TimeoutError):
        collector.run(40)
    assert replay.size < 8
    assert merged(drained(replay)).count.tolist() == [collector_rows(40, 8) * 4] * 2


def collector_rows(rows: int, length: int) -> int:
    """Transitions among the first `rows` rows of episodes of `length` transitions."""
    return rows - -(-rows // (length + 1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_is_refused_before_anything_is_written(start, value):
    collector, replay = start(ScriptedEnvironment([[8]] * 3, bad_reward=(13, 2, value)), shape=SMALL)
    collector.run(9)
    drained(replay)
    size = replay.size
    with pytest.raises(EnvironmentFault, match=f"collector, environment 2: reward {value} at its step 13"):
        collector.run(9)
    assert (drained(replay), replay.size) == ([], size)


def test_values_that_are_no_numbers_are_refused_as_priorities(start):
    def priorities(steps, taken_values, greedy_values):
        return tf.reduce_sum(taken_values, axis=(1, 2)) * np.nan

    collector, _ = start(ScriptedEnvironment([[8]]), shape=SMALL, priorities=priorities)
    with pytest.raises(FloatingPointError, match="priority"):
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
    sequence, info = stored(replay)
    t = sequence.steps.observation[:, SMALL.burn_in + 1, 2]  # the policy's first value is the row's number
    reward = sequence.steps.reward[:, SMALL.burn_in + 1]
    np.testing.assert_allclose(info.priority, (t + 1.0) + 100.0 * reward + 8_000.0, rtol=1e-6)
    assert traces == [None]


def test_the_same_streams_give_the_same_table(start):
    tables = []
    for _ in range(2):
        collector, replay = start(ScriptedEnvironment([[5, 9], [3], [12]]), shape=SMALL)
        for _ in range(10):
            collector.run(6)
        tables.append(stored(replay)[0])
    for a, b in zip(*(tf.nest.flatten((table.steps, table.core_state)) for table in tables), strict=True):
        np.testing.assert_array_equal(a, b)


def test_unrolling_the_network_from_the_stored_state_gives_the_values_seen_while_acting(start):
    """Golden test of stored states, with the real policy and a recurrent network, through Reverb and back."""
    environment = ScriptedEnvironment([[5, 23], [31]])
    time_step_spec = tensor_spec.from_spec(environment.time_step_spec())
    action_spec = tensor_spec.from_spec(environment.action_spec())
    network = RecurrentQNetwork(
        (time_step_spec.observation, tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32)),
        num_actions=5,
        num_heads=len(HEADS),
        torso=lambda seed: MlpTorso((8,), seed=seed),
        lstm_units=6,
        post_lstm_units=8,
        head_hidden=8,
        seed=1,
    )

    def acted_values(steps, taken_values, greedy_values):
        return tf.reduce_sum(tf.abs(real(steps) * greedy_values), axis=(1, 2))

    def real(steps):
        inside = tf.cumsum(tf.cast(steps.step_type != LAST, tf.int32), axis=1) > 0
        return tf.cast(inside & (steps.step_type != LAST), tf.float32)[:, :, None]

    policy = MultiHeadPolicy(time_step_spec, action_spec, network, len(HEADS), seed=3, epsilons=(0.5,))
    collector, replay = start(
        environment, policy, SMALL, acted_values, state=network.state_spec, sampler="fifo"
    )
    for _ in range(8):
        collector.run(10)
    sequence, info = next(iter(replay.dataset(batch_size=replay.size)))
    steps = sequence.steps
    values, _ = network(
        (steps.observation, steps.previous_action, steps.reward), steps.step_type, sequence.core_state
    )
    unrolled = tf.reduce_sum(tf.abs(real(steps) * tf.reduce_max(values, axis=-1)), axis=(1, 2))
    assert len(unrolled) > 20
    np.testing.assert_allclose(unrolled, info.priority, rtol=1e-5)


def test_a_report_limit_below_one_step_is_refused(start):
    with pytest.raises(ValueError, match="max_report_steps"):
        start(ScriptedEnvironment([[3]]), max_report_steps=0)


class FaultyEnvironment(ScriptedEnvironment):
    """Goes wrong at its step 12."""

    def __init__(self, fault):
        super().__init__([[8]] * 2)
        self._fault = fault

    def _step(self, action):
        time_step = super()._step(action)
        return self._fault(time_step) if self._steps == 12 else time_step


def raising(time_step):
    raise KeyError("left")


@pytest.mark.parametrize(
    "fault, message",
    [
        (raising, "environments' step 12: KeyError: 'left'"),
        (
            lambda t: t._replace(observation=t.observation[:, :2]),
            r"step 12: observations are float32 \(2, 2\)",
        ),
        (
            lambda t: t._replace(observation=t.observation.astype(float)),
            r"float64 \(2, 3\), .* float32 \(2, 3\)",
        ),
        (
            lambda t: t._replace(observation=np.where([[0], [1]], np.nan, t.observation).astype(np.float32)),
            "environment 1: observation nan at its step 12",
        ),
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
