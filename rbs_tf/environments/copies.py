"""Copies of one environment that step together; whatever goes wrong in a copy is named with it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rbs_tf.environments.wrappers import in_words, part_of
from rbs_tf.errors import EnvironmentFault, Unsuitable, described
from rbs_tf.returns import real_numbers, unmasked

_TODAYS_API = (
    "Gymnasium calls reset(seed=..., options=...), which gives (observation, info), and step(action), which gives"
    " (observation, reward, terminated, truncated, info); the package shimmy wraps environments of the old Gym"
)

log = logging.getLogger(__name__)


class Copies(gymnasium.vector.VectorEnv):
    """N copies of an environment, stepped one after the other; each starts its next episode in the step behind a last.

    Shapes and dtypes of all copies agree, their bounds need not: observations lie within the widest bounds, actions
    within those that all copies take. `info` stays empty.

    Args:
      make_one: makes a copy whose observations are an array (Box), or arrays by name (a Dict of Box).
      num_envs: N.
      name: of the environment, in messages.

    Raises:
      EnvironmentFault: a copy cannot be made; those made before it are closed again.
      ValueError: spaces that cannot be dealt with, or that differ in more than bounds.
    """

    def __init__(self, make_one: Callable[[], gymnasium.Env], num_envs: int, name: str):
        self.num_envs, self._name = num_envs, name
        self.envs: list[gymnasium.Env] = []
        self._ended = np.zeros(num_envs, bool)
        try:
            for index in range(num_envs):
                self._make(make_one, index)
            self._describe()
        except BaseException:
            self.close()
            raise

    def _make(self, make_one: Callable[[], gymnasium.Env], index: int) -> None:
        try:
            env = make_one()
            self.envs.append(env)
            _check_output()
            _check_reset(env)
        except Unsuitable as error:
            raise Unsuitable(f"{self._name}: {error}") from error
        except (Exception, SystemExit) as error:
            which = self._where(index) if self.num_envs > 1 else self._name
            raise EnvironmentFault(f"{which} cannot be made: {described(error)}") from error

    def _describe(self) -> None:
        """Takes over spaces and metadata, whose classes may be anybody's."""
        try:
            metadata = self.envs[0].metadata
            self.metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
            seen = [env.observation_space for env in self.envs]
            self.single_observation_space = _common(seen, np.min, np.max)
            self.single_action_space = _common([env.action_space for env in self.envs], np.max, np.min)
            batch = functools.partial(gymnasium.vector.utils.batch_space, n=self.num_envs)
            self.observation_space = batch(self.single_observation_space)
            self.action_space = batch(self.single_action_space)
        except Unsuitable as error:
            raise Unsuitable(f"{self._name}: {error}") from error
        except (Exception, SystemExit) as error:
            raise EnvironmentFault(f"{self._name}: its spaces or metadata: {described(error)}") from error
        self.metadata["autoreset_mode"] = gymnasium.vector.AutoresetMode.NEXT_STEP

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seeds = [None] * self.num_envs if seed is None else seed
        seeds = [seeds + index for index in range(self.num_envs)] if isinstance(seeds, int) else seeds
        observations = self._room()
        for index, (env, own) in enumerate(zip(self.envs, seeds, strict=True)):
            try:
                observation, _ = env.reset(seed=own, options=options)
                _check_output()
                _put(observations, index, observation)
            except (Exception, SystemExit) as error:
                raise self._fault(index, error) from error
        self._ended = np.zeros(self.num_envs, bool)
        return observations, {}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, rewards = self._room(), np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            try:
                if self._ended[index]:
                    observation, _ = env.reset()
                else:
                    observation, reward, ended, cut, _ = env.step(action)
                    rewards[index] = _number("the reward", reward)
                    terminated[index], truncated[index] = _flag("terminated", ended), _flag("truncated", cut)
                _put(observations, index, observation)
                _check_output()
            except (Exception, SystemExit) as error:
                raise self._fault(index, error) from error
        self._ended = terminated | truncated
        return observations, rewards, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every copy; one that cannot be closed does not keep the others from it, nor a run from its end."""
        for index, env in enumerate(self.envs):
            try:
                env.close()
            except (Exception, SystemExit) as error:
                log.warning(f"{self._where(index)} cannot be closed: {described(error)}")

    def _room(self) -> Any:
        create = gymnasium.vector.utils.create_empty_array
        return create(self.single_observation_space, self.num_envs, fn=np.empty)

    def _where(self, index: int) -> str:
        return f"{self._name}, copy {index + 1} of {self.num_envs}"

    def _fault(self, index: int, error: BaseException) -> EnvironmentFault:
        hint = f". {_TODAYS_API}" if "unpack" in described(error) else ""
        return EnvironmentFault(f"{self._where(index)}: {described(error)}{hint}")


def _check_reset(env: Any) -> None:
    """Refuses an environment, or a wrapper in it, of the API before Gymnasium 0.26."""
    while env is not None:
        try:
            inspect.signature(env.reset).bind(seed=0, options=None)
        except TypeError as error:
            raise TypeError(f"{type(env).__name__}.reset(): {error}. {_TODAYS_API}") from error
        env = env.env if isinstance(env, gymnasium.Wrapper) else None


def _check_output() -> None:
    """Refuses what has closed the program's output, and lets the program go on without one."""
    if sys.stdout is not None and sys.stdout.closed:
        sys.stdout = None  # type: ignore[assignment]  # print() says nothing then
        raise ValueError("it has closed sys.stdout, which is not its own")


