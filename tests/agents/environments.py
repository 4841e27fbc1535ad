"""Environments as `tests.agents.environments:NAME-v0`: of several arrays, faulty ones, and some that can be learned."""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces


class Healthy(gymnasium.Env):
    """Episodes of ten steps."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, **options):
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(3, np.float32), 1.0, self.t == 10, False, {}


class Broken(Healthy):
    def __init__(self):
        raise KeyError("no such file")


class Step(Healthy):
    def step(self, action):
        sys.exit(4)


class Late(Healthy):
    """Fails in the life of the first environment that has made 100 steps."""

    def step(self, action):
        self.steps += 1
        if self.steps == 100:
            raise OSError("the device is gone")
        return super().step(action)


class Counts(gymnasium.Env):
    """Shows its step in each part in another way."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        picture=spaces.Box(0, 255, (9, 8, 2), np.uint8),
        of=spaces.Dict(body=spaces.Box(-np.inf, np.inf, (3,), np.float64), phase=spaces.Discrete(4)),
    )
    bad = np.inf

    def shown(self):
        t = self.t
        body = np.array([t, -t, np.nan if t == self.bad else 0.5])
        return {"picture": np.full((9, 8, 2), t, np.uint8), "of": {"body": body, "phase": t % 4}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.shown(), {}

    def step(self, action):
        self.t += 1
        return self.shown(), 1.0, self.t == 30, False, {}


class Breaks(Counts):
    bad = 3


class Recall(gymnasium.Env):
    """Only an agent with a memory solves it, of its core or of its own last action, which it is told.

    The first observation shows a sign; the action three steps later must match it: 1000 or nothing.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._sign, self._step = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0], np.float32), {}

    def step(self, action):
        self._step += 1
        ended = self._step == 4
        reward = 1000.0 if ended and action == self._sign else 0.0
        return np.array([0, self._step / 4], np.float32), reward, ended, False, {}


SIZE, SPOT, STEPS = 44, 6, 20
BACKGROUND = np.random.default_rng(0).integers(100, 220, (SIZE, SIZE, 1), np.uint8)


class Spot(gymnasium.Env):
    """Next to all of the picture is the same in every state, as in Atari's.

    A small spot lies on the left or on the right; naming its side pays 1, the other one -1. Chance is 0, all 20.
    """

    observation_space = spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = STEPS
        return self._picture(), {}

    def step(self, action):
        reward = 1.0 if action == self._side else -1.0
        self._left -= 1
        return self._picture(), reward, self._left == 0, False, {}

    def _picture(self):
        picture = BACKGROUND.copy()
        row, column = self.np_random.integers(0, SIZE - SPOT + 1, 2)
        self._side = int(column > (SIZE - SPOT) / 2)
        picture[row : row + SPOT, column : column + SPOT] += 30
        return picture


for kind in (Healthy, Broken, Step, Late, Counts, Breaks, Recall, Spot):
    gymnasium.register(f"{kind.__name__}-v0", kind)
