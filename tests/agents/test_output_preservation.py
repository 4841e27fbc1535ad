"""Scalings that rewrite the last layers: values survive every change of units, and learning does not know its units."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.time_step import StepType

from agents.replay.rows import Rows
from agents.targets import Sequence, SequenceShape, Steps
from agents.workers.collector import Collector
from rbs_tf.scalings import MaxReward, MomentsWithMaxima, PopArt, ReturnBasedScaling, ReturnOut
from tests.agents.small_agent import ACTIONS, FEATURES, PAIRS, as_sequence, make_agent, random_windows, shake
from tests.agents.test_scaling_interface import values_of

SPIKE = 1e6
TEN_UNCLIPPED = tuple((discount, False) for discount in (0.0, 0.9, 0.99, 0.999, 1.0) * 2)
pop_art_first = functools.partial(PopArt, start_at_first_targets=True)
TEN = tuple((discount, clip) for clip in (True, False) for discount in (0.0, 0.9, 0.99, 0.999, 1.0))


def observe_rewards(agent, windows):
    """Statistics of the windows, each as an episode of its own."""
    heads, columns = agent.heads, zip(windows["reward"], windows["discount"], strict=True)
    episodes = (MomentsWithMaxima.from_episode(heads.rewards(r), heads.discounts(d)) for r, d in columns)
    agent.observe(functools.reduce(MomentsWithMaxima.merge, episodes))


@pytest.mark.slow
@pytest.mark.parametrize("scaling", [PopArt, ReturnOut])
def test_values_of_both_networks_survive_1000_updates_with_spikes_of_a_million(scaling):
    """To 1e-5 of the largest scale so far: below that, float32 outputs hold nothing that could be preserved."""
    agent = make_agent(scaling=scaling, learning_rate=0.0, target_update_period=70)
    shake(agent.network)
    probe, warm_up = as_sequence(random_windows(seed=100)), random_windows(seed=101, reward_scale=0.1)
    observe_rewards(agent, warm_up)
    agent.train(as_sequence(warm_up))  # First units that are taken over do not preserve outputs.
    agent._replace_target()
    online, target = values_of(agent, probe), values_of(agent, probe, target=True)
    np.testing.assert_array_equal(online, target)
    train, rng = tf.function(agent.train), np.random.default_rng(0)
    first, largest = agent.scaling.online.scale.numpy(), np.abs(online).max(axis=(0, 1, 2))
    for update in range(1000):
        windows = random_windows(seed=update % 20, reward_scale=0.1)
        if update % 100 == 30:
            windows["reward"][0, 4 + update // 100 % 2] = rng.choice([-SPIKE, SPIKE])
        observe_rewards(agent, windows)
        train(as_sequence(windows))
        largest = np.maximum(largest, agent.scaling.online.scale)
        if update % 25 == 0 or update % 100 in (30, 31):
            tolerance = 1e-5 * largest
            assert (np.abs(values_of(agent, probe) - online) <= tolerance).all(), update
            assert (np.abs(values_of(agent, probe, target=True) - target) <= tolerance).all(), update
    unclipped = np.array([not clip for _, clip in PAIRS])
    assert (agent.scaling.online.scale.numpy() / first)[unclipped].min() > 100


@pytest.mark.parametrize("scaling, jit_compile", [(pop_art_first, True), (ReturnOut, None)])
def test_the_update_compiles_with_xla_to_the_same_numbers(scaling, jit_compile):
    plain, compiled = (make_agent(scaling=scaling, jit_compile=jit) for jit in (False, jit_compile))
    for seed in range(3):
        windows = random_windows(seed, reward_scale=10.0**seed)
        for agent in (plain, compiled):
            observe_rewards(agent, windows)
        a, b = (agent.train(as_sequence(windows)) for agent in (plain, compiled))
        np.testing.assert_allclose(b.loss, a.loss, rtol=1e-4)
    for a, b in zip(plain.network.variables, compiled.network.variables, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5)


class Match(py_environment.PyEnvironment):
    """N games side by side: of three numbers, the action that points at the largest pays 1, at the smallest -1, else
    0; `pays` times that. One step in twenty is the last, by a time-out as often as not, whatever the actions are."""

    batched = True
    batch_size = 20

    def __init__(self, pays, seed=0):
        super().__init__()
        self._pays, self._rng = pays, np.random.default_rng(seed)
        self._shown, self._ended = None, np.ones(self.batch_size, bool)

    def observation_spec(self):
        return array_spec.ArraySpec((FEATURES,), np.float32)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int32, 0, ACTIONS - 1)

    def _reset(self):
        return self._show(np.zeros(self.batch_size))

    def _step(self, action):
        numbers = self._shown[:, :ACTIONS]
        right, wrong = action == numbers.argmax(axis=1), action == numbers.argmin(axis=1)
        return self._show(self._pays * (1.0 * right - 1.0 * wrong))

    def _show(self, paid):
        first = self._ended
        self._shown = self._rng.normal(size=(self.batch_size, FEATURES)).astype(np.float32)
        draw = self._rng.uniform(size=self.batch_size)
        self._ended = ~first & (draw < 0.05)
        return ts.TimeStep(
            np.where(first, StepType.FIRST, np.where(self._ended, StepType.LAST, 1)).astype(np.int32),
            np.where(first, 0.0, paid).astype(np.float32),
            np.where(self._ended & (draw < 0.025), 0.0, 1.0).astype(np.float32),
            self._shown,
        )


class SeededReplay:
    """Prioritised sequences whose draws repeat, which Reverb's do not; the collector's and the learner's side."""

    def __init__(self, shape, batch_size=16, seed=0):
        self._shape, self._batch_size, self._rng = shape, batch_size, np.random.default_rng(seed)
        self.windows, self.priorities, self.reports = [], [], []

    def put_statistics(self, report):
        self.reports.append(report)

    def writer(self):
        return SeededWriter(self)

    def draw(self):
        weights = np.array(self.priorities) ** 0.9
        probability = weights / weights.sum()
        chosen = self._rng.choice(len(self.windows), self._batch_size, p=probability)
        steps, core_state = tf.nest.map_structure(
            lambda *columns: tf.constant(np.stack(columns)), *(self.windows[i] for i in chosen)
        )
        size = np.full(self._batch_size, len(self.windows), np.int64)
        sequence = Sequence(
            steps, core_state, tf.constant(probability[chosen], tf.float32), tf.constant(size)
        )
        return chosen, sequence

    def update(self, chosen, priorities):
        for index, priority in zip(chosen, priorities, strict=True):
            self.priorities[index] = priority


