"""A game in which next to all of the picture is the same in every state, as in Atari's."""

import gymnasium
import numpy as np

SIZE, SPOT, STEPS = 44, 6, 20
BACKGROUND = np.random.default_rng(0).integers(100, 220, (SIZE, SIZE, 1), np.uint8)


class Spot(gymnasium.Env):
    """A small spot lies on the left or on the right; naming its side pays 1, the other one -1. Chance is 0, all 20."""

    observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

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


if "Spot-v0" not in gymnasium.registry:
    gymnasium.register("Spot-v0", entry_point=Spot)
