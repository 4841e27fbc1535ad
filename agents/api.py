"""The agent in Python programs and notebooks: `train` trains, `Agent` acts as a run has learned to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

import agents.settings  # noqa: F401  registers everything that a configuration may name
from agents import configuration
from agents.commands import loading
from agents.errors import RunFolderError, UsageError, strip_gin_trail, suggest
from agents.options import TrainOptions
from agents.run import run
from agents.running.signals import raise_signal
from agents.settings import Settings
from agents.storage import best
from agents.storage.checkpoint import read_newest
from agents.storage.run_folder import CONFIG, acting_head
from agents.workers import build
from agents.workers.results import Evaluated, Result
from rbs_tf.environments.batched import GymnasiumVectorEnvironment


class Agent:
    """Acts as in a run's evaluations: with one head, and a recurrent state that it keeps between steps.

        agent = Agent.load("pong")
        agent.reset()                             # an episode begins
        action = agent.act(observation)           # and then, with the reward that came with the observation,
        action = agent.act(observation, reward)

    It plays in one environment, or in N side by side if observations have a batch axis.

    Attributes:
      name: of the environment.
      num_actions: A.
      first_action: number of the first one in the environment's own space, 0 nearly everywhere. Where it is another, a
        loop over the environment itself adds it to what `act` returns.
      settings: of the run, `agents.settings.Settings`.
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
          checkpoint: "best" or "latest"; if the run has kept no best weights, both are the newest checkpoint.
          head: name or index; None: the one that played the evaluation of these weights.

        Raises:
          UsageError: there is no such run or head, its environment cannot be made, or no weights can be used.
        """
        return cls(run, checkpoint, head)

    def __init__(self, run: str | os.PathLike, checkpoint: str = "best", head: str | int | None = None):
        _require_keras_2()
        self._folder = loading.find_run(run, checkpoint)
        self._config = (self._folder / CONFIG).read_text(errors="replace")
        with self._configured() as settings:
            environment = build.build_eval_environment(settings)
            with contextlib.closing(environment):
                self.first_action = int(environment.vector_env.single_action_space.start)  # type: ignore[attr-defined]
                self.num_actions = environment.num_actions
                self.observation_spec = environment.observation_spec()
                self.tf_agent = build.build_agent(settings, environment)
        self.settings = settings
        self.name = settings.train.env
        self.heads = self.tf_agent.heads
        self.update, self.weights = self._read(checkpoint)
        self.head = self.tf_agent.policy.best_head
        self.let_act(self.head if head is None else head)
        why = "which the run evaluated with" if head is None else "as asked for"
        self.chosen = f"Acting: head {self.heads.names[self.head]}, {why}."
        self._act = tf.function(self.tf_agent.policy.action, autograph=False)
        self.reset()

    def _read(self, checkpoint: str) -> tuple[int, str]:
        """Reads the weights; returns their update and a description of them."""
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
    def _configured(self) -> Iterator[Settings]:
        """Configures gin as in the run; restores gin's configuration afterwards.

        Raises:
          UsageError: the run cannot be built from its configuration.
        """
        with configuration.borrowed():
            try:
                gin.parse_config(self._config)
                yield Settings.from_gin()
            except (Exception, SystemExit) as error:
                why = strip_gin_trail(UsageError(configuration.explain(error)))
                raise UsageError(f"The run cannot be built from {self._folder}/{CONFIG}: {why}") from error

    def make_environment(
        self, num_envs: int = 1, seed: int = 0, **options: Any
    ) -> GymnasiumVectorEnvironment:
        """Makes a batch of environments as the run's evaluations have them; close it.

        Its `step` takes what `act` returns.

        Args:
          num_envs: N.
          seed: equal seeds and actions give equal streams.
          **options: of `rbs_tf.environments.make`, in place of the run's.

        Raises:
          UsageError: it cannot be made.
        """
        with self._configured() as settings:
            return build.build_eval_environment(settings, num_envs, seed, **options)

    def let_act(self, head: str | int) -> None:
        """Lets another head act, from the next episode on.

        Raises:
          UsageError: there is no head of this name or index.
        """
        names = self.heads.names
        indices = {name: index for index, name in enumerate(names)} | {str(i): i for i in range(len(names))}
        if str(head) not in indices:
            raise UsageError(
                f"There is no head {str(head)!r}. {suggest(str(head), names)} Or write its number, from 0."
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
                raise ValueError(
                    f"{self.name}: reset() got {which.dtype} {which.shape}, not bool {self._first.shape}."
                )
            self._first |= which

    def act(self, observation: Any, reward: Any = None) -> Any:
        """Chooses an action.

        Args:
          observation: as the run's environments give them, `observation_spec`: of one, or [N, ...].
          reward: that came with it, the environment's own: a number, or [N]. None: 0. Ignored on a first step.

        Returns:
          the action, counted from 0: an int, or int32 [N].

        Raises:
          ValueError: a shape that does not fit. TypeError: a dtype that does not.
        """
        observation, batch = self._add_batch(observation)
        size = batch or (1,)
        first = np.ones(size, bool) if self._first is None else self._first
        if first.shape != size:
            raise ValueError(
                f"{self.name}: {size[0]} observations follow {first.size}: call reset() in between."
            )
        reward = np.zeros(size) if reward is None else np.reshape(reward, size)
        if self._state is None:
            self._state = self.tf_agent.policy.get_initial_state(size[0])
        time_step = ts.TimeStep(
            np.where(first, ts.StepType.FIRST, ts.StepType.MID).astype(np.int32),
            np.where(first, 0, reward).astype(np.float32),
            np.ones(size, np.float32),
            observation,
        )
        step = self._act(tf.nest.map_structure(tf.convert_to_tensor, time_step), self._state)
        self._state = step.state
        self._first = np.zeros(size, bool)
        self.values = self.reward_values(step.info.greedy_values).numpy().reshape(*batch, -1)
        return step.action.numpy() if batch else int(step.action[0])

    def _add_batch(self, observation: Any) -> tuple[Any, tuple[int, ...]]:
        """The observation as a batch in the dtypes of its spec; and (N,), or () if it was of one environment."""
        named = isinstance(self.observation_spec, dict)
        spec = self.observation_spec if named else {"": self.observation_spec}
        given = observation if named else {"": observation}
        found = {
            name: np.asarray(given[name]).astype(part.dtype, casting="same_kind", copy=False)
            for name, part in spec.items()
        }
        batches = {array.shape[: array.ndim - len(spec[name].shape)] for name, array in found.items()}
        batch = batches.pop()
        fit = [array.shape == batch + spec[name].shape for name, array in found.items()]
        if batches or len(batch) > 1 or not all(fit):
            raise ValueError(
                f"{self.name}: the observation is {[array.shape for array in found.values()]}: expected "
                f"{[part.shape for part in spec.values()]}, or such ones of N. agent.make_environment() makes an "
                "environment that gives them."
            )
        found = {name: array.reshape(-1, *spec[name].shape) for name, array in found.items()}
        return found if named else found[""], batch

    def reward_values(self, outputs: tf.Tensor) -> tf.Tensor:
        """Converts the heads' outputs, float32 [..., H], to values in units of the rewards that each head learns from.

        With the reward multiplier for clipped heads, without it for unclipped ones.
        """
        units = [1.0 if clip else self.heads.reward_multiplier for _, clip in self.heads.pairs]
        return self.tf_agent.scaling.values(outputs) / units


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
      **flags: env, scaling, updates, seed, root_dir and so on, see `agents.options.TrainOptions`.

    Returns:
      how the run ended; `root_dir` is its folder.

    Raises:
      UsageError: what is asked for cannot be done, or another thread trains; nothing has started.
      TypeError: there is no such flag.
      RunFolderError, EnvironmentFault, FloatingPointError: what ended the run; each says what to do.
      KeyboardInterrupt: an interrupt (SIGINT), once the checkpoint is written. SystemExit: another signal, likewise.
    """
    _require_keras_2()
    bindings = [
        f"{name} = {configuration.format_gin(_unwrap(value))}" for name, value in (settings or {}).items()
    ]
    flags = {name: _unwrap(value) for name, value in flags.items()}
    options = TrainOptions(config, gin_bindings=bindings, **flags)
    if on_evaluation and options.is_distributed:
        raise UsageError("on_evaluation is for runs in one process: leave out collectors and cluster.")
    raised: list[BaseException] = []

    def report_evaluation(result: Evaluated) -> Any:
        try:
            return on_evaluation and on_evaluation(result)
        except BaseException as error:
            raised.append(error)
            return False

    command = f"agents.train({os.fspath(config)!r}, {dict(settings or {})!r}, **{flags!r})"
    with configuration.borrowed():
        result = run(options, [command], report_evaluation if on_evaluation else None)
    if raised:
        raise raised[0]
    if result.stopped_by:
        raise_signal(result.stopped_by)
    return result


def _require_keras_2() -> None:
    if getattr(tf.keras, "__version__", "2") >= "3":  # TensorFlow 2.15 does not say
        raise UsageError(
            "The agent needs Keras 2, and TensorFlow has loaded Keras 3: pip install tf-keras, and import Agent or "
            "train from agents before anything uses tf.keras."
        )


def _unwrap(value: Any) -> Any:
    """A NumPy scalar as Python's number."""
    return value.item() if isinstance(value, np.generic) else value
