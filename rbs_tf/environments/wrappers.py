"""Environments of other kinds as Gymnasium's with one array as observation."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rbs_tf.errors import Unsuitable, describe

WRAP = "wrap the environment, and register that under an id of its own"
MOST_STATES = 10_000  # of one number: a larger one makes a vector that no torso is meant for


class RandomStart(gymnasium.Wrapper):
    """Begins episodes behind 0 to `most` random steps, whose rewards do not count, as ALE's do behind no-ops.

    An episode that ends within them begins again, without.
    """

    def __init__(self, env: gymnasium.Env, most: int):
        super().__init__(env)
        self._most = most
        self._random = np.random.default_rng()
        self._actions = copy.deepcopy(env.action_space)  # whose own generator may be the environment's

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        start = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._random = np.random.default_rng(seed)
            self._actions.seed(seed)
        for _ in range(self._random.integers(self._most + 1)):
            observation, _, terminated, truncated, info = self.env.step(self._actions.sample())
            if terminated or truncated:
                return self.env.reset(options=options)
            start = observation, info
        return start


class FlatObservation(gymnasium.ObservationWrapper):
    """Observations as one vector float32 [P], by `gymnasium.spaces.flatten`.

    Numbers of `Discrete` and `MultiDiscrete` are one-hot; parts of `Dict` and `Tuple` follow one another. Raises
    ValueError for a part that is no array and no number, or a number of more than 10,000 states.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = _flat_space(env.observation_space)

    def observation(self, observation: Any) -> np.ndarray:
        return np.asarray(_flatten(self.env.observation_space, observation), np.float32)


class PartsObservation(gymnasium.ObservationWrapper):
    """Dict observations as arrays by name; those of a Dict in a Dict are called "outer/inner".

    Arrays stay what they are, but for images with their channels first, see `channels_last`; anything else is a vector
    as `FlatObservation` makes it. Raises ValueError as that does.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        # Of each part its keys, and what makes an array of it.
        self._parts: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {}
        boxes: dict[str, spaces.Space] = {}
        for path, part in _list_parts(env.observation_space):
            name = "/".join(path)
            convert: Callable[[Any], Any] = np.asarray
            boxes[name] = part
            if not isinstance(part, spaces.Box):
                boxes[name] = _flat_space(part)
                convert = functools.partial(_flatten, part)
            elif turned := _channels_last(part):
                boxes[name] = turned
                convert = _CHANNELS_LAST
            self._parts[name] = path, convert
        self.observation_space = spaces.Dict(boxes)

    def observation(self, observation: Any) -> dict[str, Any]:
        parts = self._parts.items()
        return {
            name: convert(functools.reduce(find_part, path, observation)) for name, (path, convert) in parts
        }


def _flatten(space: spaces.Space, observation: Any) -> Any:
    """`spaces.flatten`, of states that the space has: NumPy would count those below the first from the end."""
    _check_states(space, observation)
    return spaces.flatten(space, observation)


def _check_states(space: spaces.Space, value: Any) -> None:
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            _check_states(part, find_part(value, name))
    elif isinstance(space, spaces.Tuple):
        for part, each in zip(space.spaces, value, strict=True):
            _check_states(part, each)
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and not space.contains(value):
        raise ValueError(
            f"an observation is {describe(value, typed=True)}, and its space says {describe_space(space)}"
        )


def find_part(observation: Any, name: str) -> Any:
    """The part of an observation that has this name."""
    if not isinstance(observation, Mapping) or name not in observation:
        raise ValueError(
            f"an observation is {describe(observation, typed=True)}: expected a dictionary with {name!r}"
        )
    return observation[name]


def channels_last(env: gymnasium.Env) -> gymnasium.Env:
    """An environment whose images, if its observations are any, are [height, width, channels].

    Images whose first axis is the shortest come as [channels, height, width] and are transposed.
    """
    assert isinstance(env.observation_space, spaces.Box)
    space = _channels_last(env.observation_space)
    return gymnasium.wrappers.TransformObservation(env, _CHANNELS_LAST, space) if space else env


def holds_images(space: spaces.Space) -> bool:
    """Whether it is a Dict with an image in it, however deep."""
    return isinstance(space, spaces.Dict) and any(
        len(part.shape or ()) == 3 for _, part in _list_parts(space)
    )


def describe_space(space: spaces.Space) -> str:
    """A space in one line."""
    return " ".join(str(space).split())


_CHANNELS_LAST = functools.partial(np.moveaxis, source=0, destination=-1)


def _channels_last(space: spaces.Box) -> spaces.Box | None:
    """The space of images with their channels last; None if they need no transposing."""
    if len(space.shape) != 3 or space.shape[0] >= min(space.shape[1:]):
        return None
    low, high = _CHANNELS_LAST(space.low), _CHANNELS_LAST(space.high)
    return spaces.Box(low, high, dtype=space.dtype)  # type: ignore[arg-type]  # it takes what NumPy takes


def _flat_space(space: spaces.Space) -> spaces.Box:
    for part in _parts(space):
        if not isinstance(part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise Unsuitable(
                f"expected observations of arrays and numbers, got {describe_space(part)}; {WRAP}"
            )
        states = {spaces.Discrete: "n", spaces.MultiDiscrete: "nvec"}.get(type(part))
        if states and np.max(getattr(part, states)) > MOST_STATES:
            expected = f"expected at most {MOST_STATES:,} for a one-hot vector"
            raise Unsuitable(f"{part} has too many states: {expected}; {WRAP}")
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    return spaces.Box(flat.low.astype(np.float32), flat.high.astype(np.float32), dtype=np.float32)


def _list_parts(
    space: spaces.Dict, of: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], spaces.Space]]:
    """The parts of a Dict, and of each Dict in it, with their keys."""
    for key, part in space.spaces.items():
        if isinstance(part, spaces.Dict):
            yield from _list_parts(part, (*of, key))
        else:
            yield (*of, key), part


def _parts(space: spaces.Space) -> Iterator[spaces.Space]:
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield space
        return
    for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
        yield from _parts(part)
