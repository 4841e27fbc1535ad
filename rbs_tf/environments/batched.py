"""A `gymnasium.vector` environment as one batched TF-Agents `PyEnvironment`."""

from __future__ import annotations

import io
import pickle

import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts


class GymnasiumVectorEnvironment(py_environment.PyEnvironment):
    """Steps N environments at once; each starts its next episode by itself.

    Time steps hold step_type int32 [N], reward float32 [N], discount float32 [N] and observation [N, ...]
    in the dtype of the observation space (bool becomes uint8). An episode runs FIRST, MID, ..., LAST.
    A terminal LAST has discount 0; a time-out LAST keeps discount 1: the episode was cut, not over. Both hold
    the final observation. The step after LAST is the next episode's FIRST, with reward 0 and discount 1; the
    action given to it is ignored.

    Rewards pass through unchecked, NaN included: the statistics refuse what is not finite.
    """

    def __init__(
        self,
        vector_env: gymnasium.vector.VectorEnv,
        name: str,
        *,
        game: str | None = None,
        seed: int | None = None,
        reward_multiplier: float = 1.0,
    ):
        """Takes `vector_env` over, to its closing.

        Args:
          vector_env: with `AutoresetMode.NEXT_STEP`, a Discrete action space and a Box observation space.
          name: what to call the environment in messages and summaries.
          game: plain name of the Atari game, for human-normalised scores; None for anything else.
          seed: equal seeds give equal streams; None draws one from the operating system.
          reward_multiplier: every reward is multiplied by it.

        Raises:
          ValueError: the spaces or the autoreset mode are others than those above.
        """
        super().__init__()
        _check_fit(vector_env, name)
        self.name = name
        self.game = game
        self.reward_multiplier = reward_multiplier
        self._vector_env: gymnasium.vector.VectorEnv | None = vector_env
        self._num_envs: int = vector_env.num_envs
        # Not seed, seed + 1, ...: environment 1 of run 0 would be the twin of environment 0 of run 1.
        # 31 bits, because that is what ALE takes.
        self._seeds: list[int] | None = [
            int(state) >> 1 for state in np.random.SeedSequence(seed).generate_state(self._num_envs)
        ]
        self._ended = np.zeros(self._num_envs, bool)

        actions, pixels = vector_env.single_action_space, vector_env.single_observation_space
        self._first_action = int(actions.start)
        self._action_spec = array_spec.BoundedArraySpec((), np.int32, 0, int(actions.n) - 1, "action")
        self._observation_spec = array_spec.BoundedArraySpec(
            pixels.shape,
            np.uint8 if pixels.dtype == bool else pixels.dtype,
            _bound(pixels.low),
            _bound(pixels.high),
            "observation",
        )

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._num_envs

    @property
    def num_actions(self) -> int:
        """A: actions are int32 in [0, A)."""
        return int(self._action_spec.maximum) + 1

    def observation_spec(self) -> array_spec.BoundedArraySpec:
        return self._observation_spec

    def action_spec(self) -> array_spec.BoundedArraySpec:
        return self._action_spec

    def state(self) -> bytes | None:
        """Everything that the streams to come depend on; None where it cannot be had.

        It can where the environments live in Python alone: MinAtar, CartPole. ALE keeps its state to itself, and
        `gymnasium.utils.EzPickle` makes an environment anew instead of restoring it. Of an environment that draws from
        generators other than its own (`np.random.rand`), those are not in it.
        """
        if type(self._vector_env) is not gymnasium.vector.SyncVectorEnv:
            return None
        stream = io.BytesIO()
        own = self._seeds, self._ended, self._current_time_step
        try:
            _Pickler(stream).dump((gymnasium.__version__, self._vector_env, *own))
        except Exception:  # whatever the classes of an environment raise that were not made for this
            return None
        return stream.getvalue()

    def restore(self, state: bytes) -> None:
        """Goes on where an environment of the same kind was when it gave its `state`.

        It is a pickle, and loading a pickle runs whatever code its writer put there: trust it as you trust them.

        Raises:
          ValueError: it does not load, or is another environment's; everything is as before.
        """
        try:
            version, vector_env, *own = pickle.loads(state)
        except Exception as error:  # of a version whose classes were different, for one
            raise ValueError(
                f"the state of {self.name} does not load: {type(error).__name__}: {error}"
            ) from error
        if version != gymnasium.__version__:
            raise ValueError(f"the state of {self.name} was written with Gymnasium {version}")
        fits = ("num_envs", "single_action_space", "single_observation_space", "metadata")
        if any(getattr(vector_env, name) != getattr(self._vector_env, name) for name in fits):
            raise ValueError(f"{self.name} is no longer the environment whose state was written")
        self._vector_env.close()
        self._vector_env = vector_env
        self._seeds, self._ended, self._current_time_step = own

    def close(self) -> None:
        """Ends the environments and their threads; nothing but `close` may be called afterwards."""
        if self._vector_env is not None:
            self._vector_env.close()
            self._vector_env = None  # ALE's threads end with the last reference

    def _reset(self) -> ts.TimeStep:
        observation, _ = self._vector_env.reset(seed=self._seeds)
        self._seeds = None  # seeding again would play the first episode again
        self._ended = np.zeros(self._num_envs, bool)
        return ts.TimeStep(
            np.full(self._num_envs, ts.StepType.FIRST, np.int32),
            np.zeros(self._num_envs, np.float32),
            np.ones(self._num_envs, np.float32),
            _as_spec(observation),
        )

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        first = self._ended
        action = np.where(first, 0, self._checked(action, first)) + self._first_action
        observation, reward, terminated, truncated, _ = self._vector_env.step(action)
        self._ended = terminated | truncated
        step_type = np.where(
            self._ended, ts.StepType.LAST, np.where(first, ts.StepType.FIRST, ts.StepType.MID)
        )
        return ts.TimeStep(
            step_type.astype(np.int32),
            (reward * self.reward_multiplier).astype(np.float32),
            1 - terminated.astype(np.float32),
            _as_spec(observation),
        )

    def _checked(self, action: np.ndarray, ignored: np.ndarray) -> np.ndarray:
        action = np.asarray(action)
        if action.shape != (self._num_envs,) or not np.issubdtype(action.dtype, np.integer):
            raise ValueError(
                f"{self.name}: expected one integer action per environment, shape ({self._num_envs},),"
                f" got {action.dtype} {action.shape}"
            )
        wrong = ((action < 0) | (action >= self.num_actions)) & ~ignored
        if wrong.any():
            raise ValueError(
                f"{self.name}: action {action[wrong][0]} for environment {int(wrong.argmax())};"
                f" expected 0 to {self.num_actions - 1}"
            )
        return action


