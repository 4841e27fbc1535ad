"""The embedded mode: collecting, learning and evaluating take turns in one process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec

from agents.agent import RecurrentMultiHeadAgent
from agents.checkpoint import Checkpointer
from agents.collector import Collector
from agents.evaluator import Evaluator
from agents.heads import Heads
from agents.learner import Learner
from agents.progress import Progress
from agents.replay import Replay
from agents.run_folder import UsageError, write_operative_config
from agents.sequences import SequenceShape
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf import environments, scores
from rbs_tf.scalings import ReturnBasedScaling

ATARI_FRAMES_PER_STEP = 4


class Result(NamedTuple):
    """How a run ended."""

    updates: int
    environment_steps: int
    final_return: float  # mean greedy return of the last evaluation, reward units of the environment; or NaN
    stopped_by: int | None  # the signal that ended it early, after a checkpoint had been written


@gin.configurable("train", module="agents")
class EmbeddedRun:
    """One training run in this process, built from the gin configuration and resumed from its folder.

    Args:
      root_dir: TensorBoard files and checkpoints go here; the newest whole checkpoint there is resumed.
      env: environment name, see `rbs_tf.environments`.
      updates: learner updates in total, those of earlier starts included.
      environment_steps: ends the run before its updates are made, once so many have been collected; None: no limit.
      seed: of networks, environments, exploration and head choice.
      scaling: factory of a `rbs_tf.scalings` scaling, called with the number of heads.
      num_envs: environments that collect, stepped as one batch.
      batch_size: sequences per update.
      steps_per_round: steps of every environment between two looks at the replay ratio.
      eval_interval: updates between evaluations; 0 evaluates at the end alone.
      eval_envs: episodes per evaluation, played side by side.
      final_eval_rounds: the evaluation at the end plays this many times `eval_envs` episodes; 0: none.
      checkpoint_interval: updates between checkpoints; one is always written at the end and when interrupted.
      summary_interval: updates between TensorBoard entries; 0 writes none.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        env: str = gin.REQUIRED,
        updates: int = gin.REQUIRED,
        environment_steps: int | None = None,
        seed: int = 0,
        scaling: Callable = ReturnBasedScaling,
        num_envs: int = 32,
        batch_size: int = 32,
        steps_per_round: int = 10,
        eval_interval: int = 1000,
        eval_envs: int = 8,
        final_eval_rounds: int = 4,
        checkpoint_interval: int = 1000,
        summary_interval: int = 100,
    ):
        self._root = os.fspath(root_dir)
        self._total_updates, self._steps_per_round = updates, steps_per_round
        self._total_steps = float("inf") if environment_steps is None else environment_steps
        self._eval_interval, self._final_eval_rounds = eval_interval, final_eval_rounds
        self._checkpoint_interval, self._summary_interval = checkpoint_interval, summary_interval
        self._stopped_by: int | None = None
        self._last_return = float("nan")
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as building:
            # Everything opened so far is closed again if a later part cannot be built.
            building.callback(self._closing.close)
            self._build(env, seed, scaling, num_envs, batch_size, eval_envs)
            building.pop_all()

    def _build(self, env, seed, scaling, num_envs, batch_size, eval_envs) -> None:
        tf.random.set_seed(seed)
        train_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step")
        self._shape, heads = SequenceShape(), Heads()
        self._eval_environment = self._open(
            environments.make(env, num_envs=eval_envs, seed=_derived(seed, 1))
        )
        environment = self._eval_environment
        time_step_spec = tensor_spec.from_spec(environment.time_step_spec())
        action_spec = tensor_spec.from_spec(environment.action_spec())
        network = RecurrentQNetwork(
            (time_step_spec.observation, tf.TensorSpec((), tf.int32), time_step_spec.reward),
            num_actions=environment.num_actions,
            num_heads=len(heads),
            seed=seed,
        )
        self._agent = RecurrentMultiHeadAgent(
            time_step_spec, action_spec, heads, network, scaling, self._shape, train_step, seed=seed
        )
        self._checkpointer = Checkpointer(
            self._root, {"agent": self._agent, "train_step": train_step}, lambda: self._replay.checkpoint()
        )
        self._replay = Replay(
            self._shape,
            time_step_spec.observation,
            network.state_spec,
            len(heads),
            checkpointer=self._checkpointer.replay_checkpointer(),
        )
        self._closing.callback(self._replay.stop)
        self.resumed = self._checkpointer.restore()
        step, extra = self.resumed or (0, {"environment_steps": 0, "episodes": 0})
        # Emulators cannot be resumed: a resumed run starts new episodes, and not the ones it began with.
        self._environment = self._open(
            environments.make(env, num_envs=num_envs, seed=_derived(seed, 0, step))
        )
        self._collector = Collector(
            self._environment,
            self._agent.collect_policy,
            heads,
            self._replay,
            self._shape,
            self._agent.initial_priorities,
        )
        self._closing.callback(self._collector.close)
        self._collector.environment_steps = extra["environment_steps"]
        self._collector.episodes = extra["episodes"]
        self._evaluator = Evaluator(self._eval_environment, self._agent.policy)
        self._learner = Learner(self._root, self._agent, self._replay, batch_size, self._summary_interval)
        self._eval_writer = tf.summary.create_file_writer(os.path.join(self._root, "eval"))
        write_operative_config(self._root)

    def _open(self, environment):
        self._closing.callback(environment.close)
        return environment

    def run(self) -> Result:
        """Trains to the end, or until SIGINT or SIGTERM; then evaluates, writes a checkpoint and says how it went."""
        atari = self._environment.game is not None
        self._progress = Progress(
            self._total_updates,
            updates=self._learner.updates,
            steps=self._collector.environment_steps,
            frames_per_step=ATARI_FRAMES_PER_STEP if atari else None,
        )
        self._progress.say(self._replay.memory_note)
        if self.resumed:
            self._progress.say(f"Resumed at update {self._learner.updates:,}.")
        with self._stopping_on_signals():
            while not self._finished():
                self._collect()
                self._learn()
            if self._stopped_by is None and self._final_eval_rounds:
                self._evaluate(self._final_eval_rounds)
            self._save()
        self._progress.done()
        self._progress.say(self._closing_words())
        return Result(
            self._learner.updates, self._collector.environment_steps, self._last_return, self._stopped_by
        )

    def _finished(self) -> bool:
        return (
            self._stopped_by is not None
            or self._learner.updates >= self._total_updates
            or self._collector.environment_steps >= self._total_steps
        )

    def _closing_words(self) -> str:
        words = (
            f"{self._learner.updates:,} updates from {self._collector.environment_steps:,} environment steps."
        )
        if not np.isnan(self._last_return):
            words += f" Last evaluation: {self._last_return:.4g} per episode, greedy, head {self._best_head}."
        game = self._environment.game
        if scores.has_score(game) and not np.isnan(self._last_return):
            normalised = scores.human_normalised_score(game, self._last_return)
            words += f" Human-normalised: {normalised:.3g} (0 is random, 1 is human)."
        return words + (
            "\nIn TensorBoard: episode/return; td_error/unscaled beside td_error/scaled; scaling/sigma; bandit."
        )

    @property
    def _best_head(self) -> str:
        return self._agent.heads.names[self._agent.bandit.best_head]

    def close(self) -> None:
        """Closes environments, writers and the replay server, in the order in which none can hang."""
        self._closing.close()

    def __enter__(self) -> EmbeddedRun:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _collect(self) -> None:
        episodes = self._collector.run(self._steps_per_round)
        returns = [episode.episode_return / self._environment.reward_multiplier for episode in episodes]
        self._progress.update(self._learner.updates, self._collector.environment_steps, returns)
        if not (episodes and self._summary_interval):
            return
        step = self._learner.updates
        with self._learner.summary_writer.as_default():
            tf.summary.scalar("episode/return", np.mean(returns), step)
            tf.summary.scalar("episode/length", np.mean([episode.length for episode in episodes]), step)
            tf.summary.scalar("episode/epsilon", np.mean([episode.epsilon for episode in episodes]), step)
            tf.summary.histogram("episode/head", [episode.head for episode in episodes], step)

    def _learn(self) -> None:
        """Makes the updates that the replay ratio allows for what has been collected."""
        # Before the first update too: the collector's first priorities should know the scale.
        self._learner.drain_statistics()
        while (
            self._learner.updates < self._total_updates
            and self._stopped_by is None
            and self._replay.updates_due(self._learner.updates, self._learner.batch_size)
        ):
            self._learner.update()
            updates = self._learner.updates
            self._progress.update(updates, self._collector.environment_steps)
            if self._summary_interval and updates % self._summary_interval == 0:
                self._summarise_rates(updates)
            if self._eval_interval and updates % self._eval_interval == 0:
                self._evaluate(1)
            if updates % self._checkpoint_interval == 0:
                self._save()

    def _summarise_rates(self, updates: int) -> None:
        now = self._progress.snapshot(time.monotonic())
        with self._learner.summary_writer.as_default():
            tf.summary.scalar("environment_steps", self._collector.environment_steps, updates)
            tf.summary.scalar("replay/sequences", self._replay.size, updates)
            tf.summary.scalar(
                "replay/ratio", updates * self._learner.batch_size / self._replay.inserted, updates
            )
            if now.steps_per_second is not None:
                tf.summary.scalar("speed/environment_steps_per_second", now.steps_per_second, updates)
                tf.summary.scalar("speed/updates_per_second", now.updates_per_second, updates)

    def _evaluate(self, rounds: int) -> None:
        evaluation = self._evaluator.run(rounds, lambda: self._stopped_by is not None)
        if evaluation is None:
            return
        returns = evaluation.returns / self._eval_environment.reward_multiplier
        self._last_return = float(np.mean(returns))
        updates = self._learner.updates
        with self._eval_writer.as_default():
            tf.summary.scalar("episode/return", self._last_return, updates)
            tf.summary.scalar("episode/length", np.mean(evaluation.lengths), updates)
            tf.summary.scalar("episode/best_head", self._agent.bandit.best_head, updates)
            game = self._eval_environment.game
            if scores.has_score(game):
                normalised = scores.human_normalised_score(game, self._last_return)
                tf.summary.scalar("episode/human_normalised_score", normalised, updates)
        self._eval_writer.flush()
        self._progress.update(updates, self._collector.environment_steps, eval_return=self._last_return)

    def _save(self) -> None:
        self._learner.drain_statistics()
        self._learner.summary_writer.flush()
        counters = {
            "environment_steps": self._collector.environment_steps,
            "episodes": self._collector.episodes,
        }
        self._checkpointer.save(self._learner.updates, counters)

    @contextlib.contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM lets the update in progress finish; a second one ends the process at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number, _):
            self._stopped_by = number
            signal.signal(number, signal.SIG_DFL)

        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def train(root_dir: str | os.PathLike) -> Result:
    """Trains as gin configures `train` (an `EmbeddedRun`) in `root_dir`; returns how it ended.

    Raises:
      UsageError: the configuration cannot be built: a replay that memory cannot hold, for one.
    """
    try:
        run = EmbeddedRun(root_dir)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with run:
        return run.run()


def _derived(seed: int, *purpose: int) -> int:
    """A seed of its own for every purpose, so that no two parts of a run see the same random numbers."""
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1)[0] >> 1)
