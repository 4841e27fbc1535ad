"""Atari's games by ALE's own vector environment, their frames as one image."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from rbs_tf.environments.names import FRAMES_PER_STEP, RAW_FRAMES
from rbs_tf.returns import LONGEST_EPISODE


class Frames(gymnasium.vector.VectorWrapper):
    """ALE's stack of frames as one image: uint8 [N, stack, height, width(, 3)] -> [N, height, width, channels].

    With `fire_on_new_life` the action given to an environment whose life has just begun becomes FIRE.

    Attributes:
      life_lost: which environments have lost a life in the last step, bool [N].
    """

    env: AtariVectorEnv

    def __init__(self, env: AtariVectorEnv, fire_on_new_life: bool):
        super().__init__(env)
        frames = env.single_observation_space
        assert isinstance(frames, gymnasium.spaces.Box)
        stack, height, width, *colors = frames.shape
        shape = (height, width, stack * (colors[0] if colors else 1))
        self.single_observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, env.num_envs
        )
        actions = list(env.ale.get_action_set())
        fire = ale_py.Action.FIRE
        self._fire = actions.index(fire) if fire_on_new_life and fire in actions else None
        self._lives = np.zeros(env.num_envs, np.int64)
        self._new_life, self._ended, self.life_lost = np.zeros((3, env.num_envs), bool)

    def reset(  # type: ignore[override]  # VectorWrapper's hints are of type variables that nothing binds
        self, *, seed: list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        # One seed per environment is a list for Gymnasium's own vector environments, an array for ALE's.
        frames: np.ndarray
        frames, info = self.env.reset(seed=None if seed is None else np.asarray(seed), options=options)
        self._lives = np.array(info["lives"])
        self._new_life = np.ones(self.num_envs, bool)
        self._ended = np.zeros(self.num_envs, bool)
        return self._stack_image(frames), info

    def step(  # type: ignore[override]  # as for `reset`
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._fire is not None:
            actions = np.where(self._new_life, self._fire, actions)
        frames, rewards, terminated, truncated, info = self.env.step(actions)
        lives = np.array(info["lives"])
        self.life_lost = (lives < self._lives) & ~self._ended
        self._new_life = self.life_lost | self._ended  # a step behind an end is the first of a new episode
        self._lives = lives
        self._ended = terminated | truncated
        return self._stack_image(frames), rewards, terminated, truncated, info

    def _stack_image(self, frames: np.ndarray) -> np.ndarray:
        # In one piece of memory: acting and storing copy it, which across a view takes ten times as long.
        stack = np.moveaxis(frames if frames.ndim == 5 else frames[..., None], 1, 0)
        return stack[0] if len(stack) == 1 else np.concatenate(list(stack), axis=-1)


def vector_environment(
    game: str,
    num_envs: int,
    full_action_set: bool,
    max_episode_steps: int | None,
    repeat_action_probability: float,
    fire_on_new_life: bool = False,
    **frames: Any,
) -> Frames:
    """The paper's set-up of a game, but for what the arguments of `environments.make` say; `frames` as `RAW_FRAMES`."""
    # ALE does not capture the frame that an episode ends on: the final observation is the maximum of an
    # earlier frame and of the previous observation. A time-out bootstraps from it, one step in 27,000;
    # at a true end nothing depends on it.
    cut = FRAMES_PER_STEP * (LONGEST_EPISODE if max_episode_steps is None else max_episode_steps)
    return Frames(
        AtariVectorEnv(
            game,
            num_envs,
            **RAW_FRAMES | frames,
            maxpool=True,
            frameskip=FRAMES_PER_STEP,
            noop_max=31,  # exclusive: 0 to 30 no-ops
            max_num_frames_per_episode=cut,
            full_action_space=full_action_set,
            repeat_action_probability=repeat_action_probability,
            reward_clipping=False,
            use_fire_reset=False,
            episodic_life=False,
        ),
        fire_on_new_life,
    )
