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


class Exits(Healthy):
    def __init__(self):
        sys.exit(3)


class Empty(Healthy):
    observation_space = gymnasium.spaces.Box(-1, 1, (0,), np.float32)


class Reset(Healthy):
    def reset(self, **options):
        raise RuntimeError("no reset today")


class Step(Healthy):
    def step(self, action):
        sys.exit(4)


class Stuck(Healthy):
    def step(self, action):
        time.sleep(10**6)


class Dies(Healthy):
    def step(self, action):
        os._exit(5)


class Shape(Healthy):
    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, False, {}


class NotANumber(Healthy):
    def step(self, action):
        return np.full(3, np.nan, np.float32), 1.0, False, False, {}


class Infinite(Healthy):
    def step(self, action):
        return np.zeros(3, np.float32), np.inf, False, False, {}


class OneSeat(Healthy):
    """As of a licence: no second copy while there is one."""

    taken = False

    def __init__(self):
        if OneSeat.taken:
            raise OSError("the licence is in use")
        OneSeat.taken = True

    def close(self):
        OneSeat.taken = False


class InEvaluation(Healthy):
    """Fails where episodes are played to their end, and its words and closing are no better."""

    made = 0

    def __init__(self):
        InEvaluation.made += 1
        self.number = InEvaluation.made  # the first is made for a look, the second evaluates

    def step(self, action):
        if self.number == 2:
            raise type("Crash", (Exception,), {"__str__": lambda self: 1 / 0})
        return super().step(action)

    def close(self):
        raise SystemExit("no end")


class Late(Healthy):
    """Fails in the life of the first environment that has made 100 steps."""

    def step(self, action):
        self.steps += 1
        if self.steps == 100:
            raise OSError("the device is gone")
        return super().step(action)


KINDS = (
    *(Healthy, Broken, Exits, Empty, Reset, Step, Stuck, Dies, Shape, NotANumber, Infinite, Late),
    *(OneSeat, InEvaluation),
)
for kind in KINDS:
    gymnasium.register(f"{kind.__name__}-v0", kind)
