"""An environment that costs nothing, "benchmarks.free_environment:Free-v0": MinAtar's size, episodes of 100 steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class FreeEnvironment(gymnasium.Env):
    """Nothing is ever to be seen, and every step pays 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (10, 10, 6), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)
    _nothing = np.zeros((10, 10, 6), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._nothing, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._nothing, 1.0, False, False, {}


gymnasium.register("Free-v0", FreeEnvironment, max_episode_steps=100, disable_env_checker=True)
