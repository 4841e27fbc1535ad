"""A `gymnasium.vector` environment as one batched TF-Agents `PyEnvironment`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from rbs_tf.environments.wrappers import MOST_STATES, WRAP, describe_space
from rbs_tf.errors import EnvironmentFault


class GymnasiumVectorEnvironment(py_environment.PyEnvironment):
    """Steps N environments at once; each starts its next episode by itself.

    Actions are integers [N], counted from 0, for a Discrete space, and [N, ...] within its limits for a Box. Time
    steps hold step_type int32 [N], reward float32 [N], discount float32 [N] and observation [N, ...] in the dtype
    of the observation space (bool becomes uint8), or such arrays by name for a Dict of Box.

    An episode runs FIRST, MID, ..., LAST. A terminal LAST has discount 0; a time-out LAST keeps discount 1: the episode
    was cut, not over. Both hold the final observation. The step after LAST is the next episode's FIRST, with reward 0
    and discount 1; the action given to it is ignored. `info` is not read. `reset` and `step` raise EnvironmentFault
    for a reward or an observation that is NaN or infinite.

    Args:
      vector_env: with `AutoresetMode.NEXT_STEP`, a Discrete or Box action space, and observations in a Box or a Dict of
        them; closed with this environment.
      name: what to call the environment in messages and summaries.
      game: plain name of the Atari game, for human-normalised scores; None for anything else.
      seed: equal seeds give equal streams; None draws one from the operating system.
      life_lost: which environments' discount is 0 after the step just made, bool [N]; None: only of those that have
        terminated.

    Raises:
      ValueError: the spaces or the autoreset mode are others than those above.
    """

    def __init__(
        self,
        vector_env: gymnasium.vector.VectorEnv,
        name: str,
        *,
        game: str | None = None,
        seed: int | None = None,
        life_lost: Callable[[], np.ndarray] | None = None,
    ):
        super().__init__()
        actions, pixels = _check_spaces(vector_env, name)
        self.name = name
        self.game = game
        self._life_lost = life_lost
        self._held: gymnasium.vector.VectorEnv | None = vector_env
        self._num_envs: int = vector_env.num_envs
        # Not seed, seed + 1, ...: environment 1 of run 0 would be the twin of environment 0 of run 1.
        # 31 bits, because that is what ALE takes.
        self._seeds: list[int] | None = [
            int(state) >> 1 for state in np.random.SeedSequence(seed).generate_state(self._num_envs)
        ]
        self._ended = np.zeros(self._num_envs, bool)

        self._discrete = isinstance(actions, gymnasium.spaces.Discrete)
        if isinstance(actions, gymnasium.spaces.Discrete):
            self._first_action = actions.start.item()
            self._action_spec = array_spec.BoundedArraySpec((), np.int32, 0, actions.n.item() - 1, "action")
        else:
            self._action_spec = _make_spec(actions, "action")
        self._observation_spec = _map_parts(lambda part: _make_spec(part, "observation"), pixels)

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._num_envs

    @property
    def num_actions(self) -> int:
        """A: actions are int32 in [0, A). Raises ValueError where they are continuous."""
        if not self._discrete:
            given = self.vector_env.single_action_space
            raise ValueError(f"{self.name}: expected a Discrete action space, got {given}")
        return int(self._action_spec.maximum) + 1

    @property
    def vector_env(self) -> gymnasium.vector.VectorEnv:
        if self._held is None:
            raise ValueError(f"{self.name} is closed; make another one")
        return self._held

    def observation_spec(self) -> Any:
        return self._observation_spec

    def action_spec(self) -> array_spec.BoundedArraySpec:
        return self._action_spec

    def close(self) -> None:
        """Ends the environments and their threads; nothing but `close` may be called afterwards."""
        if self._held is not None:
            self._held.close()
            self._held = None  # ALE's threads end with the last reference

    def _reset(self) -> ts.TimeStep:
        observation, _ = self.vector_env.reset(
            seed=self._seeds  # type: ignore[arg-type]  # VectorEnv's hint lacks the lists that its kinds take
        )
        self._seeds = None  # seeding again would play the first episode again
        self._ended = np.zeros(self._num_envs, bool)
        return self._check_finite(ts.restart(_map_parts(_convert_bool, observation), self._num_envs))

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        first = self._ended
        action = self._check_actions(action, first)
        if self._discrete:
            action = np.where(first, 0, action) + self._first_action
        observation, reward, terminated, truncated, _ = self.vector_env.step(action)
        self._ended = terminated | truncated
        step_type = np.where(
            self._ended, ts.StepType.LAST, np.where(first, ts.StepType.FIRST, ts.StepType.MID)
        )
        over = terminated if self._life_lost is None else terminated | self._life_lost()
        return self._check_finite(
            ts.TimeStep(
                step_type.astype(np.int32),
                reward.astype(np.float32, copy=False),
                1 - over.astype(np.float32),
                _map_parts(_convert_bool, observation),
            )
        )

    def _check_finite(self, time_step: ts.TimeStep) -> ts.TimeStep:
        parts = {"reward": time_step.reward}
        observation = time_step.observation
        if isinstance(observation, dict):
            parts |= {f"observation {name!r}": part for name, part in observation.items()}
        else:
            parts["observation"] = observation
        for what, values in parts.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                index, *rest = np.argwhere(~np.isfinite(values))[0]
                raise EnvironmentFault(
                    f"{self.name}, environment {index}: {what} {values[(index, *rest)]}; it must be finite. Repair "
                    "the environment, or clip there what it gives"
                )
        return time_step

    def _check_actions(self, action: np.ndarray, ignored: np.ndarray) -> np.ndarray:
        action = np.asarray(action)
        spec = self._action_spec
        shape = (self._num_envs, *spec.shape)
        kind = np.integer if np.issubdtype(spec.dtype, np.integer) else np.floating
        if action.shape != shape or not np.issubdtype(action.dtype, kind):
            expected = f"{kind.__name__} actions, one per environment, shape {shape}"
            if action.ndim > len(shape):
                expected += ", as a PyTFEagerPolicy gives with batch_time_steps=False"
            raise ValueError(f"{self.name}: expected {expected}; got {action.dtype} {action.shape}")
        # A policy that scales tanh to the limits may round past them. A NaN is neither above nor below anything.
        nearest = np.clip(action, spec.minimum, spec.maximum)
        fits = np.isclose(action, nearest, rtol=1e-5, atol=0.0).reshape(self._num_envs, -1).all(axis=1)
        wrong = ~fits & ~ignored
        if wrong.any():
            given = f"action {action[wrong][0]} for environment {int(wrong.argmax())}"
            raise ValueError(f"{self.name}: {given}; expected {spec.minimum} to {spec.maximum}")
        return action if self._discrete else nearest


def _check_spaces(
    vector_env: gymnasium.vector.VectorEnv, name: str
) -> tuple[gymnasium.spaces.Discrete | gymnasium.spaces.Box, Any]:
    """Actions and observations of each environment, if `GymnasiumVectorEnvironment` can deal with them."""
    actions, observations = vector_env.single_action_space, vector_env.single_observation_space
    parts = (
        observations.spaces.values() if isinstance(observations, gymnasium.spaces.Dict) else [observations]
    )
    if not isinstance(actions, gymnasium.spaces.Discrete | gymnasium.spaces.Box):
        fits = "a Discrete action space, or a Box for agents that take continuous actions"
        raise ValueError(f"{name}: expected {fits}; got {describe_space(actions)}")
    if isinstance(actions, gymnasium.spaces.Discrete) and actions.n.item() > MOST_STATES:
        raise ValueError(f"{name}: expected at most {MOST_STATES:,} actions, got {describe_space(actions)}")
    if not all(isinstance(part, gymnasium.spaces.Box) and 0 not in part.shape for part in parts):
        raise ValueError(
            f"{name}: expected an array (Box) as observation, got {describe_space(observations)}; {WRAP}"
        )
    mode = vector_env.metadata.get("autoreset_mode")
    if mode != gymnasium.vector.AutoresetMode.NEXT_STEP:
        raise ValueError(f"{name}: expected AutoresetMode.NEXT_STEP, got {mode}")
    return actions, observations


def _map_parts(function: Callable, observation: Any) -> Any:
    """An observation's arrays, or spaces, by name where they have names."""
    if isinstance(observation, dict | gymnasium.spaces.Dict):
        return {name: function(part) for name, part in observation.items()}
    return function(observation)


def _make_spec(space: gymnasium.spaces.Box, name: str) -> array_spec.BoundedArraySpec:
    dtype = np.uint8 if space.dtype == bool else space.dtype
    low = _shrink_bound(space.low)
    high = _shrink_bound(space.high)
    return array_spec.BoundedArraySpec(space.shape, dtype, low, high, name)


def _convert_bool(observation: np.ndarray) -> np.ndarray:
    return observation.view(np.uint8) if observation.dtype == bool else observation


def _shrink_bound(limit: np.ndarray) -> np.ndarray | np.generic:
    """One number when all elements share it, which keeps the spec of a frame small."""
    return limit.flat[0] if (limit == limit.flat[0]).all() else limit
