"""Environments that do what they must not, as `tests.agents.running.faulty:NAME-v0`."""

import os
import sys
import time

import gymnasium
import numpy as np


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


class Stuck(Healthy):
    def step(self, action):
        time.sleep(10**6)


class Dies(Healthy):
    def step(self, action):
        os._exit(5)


class OneSeat(Healthy):
    """As of a licence: no second copy while there is one."""

    taken = False

    def __init__(self):
        if OneSeat.taken:
            raise OSError("the licence is in use")
        OneSeat.taken = True

    def close(self):
        OneSeat.taken = False


class Late(Healthy):
    """Fails in the life of the first environment that has made 100 steps."""

    def step(self, action):
        self.steps += 1
        if self.steps == 100:
            raise OSError("the device is gone")
        return super().step(action)


for kind in (Healthy, Broken, Step, Stuck, Dies, OneSeat, Late):
    gymnasium.register(f"{kind.__name__}-v0", kind)