class SeededWriter:
    def __init__(self, replay):
        self._replay, self._blocks = replay, []

    def append(self, block: Rows, starts_window: bool):
        self._blocks = [*self._blocks, block][-self._replay._shape.blocks :]

    def insert(self, priority):
        rows = Rows.concatenate(self._blocks)
        steps = Steps(*(getattr(rows, name) for name in Steps._fields))
        self._replay.windows.append((steps, tuple(np.split(rows.core_state[0], 2))))
        self._replay.priorities.append(priority)

    def flush(self):
        pass

    close = flush


def actions_of(agent, pays, steps):
    """Actions while the agent plays and learns, one array [10, N] after the other."""
    replay, environment = SeededReplay(agent.shape), Match(pays)
    played = []
    kind = agent.scaling.moments_class
    parts = environment, agent.collect_policy, agent.heads, replay, agent.shape, agent.initial_priorities
    collector = Collector(*parts, moments=kind)
    train = tf.function(agent.train)
    step = environment.step
    environment.step = lambda action: played.append(action) or step(action)
    for _ in range(steps // (10 * environment.batch_size)):
        collector.run(10)
        for report in replay.reports:
            agent.observe(kind.from_array(report["moments"]))
        replay.reports.clear()
        for _ in range(10 if len(replay.windows) > 50 else 0):
            chosen, sequence = replay.draw()
            replay.update(chosen, train(sequence).extra.priorities.numpy())
        yield np.stack(played)
        played.clear()


def pair(scaling, pairs):
    shape = SequenceShape(burn_in=1, length=4, period=2, n_step=3)
    options = {"learning_rate": 2e-3, "target_update_period": 40, "seed": 3}
    return [make_agent(pairs, scaling, shape, **options) for _ in range(2)]


@pytest.mark.parametrize(
    "pairs, steps",
    [
        pytest.param(((0.99, False),), 20_000, id="one", marks=pytest.mark.slow),
        pytest.param(TEN_UNCLIPPED, 20_000, id="ten_unclipped", marks=pytest.mark.slow),
        pytest.param(TEN, 4_000, id="ten"),
    ],
)
def test_all_rewards_times_1024_give_the_same_actions_and_weights_bit_for_bit(pairs, steps):
    """Powers of two make float32 exact, and the network's own reward input is clipped: rewards are 0 or at least 1."""
    plain, large = pair(ReturnOut, pairs)
    played = []
    for actions, also in zip(actions_of(plain, 1.0, steps), actions_of(large, 1024.0, steps), strict=True):
        np.testing.assert_array_equal(also, actions)
        played.append(actions)
    for a, b in zip(plain.network.variables, large.network.variables, strict=True):
        np.testing.assert_array_equal(b, a)
    factors = np.array([1.0 if clip else 1024.0 for _, clip in pairs])
    np.testing.assert_array_equal(large.scaling.online.scale, plain.scaling.online.scale * factors)
    shares = np.bincount(np.concatenate(played[-20:]).ravel(), minlength=ACTIONS) / (20 * played[0].size)
    assert shares.max() < 0.6, "the policy goes by what it is shown"


@pytest.mark.slow
@pytest.mark.parametrize(
    "scaling",
    [pop_art_first, MaxReward],
    ids=["pop_art_first", "max_reward"],
)
def test_so_they_do_with_others_that_take_their_units_from_the_rewards(scaling):
    plain, large = pair(scaling, ((0.0, False), (0.99, False)))
    for actions, also in zip(actions_of(plain, 1.0, 4000), actions_of(large, 1024.0, 4000), strict=True):
        np.testing.assert_array_equal(also, actions)
    for a, b in zip(plain.network.variables, large.network.variables, strict=True):
        np.testing.assert_array_equal(b, a)
    assert (plain.train_step_counter.numpy() > 100) and np.isfinite(plain.network.heads.Wv).all()


@pytest.mark.parametrize("scaling", [ReturnBasedScaling, pytest.param(PopArt, marks=pytest.mark.slow)])
def test_other_scalings_act_differently_when_rewards_are_multiplied(scaling):
    plain, large = pair(scaling, ((0.99, False),))
    rounds = zip(actions_of(plain, 1.0, 4000), actions_of(large, 1024.0, 4000), strict=True)
    assert any((a != b).any() for a, b in rounds)
