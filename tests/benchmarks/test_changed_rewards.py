"""Each wrapper against its formula, on games whose rewards are known beforehand."""

import math
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.changed_rewards import DriftRewards, MixedRewards, ScaleRewards, ShapedRewards, SpikeRewards
from rbs_tf.returns import discounted_returns


class Game(gymnasium.Env):
    """Rewards the action, plus noise if asked to; ends after `length` steps."""

    metadata = {"render_modes": []}

    def __init__(self, length=7, noise=0.0):
        self.action_space = gymnasium.spaces.Discrete(5, start=-2)
        self.observation_space = gymnasium.spaces.Box(0, 1000, (1,), np.float32)
        self._length, self._noise = length, noise

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._t += 1
        reward = float(action) + (self._noise * self.np_random.normal() if self._noise else 0.0)
        return np.full(1, self._t, np.float32), reward, self._t >= self._length, False, {}


WRAPPERS = {
    "scale": (ScaleRewards, {"scale": 2.0**-10}),
    "mixed": (MixedRewards, {}),
    "spikes": (SpikeRewards, {"size": 50.0, "probability": 0.3}),
    "shaped": (ShapedRewards, {"potential": 8.0, "discount": 0.99, "period": 5, "reverse_after": 25}),
    "drift": (DriftRewards, {"steps": 40, "start": 1.0, "end": 1e3}),
}


def play(env, actions, seed=None):
    """Rewards and ends of whole episodes, one after the other, float64 [T] and bool [T]."""
    found, _ = [], env.reset(seed=seed)
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(int(action))
        found.append((reward, terminated or truncated))
        if found[-1][1]:
            env.reset()
    rewards, ends = map(np.array, zip(*found, strict=True))
    return rewards, ends


def some_actions(steps=60, seed=0):
    return np.random.default_rng(seed).integers(-2, 3, steps)


def test_mixed_factors_follow_the_rewards_of_an_episode():
    actions = [0, 1, 1, 0, -2, 1, 2, 0, 1]
    rewards, _ = play(MixedRewards(Game(length=7)), actions)
    assert rewards.tolist() == [0, 1, 10, 0, -200, 1, 20, 0, 1]


def test_spikes_are_independent_noise_of_the_size_asked_for():
    steps, size, probability = 40_000, 1e4, 0.02
    actions = some_actions(steps)
    clean, _ = play(Game(noise=1.0), actions, seed=3)
    spiked, _ = play(SpikeRewards(Game(noise=1.0), size, probability), actions, seed=3)
    spikes = np.round((spiked - clean) / size)
    np.testing.assert_allclose(spiked - clean, size * spikes, atol=1e-9)
    assert set(spikes) == {-1, 0, 1}
    deviation = math.sqrt(steps * probability * (1 - probability))
    assert abs(np.abs(spikes).sum() - steps * probability) < 4 * deviation
    assert abs(spikes.sum()) < 4 * math.sqrt(steps * probability)
    # Neither what was paid nor what was drawn before tells of a spike.
    for other in (clean, np.roll(spikes, 1), np.roll(np.abs(spikes), 1)):
        assert abs(np.corrcoef(np.abs(spikes), other)[0, 1]) < 4 / math.sqrt(steps)


@given(
    discount=st.just(0.0) | st.floats(1e-6, 1.0),
    period=st.floats(2.0, 30.0),
    reverse_after=st.integers(1, 40),
    length=st.integers(1, 20),
)
def test_returns_shift_by_the_potential(discount, period, reverse_after, length):
    """G' = G - Phi(s), whatever is played, also where the sign turns."""
    actions, steps = some_actions(3 * length), np.arange(3 * length)
    shaped, ends = play(ShapedRewards(Game(length), 8.0, discount, period, reverse_after), actions)
    discounts = np.where(ends, 0.0, discount)
    shift = discounted_returns(shaped, discounts) - discounted_returns(actions.astype(float), discounts)
    potential = 8.0 * np.cos(2 * np.pi * (steps % length) / period) * np.where(steps < reverse_after, 1, -1)
    np.testing.assert_allclose(shift, -potential, atol=1e-8)


def test_a_cut_episode_keeps_its_last_potential():
    shaped, ends = play(ShapedRewards(TimeLimit(Game(), 3), 8.0, 0.5, 1e9, 100), [0] * 6)
    np.testing.assert_array_equal(ends, [False, False, True] * 2)
    np.testing.assert_allclose(shaped, -4.0)


def test_drift():
    gradual, _ = play(DriftRewards(Game(), steps=40, start=0.5, end=2000.0), [1] * 60)
    np.testing.assert_allclose(gradual, 0.5 * 4000.0 ** np.minimum(np.arange(60) / 40, 1.0), rtol=1e-12)


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_game_is_untouched_beneath_and_seeds_and_pickles_repeat_it(name):
    """Same observations, ends and draws; statistics beneath are of the clean game."""
    kind, arguments = WRAPPERS[name]
    clean, env = Game(noise=1.0), kind(RecordEpisodeStatistics(Game(noise=1.0)), **arguments)
    for game in (clean, env):
        game.reset(seed=4)
    score, paid = 0.0, []
    for action in some_actions():
        expected, found = clean.step(action), env.step(action)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[2:4] == expected[2:4]
        score += expected[1]
        paid.append((expected[1], found[1]))
        if expected[2]:
            assert found[4]["episode"]["r"] == score
            score, _, _ = 0.0, clean.reset(), env.reset()
    assert any(before != after for before, after in paid)
    actions = some_actions(18)  # up to mid-episode, with spikes to come
    np.testing.assert_array_equal(*(play(env, actions, seed=7)[0] for _ in range(2)))
    again = pickle.loads(pickle.dumps(env))
    for action in actions:
        assert env.step(action)[1] == again.step(action)[1]
