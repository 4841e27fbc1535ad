"""Collecting, learning and evaluating by turns in one process.

A resumed run begins new episodes. Weights, replay, statistics and counters are those of its newest checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from agents.errors import EnvironmentFault, UsageError
from agents.monitoring import summaries
from agents.monitoring.progress import Progress, closing_words
from agents.running.loop import learn
from agents.running.signals import stop_on_signal
from agents.settings import Settings
from agents.storage.checkpoint import Checkpointer, Counters, find_newest
from agents.storage.run_folder import newest_step, unread_note, write_operative_config
from agents.storage.statistics_log import forget_after
from agents.workers import build
from agents.workers.collector import Collector
from agents.workers.evaluator import Evaluations
from agents.workers.learner import Learner
from agents.workers.results import Evaluated, Result
from rbs_tf.environments.batched import GymnasiumVectorEnvironment

Part = TypeVar("Part", GymnasiumVectorEnvironment, Collector, Evaluations)


class EmbeddedRun:
    """One training run in this process. The constructor only reads; entering opens the folder's files and resumes.

        with EmbeddedRun(root_dir, Settings.from_gin()) as training:
            result = training.run()

    Leaving it, or `close`, closes environments, writers and the replay, in an order in which none can hang.

    Args:
      root_dir: TensorBoard files and checkpoints go here; the newest whole checkpoint there is resumed.
      settings: of the run; None: as gin has them.
      on_evaluation: called after each evaluation; when it returns False, the run ends as by a signal.

    Attributes:
      agent, environment, eval_environment: from the constructor on.
      replay, learner, collector, evaluations: once it has been entered.

    Raises:
      ValueError, UsageError, EnvironmentFault: the settings cannot be built; nothing has been written.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        settings: Settings | None = None,
        on_evaluation: Callable[[Evaluated], Any] | None = None,
    ):
        self._parts = contextlib.ExitStack()
        self._on_evaluation = on_evaluation
        self._root = os.fspath(root_dir)
        self._settings = settings or Settings.from_gin()
        self._training = self._settings.train
        self._stopped_by: int | None = None
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            self._build()
            on_error.pop_all()

    def close(self) -> None:
        """Closes its parts, the newest first."""
        self._parts.close()

    def __enter__(self) -> EmbeddedRun:
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            try:
                self._attach()
            except ValueError as error:  # of a checkpoint that was made with other settings
                raise UsageError(str(error)) from error
            on_error.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _build(self) -> None:
        """Builds what needs no folder."""
        settings, training = self._settings, self._training
        step = newest_step(self._root)
        self._backend = build.choose_backend(settings, self._root)
        seed = settings.seeds.evaluation_seed(step)
        self.eval_environment = self._close_later(
            build.build_eval_environment(settings, training.eval_envs, seed)
        )
        strategy = build.build_strategy(training.strategy)
        tf.random.set_seed(training.seed)  # for layers of users that draw from it
        self.agent = build.build_agent(settings, self.eval_environment, strategy=strategy)
        build.check_buffer(settings, self._backend)
        state_spec = self.agent.network.state_spec
        self._memory_note = build.check_fits(settings, self.eval_environment, state_spec, self._backend)
        # A resumed run does not repeat the episodes that the first start began with.
        seed = settings.seeds.collection_seed(step)
        self.environment = self._close_later(build.build_environment(settings, training.num_envs, seed))

    def _attach(self) -> None:
        """Builds what writes into the folder, and restores what it holds."""
        self.replay = build.build_replay(
            self._settings, self.eval_environment, self.agent, self._backend, self._root
        )
        self._parts.callback(self.replay.stop)
        # The networks, the replay and the counters know nothing of the steps after the checkpoint: nor do statistics.
        _, counters = find_newest(self._root) or (0, Counters())
        forget_after(self._root, counters.statistics_log)
        checkpointer = Checkpointer(self._root, build.trackables(self.agent), self.replay.checkpoint)
        self.learner = Learner(
            self._root,
            self.agent,
            self.replay,
            self._training.batch_size,
            self._training.summary_interval,
            checkpointer,
        )
        self.collector = self._close_later(build.build_collector(self.environment, self.agent, self.replay))
        self.evaluations = self._close_later(Evaluations(self._root, self.eval_environment, self.agent))
        write_operative_config(self._root)
        summaries.write_once(self._root, self.agent, self._settings)

    def _close_later(self, part: Part) -> Part:
        """The part, which `close` closes."""
        return self._parts.enter_context(closing(part))

    def run(self) -> Result:
        """Trains to the end, or until a signal; then evaluates, writes a checkpoint and says how it went."""
        learner = self.learner
        game = self.environment.game
        self._progress = Progress(
            self._training.updates,
            total_steps=self._training.environment_steps,
            updates=learner.updates,
            steps=learner.environment_steps,
        )
        for note in filter(
            None, (self._memory_note, summaries.figures_note(), self.agent.heads.note, unread_note())
        ):
            self._progress.say(note)
        if learner.resumed:
            self._progress.say(f"Resumed at update {learner.updates:,}.")
        with stop_on_signal(self._stop):
            try:
                learn(
                    learner,
                    self,
                    self._training,
                    self._is_stopped,
                    self._evaluate_if_due,
                    learner.save,
                    self._show,
                )
                if not self._is_stopped() and self._training.final_eval_rounds:
                    self._evaluate(self._training.final_eval_rounds, self._training.trial_episodes)
                    if self._stopped_by == 0:  # `on_evaluation` says so, and there is nothing left to stop
                        self._stopped_by = None
            except EnvironmentFault:
                if learner.environment_steps:
                    learner.save()
                raise
            learner.save()
        self._progress.finish()
        evaluations = self.evaluations
        self._progress.say(
            closing_words(
                learner.updates,
                learner.environment_steps,
                evaluations.last_return,
                evaluations.last_words,
                evaluations.best_words,
                game,
            )
        )
        return Result(
            learner.updates,
            learner.environment_steps,
            evaluations.last_return,
            self._stopped_by,
            head=self.agent.heads.names[self.agent.policy.best_head],
        )

    def is_due(self) -> bool:
        """Whether another update keeps to the replay ratio, or to `train.steps_per_update`."""
        updates = self.learner.updates
        training = self._training
        if updates >= training.updates:
            return False
        if training.steps_per_update is None:
            return self.replay.updates_due(updates, training.batch_size)
        steps = self.learner.environment_steps
        return self.replay.allows_update(updates, steps, training.steps_per_update)

    def gather(self) -> None:
        """Collects a round."""
        self.collector.run(self._training.steps_per_round)

    def _show(self, returns: list[float], doing: str) -> None:
        learner = self.learner
        self._progress.update(learner.updates, learner.environment_steps, returns, doing=doing)
        self._progress.say_once(learner.note)

    def _is_stopped(self) -> bool:
        return self._stopped_by is not None

    def _evaluate_if_due(self, updates: int) -> None:
        """Evaluates every `eval_interval` updates, but not where the evaluation at the end follows."""
        training = self._training
        if training.eval_interval and updates % training.eval_interval == 0:
            last = training.is_over(updates, self.learner.environment_steps) and not self.is_due()
            if not (last and training.final_eval_rounds):
                self._evaluate(1)

    def _evaluate(self, rounds: int, trial_episodes: int = 0) -> None:
        scales = self.learner.loss_scales()
        updates, steps = scales.updates, scales.steps

        def stopped() -> bool:
            self._progress.show_evaluation(self.evaluations.evaluator.playing)
            return self._stopped_by is not None

        mean_return = self.evaluations.run(updates, rounds, stopped, scales, trial_episodes)
        if mean_return is not None:
            self._progress.update(updates, steps, eval_return=mean_return)
        if (last := self.evaluations.last) and mean_return is not None and self._on_evaluation:
            evaluated = Evaluated(updates, steps, mean_return, last.returns, last.lengths)
            goes_on = self._on_evaluation(evaluated)
            if isinstance(goes_on, bool | np.bool_) and not goes_on:
                self._stop(0)

    def _stop(self, number: int) -> None:
        """Lets the update in progress finish."""
        self._stopped_by = number
