"""From a name to a batched environment, Atari set up as in the paper's appendix on its experiments."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium

from rbs_tf import scores
from rbs_tf.environments import names
from rbs_tf.environments.copies import Copies
from rbs_tf.environments.wrappers import (
    FlatObservation,
    PartsObservation,
    RandomStart,
    channels_last,
    holds_images,
)
from rbs_tf.errors import EnvironmentFault, describe
from rbs_tf.extras import explain_missing

if TYPE_CHECKING:
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment


log = logging.getLogger(__name__)


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
    env_kwargs: Mapping[str, Any] | None = None,
    random_steps: int = 0,
) -> GymnasiumVectorEnvironment:
    """Makes `num_envs` copies of an environment that step together.

    Args:
      name: a plain Atari name ("pong") or its id ("ALE/Pong-v5", which means the same here); a MinAtar name
        ("minatar/space_invaders"); or any id that Gymnasium knows, or that a module registers ("module:Id-v0"). Atari
        observations are uint8 [height, width, channels], each frame the maximum of the last two of four; MinAtar's are
        uint8 [10, 10, C], zeros and ones; other arrays keep their shape and dtype, but for images whose first axis is
        the shortest: their channels become the last. Numbers (Discrete, MultiDiscrete) become one-hot, Dict and Tuple
        one vector, float32 [P], but for a Dict with images in it, which becomes a dictionary of arrays.
      num_envs: environments in the batch.
      seed: equal seeds and actions give equal streams; every environment gets a seed derived from it. None: from the
        operating system.
      full_action_set: for Atari's and MinAtar's plain names: all of the console's 18 actions (Skiing takes 9)
        or MinAtar's 6, instead of only those that the game makes use of.
      max_episode_steps: steps (4 frames each in Atari) until an episode is cut as a time-out, which leaves
        its discount at 1. None: 27,000 for Atari (108,000 frames), otherwise what Gymnasium has registered.
      repeat_action_probability: for Atari's and MinAtar's plain names: the chance that the previous action is
        repeated instead. None: 0 for Atari, 0.1 for MinAtar, which is MinAtar's own.
      img_height: Atari: what frames are resized to, in pixels. None: 210, the console's own.
      img_width: likewise. None: 160.
      grayscale: Atari: one channel per frame in place of three. None: no.
      stack_num: Atari: frames in an observation, the oldest first; those before an episode's first are zeros. None: 1.
      fire_on_new_life: Atari: an action given right after an episode's start or the loss of a life becomes FIRE, in
        games that have it; else Breakout waits for it forever. None: no.
      terminal_on_life_loss: Atari: discount 0 on a step that loses a life; the episode goes on. None: no.
      env_kwargs: for Gymnasium's ids: arguments of the environment, `gymnasium.make(id, **env_kwargs)`.
      random_steps: each episode begins behind 0 to so many random steps, see `RandomStart`; not for Atari, where games
        begin behind 0 to 30 no-ops.

    Raises:
      ValueError: the name is unknown (the nearest ones are given), an argument does not fit, actions are neither
        Discrete nor Box, or observations cannot be made an array.
      ImportError: the environment needs a package that is not installed.
      EnvironmentFault: the environment raises something else when it is made.
    """
    check_name(name)
    sizes = {
        "num_envs": num_envs,
        "max_episode_steps": max_episode_steps,
        "img_height": img_height,
        "img_width": img_width,
        "stack_num": stack_num,
    }
    for option, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{option} is {size}: write a whole number of at least 1")
    name = names.ATARI_IDS.get(name, name)
    is_atari = name in names.ATARI_GAMES
    game = names.atari_game(name.rpartition(":")[2])
    of_atari: dict[str, Any] = {
        "img_height": img_height,
        "img_width": img_width,
        "grayscale": grayscale,
        "stack_num": stack_num,
        "fire_on_new_life": fire_on_new_life,
        "terminal_on_life_loss": terminal_on_life_loss,
    }
    of_atari = {option: value for option, value in of_atari.items() if value is not None}
    sticky = repeat_action_probability or 0.0
    for given, option, whose, fits in (
        (of_atari, ", ".join(of_atari), "Atari's plain names (pong)", is_atari),
        (env_kwargs, "env_kwargs", "Gymnasium's ids", not is_atari),
        (random_steps, "random_steps", "environments that do not begin behind no-ops", not is_atari),
        (sticky, "repeat_action_probability", "Atari and MinAtar", is_atari or name in names.MINATAR_GAMES),
    ):
        if given and not fits:
            cure = "take one of those, or leave out what sets it, your argument or the config"
            if game is not None:
                cure = f"take {game!r}, the same game by the paper's rules (--env={game})"
            raise ValueError(f"{option}: for {whose}, not for {name!r}; {cure}")
    if game is not None:
        _say_that_rules_differ(name, game)
    vector_env: gymnasium.vector.VectorEnv
    make_one: Callable[[], gymnasium.Env]
    life_lost = None
    if is_atari:
        from rbs_tf.environments import atari

        tells = of_atari.pop("terminal_on_life_loss", False)
        vector_env = frames = atari.vector_environment(
            name, num_envs, full_action_set, max_episode_steps, sticky, **of_atari
        )
        life_lost = (lambda: frames.life_lost) if tells else None
    else:
        arguments = dict(env_kwargs or {})
        if name in names.MINATAR_GAMES:
            arguments = {"use_minimal_action_set": not full_action_set} | arguments
            if repeat_action_probability is not None:
                arguments.setdefault("sticky_action_prob", repeat_action_probability)
            make_one = _gymnasium(names.minatar_id(name), max_episode_steps, arguments)
        else:
            make_one = _gymnasium(name.rpartition(":")[2], max_episode_steps, arguments)
        vector_env = Copies(
            functools.partial(_make_array_environment, make_one, random_steps), num_envs, name
        )

    # Only here: a misspelt name need not wait for TensorFlow.
    with explain_missing("rbs_tf.environments"):
        from rbs_tf.environments.batched import GymnasiumVectorEnvironment

    try:
        return GymnasiumVectorEnvironment(
            vector_env, name, game=name if is_atari else None, seed=seed, life_lost=life_lost
        )
    except ValueError:
        vector_env.close()
        raise


@functools.cache  # once a process, not for each of a run's environments
def _say_that_rules_differ(name: str, game: str) -> None:
    log.warning(
        f"{name} plays {game!r} by other rules than the paper's: another frame skip, no maximum over two frames, no "
        f"no-ops at the start. For the paper's take {game!r} (--env={game})"
    )


def check_name(name: str) -> None:
    """Raises what `make` does where there is no such environment, or its package is not installed; makes none."""
    if not isinstance(name, str):
        raise ValueError(
            f"environments.make takes an environment's name, as 'CartPole-v1'; got {describe(name)}. Give a class of "
            "your own a name: gymnasium.register('Mine-v0', entry_point=Mine); in another module, 'module:Mine-v0'"
        )
    if name in scores.GAMES or name.startswith("ALE/"):
        with explain_missing("Atari"):
            importlib.import_module("ale_py")
    if name in names.MINATAR_GAMES:
        _register_minatar()
    elif names.ATARI_IDS.get(name, name) not in names.ATARI_GAMES:
        _register(name)


def _gymnasium(
    env_id: str, max_episode_steps: int | None, arguments: Mapping[str, Any]
) -> Callable[[], gymnasium.Env]:
    """Returns a function that makes one of Gymnasium's environments."""
    if arguments:
        _check_arguments(env_id, arguments)
    # The checker costs as much as a small environment's step.
    options = {"max_episode_steps": max_episode_steps, "disable_env_checker": True, **arguments}
    return functools.partial(gymnasium.make, env_id, **options)


