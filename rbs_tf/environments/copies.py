"""Copies of one environment that step together; whatever goes wrong in a copy is named with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rbs_tf.environments.wrappers import describe_space, find_part
from rbs_tf.errors import EnvironmentFault, Unsuitable, describe

_TODAYS_API = (
    "Gymnasium calls reset(seed=..., options=...), which gives (observation, info), and step(action), which gives"
    " (observation, reward, terminated, truncated, info); the package shimmy wraps environments of the old Gym"
)
# In the errors that environments of the old Gym lead to.
_OLD_API = ("to unpack", "unexpected keyword argument")

log = logging.getLogger(__name__)


class Copies(gymnasium.vector.VectorEnv):
    """N copies of an environment, stepped one after the other; each starts its next episode in the step behind a last.

    All copies have the same spaces. Rewards are float32, as they are stored; `info` stays empty.

    Args:
      make_one: makes a copy whose observations are an array (Box), or arrays by name (a Dict of Box).
      num_envs: N.
      name: of the environment, in messages.

    Raises:
      EnvironmentFault: a copy cannot be made; those made before it are closed again.
      ValueError: spaces that cannot be dealt with, or that differ.
    """

    def __init__(self, make_one: Callable[[], gymnasium.Env], num_envs: int, name: str):
        self.num_envs, self._name = num_envs, name
        self.envs: list[gymnasium.Env] = []
        self._ended = np.zeros(num_envs, bool)
        try:
            for _ in range(num_envs):
                self.envs.append(make_one())
            self._take_over_spaces()
        except Unsuitable as error:
            self.close()
            raise Unsuitable(f"{name}: {error}") from error
        except (Exception, SystemExit) as error:
            self.close()
            which = self._name_copy(len(self.envs)) if max(1, len(self.envs)) < num_envs else name
            raise EnvironmentFault(f"{which} cannot be made: {describe(error)}") from error

    def _take_over_spaces(self) -> None:
        first = self.envs[0]
        batch = gymnasium.vector.utils.batch_space
        observation_space = first.observation_space
        action_space = first.action_space
        for index, env in enumerate(self.envs):
            if (env.observation_space, env.action_space) != (observation_space, action_space):
                other = f"{describe_space(env.observation_space)} and {describe_space(env.action_space)}"
                raise Unsuitable(
                    "copies must have the same spaces of observations and actions: copy 1 has "
                    f"{describe_space(observation_space)} and {describe_space(action_space)}, copy {index + 1} {other}"
                )
        self.metadata = dict(first.metadata, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch(observation_space, self.num_envs)
        self.action_space = batch(action_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seeds = [None] * self.num_envs if seed is None else seed
        seeds = [seeds + index for index in range(self.num_envs)] if isinstance(seeds, int) else seeds
        observations = self._make_room()
        for index, (env, own) in enumerate(zip(self.envs, seeds, strict=True)):
            try:
                observation, _ = env.reset(seed=own, options=options)
                _store_observation(observations, index, observation)
            except (Exception, SystemExit) as error:
                raise self._make_fault(index, error) from error
        self._ended = np.zeros(self.num_envs, bool)
        return observations, {}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations = self._make_room()
        rewards = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            try:
                if self._ended[index]:
                    observation, _ = env.reset()
                else:
                    observation, reward, ended, cut, _ = env.step(action)
                    rewards[index] = _read_number("the reward", reward)
                    terminated[index] = _read_flag("terminated", ended)
                    truncated[index] = _read_flag("truncated", cut)
                _store_observation(observations, index, observation)
            except (Exception, SystemExit) as error:
                raise self._make_fault(index, error) from error
        self._ended = terminated | truncated
        return observations, rewards, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every copy; one that cannot be closed does not keep the others from it, nor a run from its end."""
        for index, env in enumerate(self.envs):
            try:
                env.close()
            except (Exception, SystemExit) as error:
                log.warning(f"{self._name_copy(index)} cannot be closed: {describe(error)}")

    def _make_room(self) -> Any:
        create = gymnasium.vector.utils.create_empty_array
        return create(self.single_observation_space, self.num_envs, fn=np.empty)

    def _name_copy(self, index: int) -> str:
        return f"{self._name}, copy {index + 1} of {self.num_envs}"

    def _make_fault(self, index: int, error: BaseException) -> EnvironmentFault:
        words = describe(error)
        hint = f". {_TODAYS_API}" if any(sign in words for sign in _OLD_API) else ""
        return EnvironmentFault(f"{self._name_copy(index)}: {words}{hint}")


def _read_number(what: str, value: Any) -> float:
    """The value of one real number, or of an array of one."""
    if isinstance(value, float | int):  # at once: this is in every step
        return float(value)
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"{what} is {describe(value, typed=True)}: expected a number")
    return float(array.item())


def _read_flag(what: str, value: Any) -> bool:
    """The value of something that is True or False, or 1 or 0."""
    if value is True or value is False:
        return value
    number = _read_number(what, value)
    if number not in (0.0, 1.0):
        raise ValueError(f"{what} is {describe(value, typed=True)}: expected True or False")
    return bool(number)


def _store_observation(observations: Any, index: int, observation: Any, of: str = "") -> None:
    """Copies the observation of a copy to its place; NumPy would stretch one of another shape."""
    if isinstance(observations, dict):
        for name, room in observations.items():
            _store_observation(room, index, find_part(observation, name), f" {name!r}")
        return
    array = np.asarray(observation)
    room = observations[index]
    if array.shape != room.shape or not np.can_cast(array.dtype, room.dtype, "same_kind"):
        raise ValueError(
            f"an observation{of} is {array.dtype} {array.shape}, and its space says {room.dtype} {room.shape}"
        )
    observations[index] = array
