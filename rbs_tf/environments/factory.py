"""From a name to a batched environment, Atari set up as in the paper's appendix on its experiments."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import gin
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv

from rbs_tf.environments import names

if TYPE_CHECKING:
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment

FRAMES_PER_STEP = 4
ATARI_TIME_OUT_FRAMES = 108_000  # 30 minutes of play


@gin.configurable(module="environments")
def make(
    name: str,
    num_envs: int = 1,
    seed: int | None = None,
    reward_multiplier: float = 1.0,
    full_action_set: bool = True,
    max_episode_steps: int | None = None,
    repeat_action_probability: float | None = None,
) -> GymnasiumVectorEnvironment:
    """Makes `num_envs` copies of an environment that step together.

    Args:
      name: a plain Atari name ("pong") or its id ("ALE/Pong-v5", which means the same here, whatever settings
        Gymnasium has for it); a MinAtar name ("minatar/space_invaders"); or any id that Gymnasium knows,
        "module:Id-v0" included. Atari observations are uint8 [210, 160, 3], in colour, each the maximum of
        the last two of four frames; MinAtar's are uint8 [10, 10, C], zeros and ones; the rest keep their own.
      num_envs: environments in the batch.
      seed: equal seeds and actions give equal streams; every environment gets a seed of its own, derived from
        it. None: from the operating system.
      reward_multiplier: every reward is multiplied by it.
      full_action_set: for Atari's and MinAtar's plain names: all of the console's 18 actions (Skiing takes 9)
        or MinAtar's 6, instead of only those that the game makes use of.
      max_episode_steps: steps (4 frames each in Atari) until an episode is cut as a time-out, which leaves
        its discount at 1. None: 27,000 for Atari (108,000 frames), otherwise what Gymnasium has registered.
      repeat_action_probability: for Atari's and MinAtar's plain names: the chance that the previous action is
        repeated instead. None: 0 for Atari, 0.1 for MinAtar, which is MinAtar's own.

    Raises:
      ValueError: the name is unknown (the nearest ones are given), an argument does not fit, or the
        environment's spaces are others than Discrete actions and Box observations.
      ImportError: the environment needs a package that is not installed.
    """
    _check(num_envs, reward_multiplier, max_episode_steps, repeat_action_probability)
    name = names.ATARI_IDS.get(name, name)
    if name in names.ATARI_GAMES:
        vector_env = _atari(
            name, num_envs, full_action_set, max_episode_steps, repeat_action_probability or 0.0
        )
    elif name in names.MINATAR_GAMES:
        _register_minatar()
        settings: dict[str, Any] = {"use_minimal_action_set": not full_action_set}
        if repeat_action_probability is not None:
            settings["sticky_action_prob"] = repeat_action_probability
        vector_env = _gymnasium(names.minatar_id(name), num_envs, max_episode_steps, settings)
    elif repeat_action_probability is not None:
        raise ValueError(
            f"repeat_action_probability={repeat_action_probability} works with the plain names of Atari and"
            f" MinAtar, not with {name!r}: leave it at None"
        )
    else:
        vector_env = _gymnasium(_registered(name), num_envs, max_episode_steps, {})

    from rbs_tf.environments.batched import (
        GymnasiumVectorEnvironment,
    )  # TensorFlow: seconds that a typo need not wait

    return GymnasiumVectorEnvironment(
        vector_env,
        name=name,
        game=name if name in names.ATARI_GAMES else None,
        seed=seed,
        reward_multiplier=reward_multiplier,
    )


def _check(
    num_envs: int,
    reward_multiplier: float,
    max_episode_steps: int | None,
    repeat_action_probability: float | None,
) -> None:
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: expected at least 1")
    if not np.isfinite(reward_multiplier):
        raise ValueError(f"reward_multiplier={reward_multiplier}: expected a finite number")
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(
            f"max_episode_steps={max_episode_steps}: expected at least 1, or None for the game's own"
        )
    if repeat_action_probability is not None and not 0 <= repeat_action_probability <= 1:
        raise ValueError(f"repeat_action_probability={repeat_action_probability}: expected 0 to 1")


class _LatestFrame(gymnasium.vector.VectorObservationWrapper):
    """Drops ALE's frame stack of one: uint8 [N, 1, 210, 160, 3] -> [N, 210, 160, 3]."""

    def __init__(self, env: AtariVectorEnv):
        super().__init__(env)
        stack = env.single_observation_space
        self.single_observation_space = gymnasium.spaces.Box(0, 255, stack.shape[1:], stack.dtype)
        self.observation_space = gymnasium.vector.utils.batch_space(
            self.single_observation_space, env.num_envs
        )

    def observations(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, 0]

    def reset(self, *, seed: list[int] | None = None, options: dict[str, Any] | None = None):
        # One seed per environment is a list for Gymnasium's own vector environments, an array for ALE's.
        return super().reset(seed=None if seed is None else np.asarray(seed), options=options)


def _atari(
    game: str,
    num_envs: int,
    full_action_set: bool,
    max_episode_steps: int | None,
    repeat_action_probability: float,
) -> gymnasium.vector.VectorEnv:
    # ALE does not capture the frame that an episode ends on: the final observation is the maximum of an
    # earlier frame and of the previous observation. A time-out bootstraps from it, one step in 27,000;
    # at a true end nothing depends on it.
    frames = ATARI_TIME_OUT_FRAMES if max_episode_steps is None else max_episode_steps * FRAMES_PER_STEP
    return _LatestFrame(
        AtariVectorEnv(
            game,
            num_envs,
            img_height=210,
            img_width=160,
            grayscale=False,
            stack_num=1,
            maxpool=True,
            frameskip=FRAMES_PER_STEP,
            noop_max=31,  # exclusive: 0 to 30 no-ops
            max_num_frames_per_episode=frames,
            full_action_space=full_action_set,
            repeat_action_probability=repeat_action_probability,
            reward_clipping=False,
            use_fire_reset=False,
            episodic_life=False,
        )
    )


def _gymnasium(
    name: str, num_envs: int, max_episode_steps: int | None, settings: dict[str, Any]
) -> gymnasium.vector.VectorEnv:
    one = functools.partial(
        gymnasium.make,
        name,
        max_episode_steps=max_episode_steps,
        disable_env_checker=True,  # it costs as much as a small environment's step
        **settings,
    )
    return gymnasium.vector.SyncVectorEnv([one] * num_envs)


def _registered(name: str) -> str:
    """The id, after importing the module that registers it; raises ValueError if there is no such id."""
    module, _, env_id = name.rpartition(":")
    if module:
        importlib.import_module(module)
    elif name.startswith("MinAtar/"):
        _register_minatar()
    if env_id not in gymnasium.registry:
        nearest = names.nearest(env_id)
        raise ValueError(
            f"unknown environment {name!r}"
            + (f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else "")
            + "\nExpected an Atari game (pong), a MinAtar game (minatar/breakout) or a Gymnasium id"
            " (CartPole-v1); `python train.py --list_envs` lists them."
        )
    return env_id


def _register_minatar() -> None:
    if importlib.util.find_spec("minatar") is None:
        raise ImportError('MinAtar is not installed; it is an option: pip install "rbs-tf[minatar]"')
    if "MinAtar/Breakout-v1" not in gymnasium.registry:  # registering twice prints a warning
        importlib.import_module("minatar.gym").register_envs()
