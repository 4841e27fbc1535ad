"""Environments as `tests.agents.environments:NAME-v0`: of several arrays, and those that do what they must not."""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces


class Healthy(gymnasium.Env):
    """Episodes of ten steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
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


for kind in (Healthy, Broken, Step, Late, Counts, Breaks):
    gymnasium.register(f"{kind.__name__}-v0", kind)
