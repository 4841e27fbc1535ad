"""Observations of other kinds as one array."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rbs_tf.environments.wrappers import FlatObservation


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