class _Pickler(pickle.Pickler):
    """Refuses what would be made anew, wherever it is."""

    def reducer_override(self, obj):
        if isinstance(obj, gymnasium.utils.EzPickle):
            raise pickle.PicklingError(f"{type(obj).__name__} is an EzPickle")
        return NotImplemented


def _check_fit(vector_env: gymnasium.vector.VectorEnv, name: str) -> None:
    actions, observations = vector_env.single_action_space, vector_env.single_observation_space
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise ValueError(
            f"{name}: expected a Discrete action space, got {actions}; Q-learning needs actions to count"
        )
    if not isinstance(observations, gymnasium.spaces.Box):
        raise ValueError(
            f"{name}: expected an array (Box) as observation, got {observations}; wrap the environment, for"
            " example with gymnasium.wrappers.FlattenObservation, and register that under an id of its own"
        )
    mode = vector_env.metadata.get("autoreset_mode")
    if mode != gymnasium.vector.AutoresetMode.NEXT_STEP:
        raise ValueError(f"{name}: expected AutoresetMode.NEXT_STEP, got {mode}")


def _as_spec(observation: np.ndarray) -> np.ndarray:
    return observation.view(np.uint8) if observation.dtype == bool else observation


def _bound(limit: np.ndarray) -> np.ndarray:
    """One number when all elements share it, which keeps the spec of a frame small."""
    return limit.flat[0] if (limit == limit.flat[0]).all() else limit