def _check_arguments(env_id: str, arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that the environment's constructor does not take, before it is called."""
    made_by: Any = gymnasium.spec(env_id).entry_point
    try:
        creator = made_by if callable(made_by) else gymnasium.envs.registration.load_env_creator(made_by)
        signature = inspect.signature(creator)
    except Exception:  # making it will say why
        return
    try:
        signature.bind_partial(**arguments)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "none"
        raise ValueError(f"env_kwargs: {env_id} {error}; it takes {takes}") from error


def _make_array_environment(make_one: Callable[[], gymnasium.Env], random_steps: int) -> gymnasium.Env:
    env = make_one()
    env = RandomStart(env, random_steps) if random_steps else env
    if isinstance(env.observation_space, gymnasium.spaces.Box):
        return channels_last(env)
    return PartsObservation(env) if holds_images(env.observation_space) else FlatObservation(env)


def _register(name: str) -> None:
    """Imports the module that registers an id; raises ValueError if there is no such id."""
    module, _, env_id = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError:
            raise
        except (Exception, SystemExit) as error:
            raise EnvironmentFault(f"{name}: importing {module}: {describe(error)}") from error
    elif name.startswith("MinAtar/"):
        _register_minatar()
    if env_id not in gymnasium.registry:
        raise _unknown(name)


def _unknown(name: str) -> ValueError:
    module, colon, env_id = name.rpartition(":")
    # A new process knows the module's ids only with its name.
    nearest = [f"{module}{colon}{i}" if i in gymnasium.registry else i for i in names.find_nearest(env_id)]
    return ValueError(
        f"unknown environment {name!r}"
        + (f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else "")
        + "\nExpected an Atari game (pong), a MinAtar game (minatar/breakout) or a Gymnasium id (CartPole-v1), with"
        " the module that registers it (my_module:MyEnv-v0) if it is yours; `python train.py --list_envs` lists them."
    )


def _register_minatar() -> None:
    with explain_missing("MinAtar"):
        importlib.import_module("minatar")
        games = importlib.import_module("minatar.gym")
    if "MinAtar/Breakout-v1" not in gymnasium.registry:  # registering twice prints a warning
        games.register_envs()
