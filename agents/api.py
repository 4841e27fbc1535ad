"""The agent in Python programs and notebooks: `train` trains, `Agent` acts as a run has learned to."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from tf_agents.environments import wrappers
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

import agents.running.embedded  # noqa: F401  registers everything that a configuration may name
from agents.commands import configuration, loading, parameters
from agents.commands.flags import nearest
from agents.commands.options import TrainOptions
from agents.commands.train import run
from agents.errors import RunFolderError, UsageError, without_gin_trail
from agents.running.signals import raise_for
from agents.storage import best
from agents.storage.checkpoint import read_newest
from agents.storage.run_folder import CONFIG, acting_head
from agents.workers import build
from agents.workers.training import Evaluated, Result, Settings
from rbs_tf.environments.batched import GymnasiumVectorEnvironment

_MADE_BY = "agent.make_environment() makes an environment that gives them."


class Agent:
    """Acts as in a run's evaluations: with one head, and a recurrent state that it keeps between steps.

        agent = Agent.load("pong")
        agent.reset()                             # an episode begins
        action = agent.act(observation)           # and then, with the reward that came with the observation,
        action = agent.act(observation, reward)

    It plays in one environment or in a batch of N, as the observations are.

    Attributes:
      name: of the environment.
      num_actions, first_action: A and the number of the first one in the environment's own space, 0 nearly everywhere.
      tf_agent: TF-Agents' side of it: network, policy, scaling.
      heads: what each of the H heads learns, `heads.names` for one.
      head: index of the head that acts.
      update: that the weights are of.
      weights, chosen: which weights and which head these are, in words.
      values: float32 [H] or [N, H], each head's highest value at the last `act`, see `reward_values`.
    """

    @classmethod
    def load(cls, run: str | os.PathLike, checkpoint: str = "best", head: str | int | None = None) -> Agent:
        """Builds what a run's config.gin says and gives it the run's weights; the folder stays as it is.

        Args:
          run: the run folder, or the name of an agent in `pretrained`.
          checkpoint: "best", or, if the run has kept none, and for "latest", the newest checkpoint.
          head: name or index; None: the one that played the evaluation of these weights.

        Raises:
          UsageError: there is no such run or head, its environment cannot be made, or no weights can be used.
        """
        return cls(run, checkpoint, head)

    def __init__(self, run: str | os.PathLike, checkpoint: str = "best", head: str | int | None = None):
        _require_keras_2()
        self._folder = loading.find(run, checkpoint)
        self._config = (self._folder / CONFIG).read_text(errors="replace")
        with self.configured():
            parameters.check(recorded=True)
        with self.configured() as settings:
            environment = build.build_eval_environment(settings)
        with contextlib.closing(environment), self.configured() as settings:
            self.name, self.num_actions = settings.train.env, environment.num_actions
            self.first_action = _first_action(environment)
            self.observation_spec = environment.observation_spec()
            self.tf_agent = build.build_agent(settings, environment)
        self.heads = self.tf_agent.heads
        self.update, self.weights = self._read(checkpoint)
        self.head = self.tf_agent.policy.best_head
        self.let_act(self.head if head is None else head)
        why = "which the run evaluated with" if head is None else "as asked for"
        self.chosen = f"Acting: head {self.heads.names[self.head]}, {why}."
        self._act = tf.function(self.tf_agent.policy.action, autograph=False)
        self.reset()

    def _read(self, checkpoint: str) -> tuple[int, str]:
        """Reads the weights; returns their update, and in words which they are."""
        try:
            found = best.load(self._folder, self.tf_agent.acting_variables) if checkpoint == "best" else None
            if found is not None:
                mean = f"{found.mean_return:.4g} per episode in {found.episodes} episodes"
                return found.update, f"Best evaluation so far: {mean}, at update {found.update:,}."
            update = read_newest(self._folder, build.trackables(self.tf_agent))
            if (head := acting_head(self._folder)) in self.heads.names:
                self.tf_agent.policy.act_with(self.heads.names.index(head))
        except RunFolderError as error:
            raise UsageError(str(error)) from error
        none = "The run has kept no best weights. " if checkpoint == "best" else ""
        return update, f"{none}Newest checkpoint: update {update:,}."

    @contextlib.contextmanager
    def configured(self) -> Iterator[Settings]:
        """Configures gin as in the run; restores gin's configuration afterwards.

        Raises:
          UsageError: the run cannot be built from its configuration.
        """
        with configuration.borrowed():
            try:
                gin.parse_config(self._config)
                yield Settings.configured()
            except (Exception, SystemExit) as error:
                why = without_gin_trail(UsageError(configuration.of_gin(error)))
                raise UsageError(f"The run cannot be built from {self._folder}/{CONFIG}: {why}") from error

    def make_environment(
        self, num_envs: int = 1, seed: int = 0, **options: Any
    ) -> GymnasiumVectorEnvironment:
        """Makes a batch of environments as the run's evaluations have them; close it.

        Its `step` takes what `act` returns: actions of the environment's own space.

        Args:
          num_envs: N.
          seed: equal seeds and actions give equal streams.
          **options: of `rbs_tf.environments.make`, in place of the run's.

        Raises:
          UsageError: it cannot be made.
        """
        with self.configured() as settings:
            environment = build.build_eval_environment(settings, num_envs, seed, **options)
        if (first := _first_action(environment)) == 0:
            return environment
        return _CountingFrom(first, environment)

    def let_act(self, head: str | int) -> None:
        """Lets another head act, from the next episode on.

        Raises:
          UsageError: there is no head of this name or index.
        """
        names = self.heads.names
        indices = {name: index for index, name in enumerate(names)} | {str(i): i for i in range(len(names))}
        if str(head) not in indices:
            raise UsageError(
                f"There is no head {str(head)!r}. {nearest(str(head), names)} Or write its number, from 0."
            )
        self.head = indices[str(head)]
        self.tf_agent.policy.act_with(self.head)

    def reset(self, which: np.ndarray | None = None) -> None:
        """Begins an episode.

        Args:
          which: bool [N], the environments in which one begins; None: all, and N may change.

        Raises:
          ValueError: `which` is of another shape or dtype.
        """
        if which is None:
            self._state: Any = None  # after `act`, as is the next
            self._first: np.ndarray | None = None  # bool [N], which begin an episode
        elif self._first is not None:
            which = np.asarray(which)
            if which.dtype != bool or which.shape != self._first.shape:
                expected = f"bool {self._first.shape}, or nothing if all begin an episode"
                raise ValueError(
                    f"{self.name}: reset() got {which.dtype} {which.shape}: expected {expected}."
                )
            self._first |= which

    def act(self, observation: Any, reward: Any = None) -> Any:
        """Chooses an action.

        Args:
          observation: as the run's environments give them, `observation_spec`: of one, or [N, ...].
          reward: that came with it, the environment's own: a number, or [N]. None: 0. Ignored on a first step.

        Returns:
          the action, of the environment's own space: an int, or int32 [N]. TF-Agents' side counts from 0.

        Raises:
          ValueError: a shape or dtype that does not fit.
        """
        observation, batch = self._batched(observation)
        reward = np.zeros(batch) if reward is None else np.asarray(reward)
        if reward.shape != batch or not np.can_cast(reward.dtype, np.float32, "same_kind"):
            expected = f"numbers, {list(batch)}" if batch else "a number"
            raise ValueError(
                f"{self.name}: the reward is {reward.dtype} {list(reward.shape)}: expected {expected}."
            )
        size = batch or (1,)
        first = np.ones(size, bool) if self._first is None else self._first
        if first.shape != size:
            raise ValueError(
                f"{self.name}: {size[0]} observations follow {first.size}: call reset() in between."
            )
        if self._state is None:
            self._state = self.tf_agent.policy.get_initial_state(*size)
        time_step = ts.TimeStep(
            np.where(first, ts.StepType.FIRST, ts.StepType.MID).astype(np.int32),
            np.where(first, 0, reward.reshape(size)).astype(np.float32),
            np.ones(size, np.float32),
            observation,
        )
        step = self._act(tf.nest.map_structure(tf.convert_to_tensor, time_step), self._state)
        self._state, self._first = step.state, np.zeros(size, bool)
        self.values = self.reward_values(step.info.greedy_values).numpy().reshape(*batch, -1)
        action = step.action.numpy() + np.int32(self.first_action)
        return action if batch else int(action[0])

    def _batched(self, observation: Any) -> tuple[Any, tuple[int, ...]]:
        """The observation as a batch in the dtypes of its spec; and (N,), or () if it was of one environment."""
        spec = self.observation_spec
        by_name = isinstance(spec, dict)
        if by_name and (not isinstance(observation, Mapping) or observation.keys() != spec.keys()):
            raise ValueError(
                f"{self.name}: the observation is no dictionary of {', '.join(map(repr, spec))}. {_MADE_BY}"
            )
        found, batches = {}, set()
        for name, part in spec.items() if by_name else [("", spec)]:
            array = np.asarray(observation[name] if by_name else observation)
            array = array.view(np.uint8) if array.dtype == bool else array
            outer = array.ndim - len(part.shape)
            fits = outer in (0, 1) and array.shape[outer:] == part.shape
            if not fits or not np.can_cast(array.dtype, part.dtype, "same_kind"):
                what = f"observation[{name!r}]" if by_name else "the observation"
                raise ValueError(
                    f"{self.name}: {what} is {array.dtype} {list(array.shape)}: expected {np.dtype(part.dtype)} "
                    f"{list(part.shape)}, or such ones of N, [N, ...]. {_MADE_BY}"
                )
            found[name] = array.astype(part.dtype, copy=False).reshape(-1, *part.shape)
            batches.add(array.shape[:outer])
        if len(batches) > 1:
            raise ValueError(f"{self.name}: its arrays are of different numbers of environments.")
        return found if by_name else found[""], batches.pop()

    def reward_values(self, outputs: tf.Tensor) -> tf.Tensor:
        """Converts the heads' outputs, float32 [..., H], to values in units of the rewards that each head learns from.

        With the reward multiplier for clipped heads, without it for unclipped ones.
        """
        units = [1.0 if clip else self.heads.reward_multiplier for _, clip in self.heads.pairs]
        return self.tf_agent.scaling.values(outputs) / units


class _CountingFrom(wrappers.PyEnvironmentBaseWrapper):
    """An environment whose actions are those of its own space, where that does not start at 0."""

    def __init__(self, first: int, environment: GymnasiumVectorEnvironment):
        super().__init__(environment)
        self._first = first

    def action_spec(self) -> array_spec.BoundedArraySpec:
        spec = self._env.action_spec()
        return array_spec.BoundedArraySpec(
            spec.shape, spec.dtype, self._first, self._first + spec.maximum, spec.name
        )

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        return self._env.step(np.asarray(action) - self._first)


def _first_action(environment: GymnasiumVectorEnvironment) -> int:
    space: Any = environment.vector_env.single_action_space
    return int(space.start)


def train(
    config: str | os.PathLike = "quickstart",
    settings: Mapping[str, Any] | None = None,
    on_evaluation: Callable[[Evaluated], Any] | None = None,
    **flags: Any,
) -> Result:
    """Trains as `python train.py` does, in this process: the same call goes on where the last one was stopped.

        result = train("quickstart", env="CartPole-v1", updates=500, settings={"train.batch_size": 16})
        agent = Agent.load(result.root_dir)

    A signal (a notebook's interrupt, too) ends it in order: a checkpoint is written, and then the signal is raised, so
    that a loop over seeds does not go on to the next one. TensorFlow's global seed is that of the run afterwards.

    Args:
      config: as `--config` takes it: a name, or a .gin file.
      settings: gin parameters by the names that `--list_settings` prints; a string "@NAME" is a reference.
      on_evaluation: called after each evaluation, in one process. When it returns False, or raises, the run writes a
        checkpoint and ends; `stopped_by` is 0, and what was raised is raised here.
      **flags: env, scaling, updates, seed, root_dir and so on, see `agents.commands.options.TrainOptions`.

    Returns:
      how the run ended; `root_dir` is its folder.

    Raises:
      UsageError: what is asked for cannot be done, or another thread trains; nothing has started.
      RunFolderError, EnvironmentFault, FloatingPointError: what ended the run; each says what to do.
      KeyboardInterrupt: an interrupt (SIGINT), behind the checkpoint. SystemExit: another signal, likewise.
    """
    _require_keras_2()
    known = {field.name for field in dataclasses.fields(TrainOptions)} - {"config", "gin_bindings"}
    if others := sorted(flags.keys() - known):
        raise UsageError(f"train() has no {others[0]!r}. {nearest(others[0], [*known, 'settings'])}")
    bindings = [f"{name} = {_literal(name, value)}" for name, value in (settings or {}).items()]
    flags = {name: _plain(value) for name, value in flags.items()}
    options = TrainOptions(config, gin_bindings=bindings, **flags)
    if on_evaluation and options.is_distributed:
        raise UsageError("on_evaluation is for runs in one process: leave out collectors and cluster.")
    raised: list[BaseException] = []

    def evaluated(result: Evaluated) -> Any:
        try:
            return on_evaluation and on_evaluation(result)
        except BaseException as error:
            raised.append(error)
            return False

    command = [f"--config={os.fspath(config)}", *(f"--gin_bindings={binding}" for binding in bindings)]
    for name, value in flags.items():
        if name == "env_kwargs" and value is not None:
            value = ", ".join(f"{argument}={of!r}" for argument, of in value.items())
        if value is not None and value is not False:
            command.append(f"--{name}" if value is True else f"--{name}={value}")
    with configuration.borrowed(training=True):
        result = run(options, command, evaluated if on_evaluation else None)
    if raised:
        raise raised[0]
    if result.stopped_by:
        raise_for(result.stopped_by)
    return result


def _require_keras_2() -> None:
    if getattr(tf.keras, "__version__", "2") >= "3":  # TensorFlow 2.15 does not say
        raise UsageError(
            "The agent needs Keras 2, and TensorFlow has loaded Keras 3: pip install tf-keras, and import Agent or "
            "train from agents before anything uses tf.keras."
        )


def _literal(name: str, value: Any) -> str:
    """A value as gin reads it."""
    value = _plain(value)
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError) as error:
        raise UsageError(
            f"settings[{name!r}] = {value!r}: expected a number, a string, True, False, None, a list, tuple or dict "
            "of these, or '@NAME' for what gin knows by that name."
        ) from error
    return configuration.as_gin(value)


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's number."""
    return value.item() if isinstance(value, np.generic) else value
