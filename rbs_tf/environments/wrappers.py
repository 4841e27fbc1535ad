"""Environments of other kinds as Gymnasium's with one array as observation."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rbs_tf.errors import Unsuitable

MOST_STATES = 10_000  # of one number: a larger one makes a vector that no torso is meant for


class FlatObservation(gymnasium.ObservationWrapper):
    """Observations as one vector float32 [P], by `gymnasium.spaces.flatten`.

    Numbers of `Discrete` and `MultiDiscrete` are one-hot; parts of `Dict` and `Tuple` follow one another, whatever
    their shapes; pixels in them keep their values.

    Raises:
      ValueError: a part that is no array and no number (`Graph`, `Sequence`, `Text`), or a number of more than 10,000
        states.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        for part in _parts(env.observation_space):
            if not isinstance(part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
                raise Unsuitable(
                    f"expected observations of arrays and numbers, got {part}; wrap the environment, and register that"
                    " under an id of its own"
                )
            states = {spaces.Discrete: "n", spaces.MultiDiscrete: "nvec"}.get(type(part))
            if states and np.max(getattr(part, states)) > MOST_STATES:
                raise Unsuitable(
                    f"observations are one-hot, and {part} has too many states: expected at most {MOST_STATES:,}; wrap"
                    " the environment, and register that under an id of its own"
                )
        flat = spaces.flatten_space(env.observation_space)
        assert isinstance(flat, spaces.Box)
        low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        return np.asarray(spaces.flatten(self.env.observation_space, observation), np.float32)


def channels_last(env: gymnasium.Env, channels_first: bool | None) -> gymnasium.Env:
    """An environment whose images, if its observations are any, are [height, width, channels].

    Args:
      channels_first: they come as [channels, height, width]; None: they must not look like it.

    Raises:
      ValueError: they look like it, or `channels_first` is given for what is no image.
    """
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    if channels_first is None and len(space.shape) == 3 and space.shape[0] < min(space.shape[1:]):
        raise Unsuitable(
            f"observations of shape {space.shape} look like images with their channels first, and networks take"
            " [height, width, channels]: write environments.make.channels_first = True to have them transposed, or"
            f" = False if {space.shape[0]} is their height"
        )
    if not channels_first:
        return env
    if len(space.shape) != 3:
        raise Unsuitable(f"channels_first is for images, and observations have the shape {space.shape}")
    last = functools.partial(np.moveaxis, source=0, destination=-1)
    space = spaces.Box(last(space.low), last(space.high), dtype=space.dtype)  # type: ignore[arg-type]
    return gymnasium.wrappers.TransformObservation(env, last, space)


class FromDmEnv(gymnasium.Env):
    """A dm_env environment of one array and one number of actions; a last step with discount 0 is terminal.

    Args:
      load: makes the `dm_env.Environment` from a seed; None: one from the operating system. Every `reset` with a seed
        calls it.
    """

    def __init__(self, load: Callable[[int | None], Any]):
        self.metadata = {"render_modes": []}  # its own: vector environments write into it
        self._load, self._environment = load, load(None)
        seen = self._environment.observation_spec()
        low, high = (
            np.full(seen.shape, getattr(seen, name, limit), seen.dtype)
            for name, limit in (("minimum", -np.inf), ("maximum", np.inf))
        )
        self.observation_space = spaces.Box(low, high, dtype=seen.dtype)
        self.action_space = spaces.Discrete(self._environment.action_spec().num_values)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._environment = self._load(seed)
        return self._environment.reset().observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time_step = self._environment.step(int(action))
        terminated = time_step.last() and time_step.discount == 0
        return (
            time_step.observation,
            time_step.reward,
            terminated,
            time_step.last() and not terminated,
            {},
        )

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(type(self._environment), "__getattr__"):  # bsuite's wrappers of rewards load without end
            raise pickle.PicklingError(f"{type(self._environment).__name__} does not load again")
        return self.__dict__


def _parts(space: spaces.Space) -> Iterator[spaces.Space]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _parts(part)
    else:
        yield space
