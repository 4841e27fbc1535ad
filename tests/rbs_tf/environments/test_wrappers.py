"""Observations of other kinds as one array, and dm_env's environments as Gymnasium's."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rbs_tf import environments
from rbs_tf.environments.wrappers import FlatObservation, FromDmEnv
from tests.rbs_tf.environments.test_batched import equal, stream


class Shows(gymnasium.Env):
    """Shows what its space samples."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def flat(space, observation):
    return FlatObservation(Shows(space)).observation(observation).tolist()


def test_numbers_are_one_hot_from_their_start_and_parts_follow_one_another():
    assert flat(spaces.Discrete(3), 1) == [0, 1, 0]
    assert flat(spaces.Discrete(3, start=-1), -1) == [1, 0, 0]
    assert flat(spaces.MultiDiscrete([2, 3]), np.array([1, 2])) == [0, 1, 0, 0, 1]
    assert flat(spaces.MultiBinary(3), np.array([1, 0, 1], np.int8)) == [1, 0, 1]
    box = spaces.Box(-9, 9, (2, 1), np.float64)
    assert flat(spaces.Tuple([box, spaces.Discrete(2)]), (np.array([[2.5], [-1.0]]), 1)) == [2.5, -1, 0, 1]
    nested = spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple([box, spaces.Discrete(2)]))
    assert flat(nested, {"b": 0, "a": (np.zeros((2, 1)), 1)}) == [1, 0, 0, 0, 0, 1]


def test_flat_observations_are_float32_within_their_space_or_refused():
    pixels = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    unbounded = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    for space in (
        spaces.Discrete(10_000),
        spaces.Dict(picture=pixels, lives=spaces.Discrete(4)),
        spaces.Tuple([unbounded, spaces.MultiBinary(2)]),
    ):
        env = FlatObservation(Shows(space))
        assert env.observation_space.dtype == np.float32
        assert env.observation_space.shape == (spaces.flatdim(space),)
        for observation in (env.reset()[0], env.step(0)[0]):
            assert observation.dtype == np.float32 and observation in env.observation_space
    for space, words in (
        (spaces.Discrete(10_001), r"Discrete\(10001\) has too many states: expected at most 10,000"),
        (spaces.MultiDiscrete([3, 20_000]), "too many states"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(5)]), "arrays and numbers, got Text"),
    ):
        with pytest.raises(ValueError, match=words):
            FlatObservation(Shows(space))


@pytest.mark.parametrize(
    ("name", "shape", "actions"),
    [
        ("bsuite/catch/0", (10, 5), 3),
        ("bsuite/deep_sea_stochastic/2", (14, 14), 2),
        ("bsuite/mountain_car_scale/7", (1, 3), 3),
    ],
)
def test_bsuites_environments_follow_their_seeds(name, shape, actions):
    pytest.importorskip("bsuite")
    env = environments.make(name, 2, seed=1)
    first, same, other = stream(env, 200), *(stream(environments.make(name, 2, seed), 200) for seed in (1, 2))
    assert (env.name, env.game, env.num_actions) == (name, None, actions)
    assert env.observation_spec().shape == shape and first.observation.dtype == np.float32
    assert equal(first, same) and not equal(first, other)


def test_a_bsuite_episode_is_that_of_bsuite():
    bsuite = pytest.importorskip("bsuite")
    env = environments.make("bsuite/catch_scale/17", seed=3)  # rewards times 1000
    (seed,) = env._seeds
    theirs = bsuite.load("catch_scale", {"reward_scale": 1000.0, "seed": seed})
    ours, expected = env.reset(), theirs.reset()
    for action in np.random.default_rng(1).integers(3, size=60):
        np.testing.assert_array_equal(ours.observation[0], expected.observation)
        assert (ours.step_type[0] == 2) == expected.last()
        if not expected.first():
            assert (ours.reward[0], ours.discount[0]) == (expected.reward, expected.discount)
        ours, expected = env.step(np.array([action])), theirs.step(action)


def test_a_last_step_with_a_discount_is_cut_and_not_over():
    dm_env = pytest.importorskip("dm_env")

    class Chain(dm_env.Environment):
        def observation_spec(self):
            return dm_env.specs.BoundedArray((2,), np.float64, minimum=-1, maximum=[1, 2])

        def action_spec(self):
            return dm_env.specs.DiscreteArray(4)

        def reset(self):
            return dm_env.restart(np.zeros(2))

        def step(self, action):
            ends = {2: dm_env.termination, 3: dm_env.truncation}
            return ends.get(action, dm_env.transition)(1.0, np.zeros(2))

    env = FromDmEnv(lambda seed: Chain())
    assert env.action_space == spaces.Discrete(4)
    assert env.observation_space == spaces.Box(np.array([-1.0, -1]), np.array([1.0, 2]), dtype=np.float64)
    for action, *ends in ((0, False, False), (2, True, False), (3, False, True)):
        env.reset(seed=1)
        assert env.step(action)[1:4] == (1.0, *ends)
