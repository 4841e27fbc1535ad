"""The embedded mode: collecting, learning and evaluating take turns in one process.

A resumed run goes on as if it had never ended: the same episodes, statistics and exploration and, with nothing read
ahead, the same batches and weights, bit for bit. That takes the local replay and environments that can be restored
(see `GymnasiumVectorEnvironment.state`); with Reverb, or other environments, ALE's above all, it starts new episodes
and says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from agents.errors import EnvironmentFault, UsageError
from agents.monitoring import summaries
from agents.monitoring.progress import COMPILING, Progress, closing_words
from agents.running.signals import on_first_signal
from agents.storage.checkpoint import Checkpointer
from agents.storage.run_folder import newest_step, write_operative_config
from agents.storage.state import from_bytes, to_bytes
from agents.storage.statistics_log import forget_after
from agents.workers import build
from agents.workers.collector import Collector
from agents.workers.evaluator import Evaluations
from agents.workers.settings import Evaluated, Result, Settings
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.environments.names import FRAMES_PER_STEP

# In a checkpoint: environments and collector, and environments of evaluations.
_ENVIRONMENTS, _COLLECTOR, _EVALUATION = "environments.pickle", "collector.npz", "evaluation.pickle"
Part = TypeVar("Part", GymnasiumVectorEnvironment, Collector, Evaluations)
_LARGEST = 100_000_000  # bytes of environments, without which a resumed run starts new episodes


class EmbeddedRun:
    """One training run in this process, built from the gin configuration and resumed from its folder.

    `close`, or leaving it as a context manager, closes environments, writers and the replay, in the order in which none
    can hang.

    Args:
      root_dir: TensorBoard files and checkpoints go here; the newest whole checkpoint there is resumed.
      on_evaluation: called after each evaluation; when it returns False, the run ends as by a signal.

    Attributes:
      agent, learner, collector, evaluations, replay: its parts.
      environment, eval_environment: where it collects and where it evaluates.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        on_evaluation: Callable[[Evaluated], Any] | None = None,
    ):
        self._parts = contextlib.ExitStack()
        self._on_evaluation = on_evaluation
        self._root, self._settings = os.fspath(root_dir), Settings.configured()
        self._training = self._settings.train
        self._stopped_by: int | None = None
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes its parts, the newest first."""
        self._parts.close()

    def __enter__(self) -> EmbeddedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _build(self) -> None:
        settings, training = self._settings, self._training
        seed = settings.seeds.evaluating(newest_step(self._root))
        self.eval_environment = self._closed(build.build_eval_environment(settings, training.eval_envs, seed))
        strategy = build.build_strategy(training.strategy)
        self.agent = build.build_agent(settings, self.eval_environment, strategy=strategy)
        checkpointer = Checkpointer(
            self._root, build.trackables(self.agent), lambda: self.replay.checkpoint()
        )
        replay = build.build_replay(settings, self.eval_environment, folders=checkpointer.replay_folders())
        self.replay = replay
        self._parts.callback(replay.stop)
        newest = checkpointer.newest()
        step, extra = newest or (0, {"statistics_log": (0, 0)})
        # Where a resumed run starts new episodes, they should not be those that it began with.
        seed = settings.seeds.collecting(step)
        self.environment = self._closed(build.build_environment(settings, training.num_envs, seed))
        self._why_new_episodes = self._restored(checkpointer, self.environment, _ENVIRONMENTS)
        collector_state = None if self._why_new_episodes else checkpointer.file(_COLLECTOR)
        self._restored(checkpointer, self.eval_environment, _EVALUATION)
        if newest is None or collector_state is not None:
            # The steps after the checkpoint will be collected again, and must not count twice.
            forget_after(self._root, extra["statistics_log"])
        self.learner = build.build_learner(settings, self._root, self.agent, replay, checkpointer)
        self.collector = self._closed(build.build_collector(self.environment, self.agent, replay))
        if collector_state is not None:
            self.collector.restore(from_bytes(collector_state))
        self.evaluations = self._closed(Evaluations(self._root, self.eval_environment, self.agent))
        write_operative_config(self._root)
        summaries.write_once(self._root, self.agent, self.eval_environment)

    def _closed(self, part: Part) -> Part:
        """The part, which `close` closes."""
        return self._parts.enter_context(closing(part))

    @staticmethod
    def _restored(checkpointer: Checkpointer, environment: GymnasiumVectorEnvironment, file: str) -> str:
        """Restores environments from the newest checkpoint; returns why that cannot be, or nothing."""
        state = checkpointer.file(file)
        if state is None:
            return f"the checkpoint does not hold the state of {environment.name}"
        if not checkpointer.is_own(file):
            return "the environments' state is a pickle, which may run any code, of another user's"
        try:
            environment.restore(state)
        except ValueError as error:
            return str(error)
        return ""

    def run(self) -> Result:
        """Trains to the end, or until a signal; then evaluates, writes a checkpoint and says how it went."""
        learner, game = self.learner, self.environment.game
        self._compiled_at = learner.updates
        self._progress = Progress(
            self._training.updates,
            total_steps=self._training.environment_steps,
            updates=learner.updates,
            steps=learner.environment_steps,
            frames_per_step=None if game is None else FRAMES_PER_STEP,
        )
        for note in filter(None, (self.replay.memory_note, summaries.figures_note(), self.agent.heads.note)):
            self._progress.say(note)
        if learner.resumed:
            new = f" New episodes begin: {self._why_new_episodes}." if self._why_new_episodes else ""
            self._progress.say(f"Resumed at update {learner.updates:,}.{new}")
        with on_first_signal(self._stop):
            try:
                self._work()
            except EnvironmentFault:
                if learner.environment_steps:
                    learner.save()  # without the environments' state, which leads to the same fault again
                raise
            self._save()
        self._progress.done()
        counts, evaluations = (learner.updates, learner.environment_steps), self.evaluations
        words = evaluations.last_words, evaluations.best_words
        self._progress.say(closing_words(*counts, evaluations.last_return, *words, game))
        head = self.agent.heads.names[self.agent.policy.best_head]
        return Result(*counts, evaluations.last_return, self._stopped_by, head=head)

    def _work(self) -> None:
        """Collects and learns to the end, then evaluates."""
        # A checkpoint may have been written with updates still due. There are none at a fresh start.
        self._learn()
        self.collector.begin()
        learner, reached = self.learner, self._training.reached
        while self._stopped_by is None and not reached(learner.updates, learner.environment_steps):
            self.collector.run(self._training.steps_per_round)
            self._learn()
        if self._stopped_by is None and self._training.final_eval_rounds:
            self._evaluate(self._training.final_eval_rounds, self._training.trial_episodes)

    def _learn(self) -> None:
        """Makes the updates that are due for what has been collected."""
        training, learner = self._training, self.learner
        # Before the first update too: the collector's first priorities should know the scale.
        returns = learner.drain_statistics()
        self._progress.update(learner.updates, learner.environment_steps, returns)
        while self._stopped_by is None and self._update_due():
            if learner.updates == self._compiled_at:
                self._progress.update(learner.updates, learner.environment_steps, doing=COMPILING)
            learner.update()
            updates = learner.updates
            self._progress.update(updates, learner.environment_steps)
            self._progress.say_once(learner.note)
            due = training.eval_interval and updates % training.eval_interval == 0
            if due and not (self._is_last() and training.final_eval_rounds):
                self._evaluate(1)
            if updates % training.checkpoint_interval == 0:
                self._save()

    def _is_last(self) -> bool:
        """Says whether the update that has been made ends the run."""
        reached = self._training.reached(self.learner.updates, self.learner.environment_steps)
        return reached and not self._update_due()

    def _update_due(self) -> bool:
        updates, training = self.learner.updates, self._training
        if updates >= training.updates:
            return False
        if training.steps_per_update is None:
            return self.replay.updates_due(updates, training.batch_size)
        steps = self.learner.environment_steps
        return self.replay.updates_due_by_steps(updates, steps, training.steps_per_update)

    def _save(self) -> None:
        """Writes a checkpoint; the collector's state is of no use without the environment's."""
        environments, collector = self.environment.state(), self.collector.state()
        evaluation, files = self.eval_environment.state(), {}
        if environments is not None and collector is not None and len(environments) <= _LARGEST:
            files = {_ENVIRONMENTS: environments, _COLLECTOR: to_bytes(collector)}
        if evaluation is not None and len(evaluation) <= _LARGEST:
            files[_EVALUATION] = evaluation
        self.learner.save(files)

    def _evaluate(self, rounds: int, trial_episodes: int = 0) -> None:
        scales = self.learner.loss_scales()
        updates, steps = scales.updates, scales.steps

        def stopped() -> bool:
            self._progress.playing(self.evaluations.evaluator.playing)
            return self._stopped_by is not None

        mean_return = self.evaluations.run(updates, rounds, stopped, scales, trial_episodes)
        if mean_return is not None:
            self._progress.update(updates, steps, eval_return=mean_return)
        if (last := self.evaluations.last) and mean_return is not None and self._on_evaluation:
            evaluated = Evaluated(updates, steps, mean_return, last.returns, last.lengths)
            if self._on_evaluation(evaluated) is False:
                self._stop(0)

    def _stop(self, number: int) -> None:
        """Lets the update in progress finish."""
        self._stopped_by = number


def train(root_dir: str | os.PathLike, on_evaluation: Callable[[Evaluated], Any] | None = None) -> Result:
    """Trains as gin configures `train` (`agents.workers.settings.Training`) in `root_dir`; returns how it ended.

    Raises:
      UsageError: the configuration cannot be built: a replay that memory cannot hold, for one.
    """
    try:
        run = EmbeddedRun(root_dir, on_evaluation=on_evaluation)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with run:
        return run.run()
