"""Statistics for return-based scaling from Stable-Baselines3's vector environments; `CollectReturns` imports this."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from rbs_tf.feed import Feed, checked


class CollectVecEnvReturns(VecEnvWrapper):
    """`CollectReturns` around a `VecEnv`, which resets an environment in the step that ends its episode."""

    def __init__(self, venv: VecEnv, feed: Feed):
        super().__init__(venv)
        self._feed = feed

    def step_wait(self) -> VecEnvStepReturn:
        """As the environments'."""
        observations, rewards, dones, infos = self.venv.step_wait()
        shape = (self.num_envs,)
        over = checked("dones", dones, bool, shape)
        timed_out = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
        terminal = over & ~checked("TimeLimit.truncated", timed_out, bool, shape)
        self._feed.step(checked("rewards", rewards, np.float64, shape), terminal, over, np.ones(shape, bool))
        return observations, rewards, dones, infos

    def reset(self) -> VecEnvObs:
        """As the environments'; open episodes end here."""
        self._feed.finish(np.ones(self.num_envs, bool))
        return self.venv.reset()
