"""Settings of a run, as gin configures it, and the parts that every process of it builds from them."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.specs import tensor_spec
from tf_agents.train.utils import strategy_utils

from agents.agent import RecurrentMultiHeadAgent
from agents.heads import Heads
from agents.replay.local_replay import LocalReplay
from agents.replay.replay import LOCAL, Replay, chosen_backend
from agents.storage.checkpoint import Checkpointer
from agents.targets import SequenceShape
from agents.workers.collector import Collector
from agents.workers.learner import Learner
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf import environments
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.scalings import ReturnBasedScaling

_DRAWS = (
    1,
    1,
)  # purpose of a seed: no environments have it, which count (0, step), 1 and (2 + index, start, time)

EVALUATION_SEED = (1,)  # purpose of evaluation's environments


class Result(NamedTuple):
    """The end of a run."""

    updates: int
    environment_steps: int
    final_return: float  # mean greedy return of the last evaluation, reward units of the environment; or NaN
    stopped_by: int | None  # the signal that ended it early, after a checkpoint had been written


@gin.configurable("train", module="agents")
@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of a run, whichever processes it is spread over.

    Args:
      env: environment name, see `rbs_tf.environments`.
      updates: learner updates in total, those of earlier starts included.
      environment_steps: ends the run before its updates are made, once so many have been collected; None: no limit.
      seed: of networks, environments, exploration and head choice.
      strategy: where updates are computed: "default" on one device, "mirrored" on all GPUs of the learner's machine (on
        its CPU if it has none), each with an equal share of the batch, or "tpu", which nobody has run yet.
      scaling: factory of a `rbs_tf.scalings` scaling, called with the number of heads.
      num_envs: environments that a collector steps as one batch.
      batch_size: sequences per update.
      steps_per_round: steps of every environment between two looks at the replay ratio.
      steps_per_update: environment steps, of all environments together, per update, so that their number does not
        depend on how long an agent survives: after n steps there have been floor((n - `Replay.min_sequences`
        `SequenceShape.period`) / steps_per_update) updates. In one process. None: as many as `Replay.replay_ratio`
        allows; then short episodes, whose sequences are padded, earn more updates per step.
      eval_interval: updates between evaluations; 0 evaluates at the end alone.
      eval_envs: episodes per evaluation, played side by side.
      eval_repeat_action_probability: chance that an action is repeated in evaluation, so that greedy games
        from the same start differ (Machado et al. 2018: 0.25, in training, too); for Atari's and MinAtar's plain names.
        None: as in training.
      final_eval_rounds: the evaluation at the end plays this many times `eval_envs` episodes; 0: none.
      checkpoint_interval: updates between checkpoints; one is always written at the end and when interrupted.
      summary_interval: updates between TensorBoard entries; 0 writes none.
      publish_interval: distributed: updates between publications of the weights.
      weights_interval: distributed: steps of each environment between two looks for newer weights (paper: 400).
      step_timeout: distributed: seconds after which a step of the environments counts as stuck.
      max_faults: distributed: failures of environments after which a run ends instead of restarting its collector.
    """

    env: str = gin.REQUIRED
    updates: int = gin.REQUIRED
    environment_steps: int | None = None
    seed: int = 0
    strategy: str = "default"
    scaling: Callable = ReturnBasedScaling
    num_envs: int = 32
    batch_size: int = 32
    steps_per_round: int = 10
    steps_per_update: float | None = None
    eval_interval: int = 1000
    eval_envs: int = 8
    eval_repeat_action_probability: float | None = None
    final_eval_rounds: int = 4
    checkpoint_interval: int = 1000
    summary_interval: int = 100
    publish_interval: int = 100
    weights_interval: int = 400
    step_timeout: float = 120.0
    max_faults: int = 10

    def reached(self, updates: int, steps: int) -> bool:
        """Says whether the run has come to its end."""
        limit = self.environment_steps
        return updates >= self.updates or (limit is not None and steps >= limit)

    def update_due(self, replay: Replay, updates: int, environment_steps: int) -> bool:
        """Says whether one more update after `updates` of them is due in a run that takes turns."""
        if self.steps_per_update is None:
            return replay.updates_due(updates, self.batch_size)
        return replay.updates_due_by_steps(updates, environment_steps, self.steps_per_update)

    def environment(self, num_envs: int, *purpose: int) -> GymnasiumVectorEnvironment:
        """A batch of the run's environments, seeded for its purpose.

        Raises:
          ValueError: what `environments.make` raises; actions that cannot be counted.
        """
        options = self.evaluation_options if purpose == EVALUATION_SEED else {}
        seed = self.derived_seed(*purpose)
        environment = environments.make(self.env, num_envs=num_envs, seed=seed, **options)
        try:
            environment.num_actions  # noqa: B018
        except ValueError:
            environment.close()
            raise
        return environment

    @property
    def evaluation_options(self) -> dict[str, Any]:
        """Of `environments.make`, where evaluation differs from training."""
        sticky = self.eval_repeat_action_probability
        return {} if sticky is None else {"repeat_action_probability": sticky}

    def distribution(self) -> tf.distribute.Strategy:
        """The strategy for the agent that learns.

        Raises:
          ValueError: there is no TPU, or it does not answer.
        """
        if self.strategy == "default":
            return tf.distribute.get_strategy()
        if self.strategy == "mirrored":
            on_gpus = tf.config.list_physical_devices("GPU")
            # On CPUs the default, collectives, waits for ever inside TF-Agents' `Learner`.
            reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
            return tf.distribute.MirroredStrategy(cross_device_ops=reduction)
        name = os.environ.get("TPU_NAME", "local")
        try:
            if name == "local" and not tf.config.list_physical_devices("TPU"):
                raise ValueError("TensorFlow sees no TPU device on this machine")
            return strategy_utils.get_strategy(tpu=name, use_gpu=False)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise ValueError(
                f"train.strategy is 'tpu', but {error}. It takes a TPU virtual machine with libtpu and the TensorFlow "
                "built for it, or the name or grpc:// address of a TPU in the environment variable TPU_NAME"
            ) from error

    def agent(
        self,
        environment: py_environment.PyEnvironment,
        *purpose: int,
        strategy: tf.distribute.Strategy | None = None,
    ) -> RecurrentMultiHeadAgent:
        """The agent for such an environment. Weights depend on `seed` alone, its acting on the purpose, too.

        The one that learns needs a strategy, see `distribution`; None for those that only act.
        """
        strategy = strategy or tf.distribute.get_strategy()
        tf.random.set_seed(self.seed)
        with strategy.scope():
            train_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step")
        return RecurrentMultiHeadAgent(
            tensor_spec.from_spec(environment.time_step_spec()),
            tensor_spec.from_spec(environment.action_spec()),
            Heads(),
            self._network(environment),
            self.scaling,
            SequenceShape(),
            train_step,
            seed=self.derived_seed(*purpose) if purpose else self.seed,
            strategy=strategy,
            summary_interval=self.summary_interval,
        )

    def replay(
        self, environment: py_environment.PyEnvironment, backend: str | None = None, **connection: Any
    ) -> Replay:
        """The replay for such an environment.

        Args:
          environment: gives the specs.
          backend: "reverb" or "local"; None: what a run in one process takes.
          **connection: `folders`, and for Reverb `address`.

        Raises:
          UsageError: it needs Reverb, which is not there.
        """
        observation_spec = tensor_spec.from_spec(environment.time_step_spec()).observation
        state_spec, num_heads = self._network(environment).state_spec, len(Heads())
        moments = self.scaling(num_heads).moments_class
        parts = SequenceShape(), observation_spec, state_spec, num_heads, moments
        if (backend or chosen_backend(connection.get("folders"))) == LOCAL:
            return LocalReplay(*parts, seed=self.derived_seed(*_DRAWS), **connection)
        from agents.replay.reverb_replay import ReverbReplay  # not everywhere can it be installed

        if self.steps_per_update is not None:
            connection["error_buffer"] = math.inf  # the pace is kept by whoever asks for updates
        return ReverbReplay(*parts, **connection)

    def checkpointer(
        self, root_dir: str, agent: RecurrentMultiHeadAgent, replay_checkpoint: Callable[[], str]
    ) -> Checkpointer:
        """Builds what saves and restores the agent that learns, with the replay."""
        trackables = {"agent": agent, "train_step": agent.train_step_counter}
        return Checkpointer(root_dir, trackables, replay_checkpoint)

    def learner(
        self,
        root_dir: str,
        environment: py_environment.PyEnvironment,
        agent: RecurrentMultiHeadAgent,
        replay: Replay,
        checkpointer: Checkpointer,
    ) -> Learner:
        """Builds what updates the agent from the replay, resumed from the newest checkpoint."""
        return Learner(
            root_dir,
            agent,
            replay,
            self.batch_size,
            self.summary_interval,
            checkpointer,
        )

    def collector(
        self,
        environment: py_environment.PyEnvironment,
        agent: RecurrentMultiHeadAgent,
        replay: Replay,
        name: str = "collector",
    ) -> Collector:
        """Builds what plays in such an environment with exploration, and feeds the replay."""
        return Collector(
            environment,
            agent.collect_policy,
            agent.heads,
            replay,
            agent.shape,
            agent.initial_priorities,
            moments=agent.scaling.moments_class,
            name=name,
        )

    def _network(self, environment: py_environment.PyEnvironment) -> RecurrentQNetwork:
        time_step_spec = tensor_spec.from_spec(environment.time_step_spec())
        return RecurrentQNetwork(
            (time_step_spec.observation, tf.TensorSpec((), tf.int32), time_step_spec.reward),
            num_actions=environment.num_actions,
            num_heads=len(Heads()),
            seed=self.seed,
            outputs_per_action=self.scaling(len(Heads())).outputs_per_action,
        )

    def derived_seed(self, *purpose: int) -> int:
        """A seed of its own for every purpose, so that no two parts of a run see the same random numbers."""
        return int(np.random.SeedSequence([self.seed, *purpose]).generate_state(1)[0] >> 1)
