"""From a name to a batched environment, Atari set up as in the paper's appendix on its experiments."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import gymnasium

from rbs_tf import scores
from rbs_tf.configurable import configurable
from rbs_tf.environments import names

if TYPE_CHECKING:
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment


@configurable(module="environments")
def make(
    name: str,
    num_envs: int = 1,
    seed: int | None = None,
    full_action_set: bool = True,
    max_episode_steps: int | None = None,
    repeat_action_probability: float | None = None,
    img_height: int | None = None,
    img_width: int | None = None,
    grayscale: bool | None = None,
    stack_num: int | None = None,
    fire_on_new_life: bool | None = None,
    terminal_on_life_loss: bool | None = None,
) -> GymnasiumVectorEnvironment:
    """Makes `num_envs` copies of an environment that step together.

    Args:
      name: a plain Atari name ("pong") or its id ("ALE/Pong-v5", which means the same here, whatever settings
        Gymnasium has for it); a MinAtar name ("minatar/space_invaders"); or any id that Gymnasium knows,
        "module:Id-v0" included. Atari observations are uint8 [height, width, channels], each frame the maximum
        of the last two of four; MinAtar's are uint8 [10, 10, C], zeros and ones; the rest keep their own.
      num_envs: environments in the batch.
      seed: equal seeds and actions give equal streams; every environment gets a seed of its own, derived from
        it. None: from the operating system.
      full_action_set: for Atari's and MinAtar's plain names: all of the console's 18 actions (Skiing takes 9)
        or MinAtar's 6, instead of only those that the game makes use of.
      max_episode_steps: steps (4 frames each in Atari) until an episode is cut as a time-out, which leaves
        its discount at 1. None: 27,000 for Atari (108,000 frames), otherwise what Gymnasium has registered.
      repeat_action_probability: for Atari's and MinAtar's plain names: the chance that the previous action is
        repeated instead. None: 0 for Atari, 0.1 for MinAtar, which is MinAtar's own.
      img_height: Atari: what frames are resized to, in pixels. None: 210, the console's own.
      img_width: likewise. None: 160.
      grayscale: Atari: one channel per frame in place of three. None: no.
      stack_num: Atari: frames in an observation, the oldest first along its channels; those before an episode's
        first are zeros. None: 1.
      fire_on_new_life: Atari: an action given right after an episode's start or the loss of a life becomes FIRE, in
        games that have it; else Breakout waits for it forever. None: no.
      terminal_on_life_loss: Atari: discount 0 on a step that loses a life; the episode goes on. None: no.

    Raises:
      ValueError: the name is unknown (the nearest ones are given), an argument does not fit, or the
        environment's spaces are others than Discrete actions and Box observations.
      ImportError: the environment needs a package that is not installed.
    """
    _check(num_envs, max_episode_steps, repeat_action_probability)
    if not names.ATARI_GAMES and (name in scores.GAMES or name.startswith("ALE/")):
        raise ImportError('ale-py is not installed; it is an option: pip install "rbs-tf[atari]"')
    name = names.ATARI_IDS.get(name, name)
    frames = {
        "img_height": img_height,
        "img_width": img_width,
        "grayscale": grayscale,
        "stack_num": stack_num,
    }
    lives = {"fire_on_new_life": fire_on_new_life, "terminal_on_life_loss": terminal_on_life_loss}
    _check_atari(name, {**frames, **lives})
    vector_env: gymnasium.vector.VectorEnv
    if name in names.ATARI_GAMES:
        from rbs_tf.environments import atari

        vector_env = atari.vector_environment(
            name,
            num_envs,
            full_action_set,
            max_episode_steps,
            repeat_action_probability or 0.0,
            {
                option: names.RAW_FRAMES[option] if value is None else value
                for option, value in frames.items()
            },
            bool(fire_on_new_life),
            bool(terminal_on_life_loss),
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

    try:  # here, for a typo need not wait the seconds that TensorFlow takes
        from rbs_tf.environments.batched import GymnasiumVectorEnvironment
    except ModuleNotFoundError as error:
        raise ImportError(
            f'environments are batched by TF-Agents, and {error.name} is not installed: pip install "rbs-tf[tf-agents]"'
        ) from error

    return GymnasiumVectorEnvironment(
        vector_env,
        name=name,
        game=name if name in names.ATARI_GAMES else None,
        seed=seed,
    )


def _check(
    num_envs: int,
    max_episode_steps: int | None,
    repeat_action_probability: float | None,
) -> None:
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: expected at least 1")
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(
            f"max_episode_steps={max_episode_steps}: expected at least 1, or None for the game's own"
        )
    if repeat_action_probability is not None and not 0 <= repeat_action_probability <= 1:
        raise ValueError(f"repeat_action_probability={repeat_action_probability}: expected 0 to 1")


def _check_atari(name: str, options: dict[str, int | bool | None]) -> None:
    given = {option: value for option, value in options.items() if value is not None}
    if given and name not in names.ATARI_GAMES:
        raise ValueError(
            f"{', '.join(given)}: these are for Atari's plain names (pong), which {name!r} is not; leave them at None"
        )
    for option, value in given.items():
        counts = option in ("img_height", "img_width", "stack_num")
        if counts and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{option}={value!r}: expected a whole number of at least 1")
        if not counts and not isinstance(value, bool):
            raise ValueError(f"{option}={value!r}: expected True, False or None")


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