def _number(what: str, value: Any) -> float:
    """The value of one real number: of an array, too, that holds nothing else."""
    try:
        if isinstance(value, float | int):  # at once: this is in every step
            return float(value)
        return float(real_numbers(what, value).item())
    except (ValueError, OverflowError) as error:  # `item` is of one number only
        raise ValueError(
            f"{what} is {described(value, typed=True)}: expected a number that float64 holds"
        ) from error


def _flag(what: str, value: Any) -> bool:
    """The value of something that is True or False, or 1 or 0."""
    if value is True or value is False:
        return value
    with contextlib.suppress(ValueError):
        if (number := _number(what, value)) in (0.0, 1.0):
            return bool(number)
    raise ValueError(f"{what} is {described(value, typed=True)}: expected True or False")


def _put(observations: Any, index: int, observation: Any, of: str = "") -> None:
    """Copies the observation of a copy to its place; NumPy would stretch one of another shape."""
    if isinstance(observations, dict):
        for name, room in observations.items():
            _put(room, index, part_of(observation, name), f" {name!r}")
        return
    unmasked("an observation", observation)
    array, room = np.asarray(observation), observations[index]
    if observation is None:
        raise ValueError(f"an observation{of} is None, and its space says {room.dtype} {room.shape}")
    if array.shape != room.shape or not np.can_cast(array.dtype, room.dtype, "same_kind"):
        raise ValueError(
            f"an observation{of} is {array.dtype} {array.shape}, and its space says {room.dtype} {room.shape}"
        )
    observations[index] = array


def _common(of_copies: list[Any], lower: Callable, upper: Callable) -> spaces.Space:
    """One space for all copies: `lower` and `upper` choose from their bounds [N, ...] where these differ."""
    first: Any = of_copies[0]
    if not isinstance(first, spaces.Space):
        raise Unsuitable(f"expected a space, got {in_words(first)}")
    names = [getattr(space, "spaces", {}).keys() for space in of_copies]
    if isinstance(first, spaces.Dict) and all(first.keys() == each for each in names):
        return spaces.Dict({name: _common([s[name] for s in of_copies], lower, upper) for name in first})
    for index, space in enumerate(of_copies):
        boxes = isinstance(first, spaces.Box) and isinstance(space, spaces.Box)
        same = (space.shape, space.dtype) == (first.shape, first.dtype) if boxes else space == first
        if not same:
            raise Unsuitable(
                f"copies must have the same spaces but for their bounds: copy 1 has {in_words(first)}, copy "
                f"{index + 1} {in_words(space)}"
            )
    if not isinstance(first, spaces.Box) or all(space == first for space in of_copies):
        return first
    low = lower([space.low for space in of_copies], axis=0)
    high = upper([space.high for space in of_copies], axis=0)
    if np.any(low > high):
        raise Unsuitable(
            f"there is no action that all copies take: their bounds are {', '.join(map(in_words, of_copies))}"
        )
    return spaces.Box(low, high, dtype=first.dtype)  # type: ignore[arg-type]  # it takes what NumPy takes
