"""An environment that only an agent with a memory solves: of its core, or of its own last action, which it is told.

Registered as tests.agents.recall:Recall-v0.
"""

import gymnasium
import numpy as np


class Recall(gymnasium.Env):
    """The first observation shows a sign; the action three steps later must match it: 1000 or nothing."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._sign, self._step = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0], np.float32), {}

    def step(self, action):
        self._step += 1
        ended = self._step == 4
        reward = 1000.0 if ended and action == self._sign else 0.0
        return np.array([0, self._step / 4], np.float32), reward, ended, False, {}


if "Recall-v0" not in gymnasium.registry:
    gymnasium.register("Recall-v0", entry_point=Recall)
