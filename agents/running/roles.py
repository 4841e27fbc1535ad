"""The work of each process of a distributed run. Where it runs, and what happens when it dies, is not decided here.

All processes build what they need from the same gin configuration and meet in the replay alone: Reverb's server, or the
learner's table, which Ray's calls reach. An `address` is that of Reverb's server, or Ray's handle of the learner. `run`
works until it is done or `stop` has been called from another thread; `status` may be called from any thread.
"""

from __future__ import annotations

import abc
import contextlib
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from agents.agent import RecurrentMultiHeadAgent
from agents.monitoring import summaries
from agents.replay.backends import RAY, REVERB
from agents.running.loop import learn
from agents.storage.checkpoint import Checkpointer
from agents.storage.run_folder import newest_step, write_operative_config
from agents.storage.weights import Publisher, assign
from agents.workers import build
from agents.workers.evaluator import Evaluations
from agents.workers.settings import Settings
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.environments.names import FRAMES_PER_STEP

_PUBLISH_EVERY = 100  # updates; evaluations wait for it, so no more than their interval
_POLL = 0.05  # seconds between two looks of whoever has nothing to do


class Role(abc.ABC):
    """Opens in the constructor, works in `run`, closes in `close` or as a context manager.

    Attributes:
      replay: the run's, or the way there.
    """

    replay: Any

    def __init__(self, settings: Settings | None = None):
        self._opened = contextlib.ExitStack()
        self.settings = settings or Settings.configured()
        self.training = self.settings.train
        self._stopping = threading.Event()

    def __enter__(self) -> Role:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes what it has opened, the newest first."""
        self._opened.close()

    def stop(self) -> None:
        """Ends `run` soon."""
        self._stopping.set()

    @abc.abstractmethod
    def run(self) -> Any:
        """Works until it is done, or stopped."""

    @abc.abstractmethod
    def status(self) -> dict[str, Any]:
        """Figures that the driver shows and supervises."""

    def _open_replay(
        self,
        environment: GymnasiumVectorEnvironment,
        agent: RecurrentMultiHeadAgent,
        backend: str,
        **connection: Any,
    ) -> None:
        self._opened.callback(environment.close)
        self.replay = build.build_replay(self.settings, environment, agent, backend, **connection)
        self._opened.callback(self.replay.stop)


class ReplayServer(Role):
    """Hosts the Reverb server, with what the newest whole checkpoint holds of it.

    Args:
      root_dir: the run folder, on a disk that the learner's machine sees as well.
      host: name or address by which the others reach this machine.
    """

    def __init__(self, root_dir: str, host: str = "localhost"):
        super().__init__()
        folders = Checkpointer(root_dir, {}).replay_folders()
        environment = build.build_eval_environment(self.settings)
        agent = build.build_agent(self.settings, environment)
        self._open_replay(environment, agent, REVERB, folders=folders)
        self.address = f"{host}:{self.replay.address.rsplit(':', 1)[1]}"

    def run(self) -> None:
        self._stopping.wait()

    def status(self) -> dict[str, Any]:
        return {"address": self.address, "memory": self.replay.memory_note}


class LearnerRole(Role):
    """Updates, publishes weights, writes checkpoints; owns the run's counters.

    Args:
      root_dir: the run folder.
      address: of Reverb's server; None: the table is here, with what the newest whole checkpoint holds of it.
    """

    def __init__(self, root_dir: str, address: str | None):
        super().__init__()
        environment = build.build_eval_environment(self.settings)
        agent = build.build_agent(
            self.settings, environment, strategy=build.build_strategy(self.training.strategy)
        )
        checkpointer = Checkpointer(root_dir, build.trackables(agent), lambda: self.replay.checkpoint())
        if address is not None:
            self._open_replay(environment, agent, REVERB, address=address)
        else:
            self._open_replay(environment, agent, RAY, folders=checkpointer.replay_folders())
        self._learner = build.build_learner(self.settings, root_dir, agent, self.replay, checkpointer)
        self._publisher = Publisher(agent.acting_variables, self.replay.publish)
        self._opened.callback(self._publisher.close)
        self._loss_scales: summaries.LossScales | None = None
        self._doing = ""
        self._publish()
        self._waited = 0.0
        self._frames_per_step = None if environment.game is None else FRAMES_PER_STEP
        self._new_returns: list[float] = []
        self._returns_lock = threading.Lock()
        write_operative_config(root_dir)
        summaries.write_once(root_dir, agent, environment, distributed=True)

    def run(self) -> dict[str, Any]:
        """Trains to the end or until stopped, then writes a checkpoint."""
        learner, stopped = self._learner, self._stopping.is_set
        try:
            learn(learner, self, self.training, stopped, self._after_update, learner.save, self._show)
        except FloatingPointError:  # weights that must not reach a checkpoint
            raise
        except Exception:
            if not stopped():  # otherwise it was waiting for sequences, and the dataset has ended
                raise
        learner.save()
        self._publish()
        self._publisher.close()
        return self.status()

    def due(self) -> bool:
        """Says whether a batch keeps to the replay ratio, and the run goes on."""
        learner = self._learner
        over = self.training.reached(learner.updates, learner.environment_steps)
        return not over and self.replay.batch_due(learner.batch_size)

    def more(self) -> None:
        """Waits a moment for what collectors write."""
        self._waited += _POLL
        self._stopping.wait(_POLL)

    def _after_update(self, updates: int) -> None:
        if self._publisher.error is not None:
            raise self._publisher.error
        if updates % min(_PUBLISH_EVERY, self.training.eval_interval or _PUBLISH_EVERY) == 0:
            self._publish()

    def _show(self, returns: list[float], doing: str) -> None:
        self._doing = doing
        with self._returns_lock:
            self._new_returns.extend(returns)

    def stop(self) -> None:
        super().stop()
        self.replay.end_waits()

    def status(self) -> dict[str, Any]:
        with self._returns_lock:
            returns, self._new_returns = self._new_returns, []
        return {
            "updates": self._learner.updates,
            "steps": self._learner.environment_steps,
            "returns": returns,
            "waited": self._waited,
            "frames_per_step": self._frames_per_step,
            "loss_scales": self._loss_scales,
            "doing": self._doing,
            "note": self._learner.note,
            "memory": self.replay.memory_note,
        }

    def note_waits(self, learner: float, collectors: float) -> None:
        """For TensorBoard: shares of the last seconds in which either side waited for the other."""
        with self._learner.summary_writer.as_default(step=self._learner.updates):
            tf.summary.scalar("waits/learner", learner)
            tf.summary.scalar("waits/collectors", collectors)

    def _publish(self) -> None:
        self._loss_scales = self._learner.loss_scales()
        self._publisher.publish(self._learner.updates)


class Acting(Role):
    """An agent that follows the learner's weights.

    Args:
      settings: of the run.
      address: of Reverb's server; or Ray's handle of the learner's process.
      environment: where it acts; closed with it.
      seed: of its acting.
      collector: its index, if it writes.
    """

    def __init__(
        self,
        settings: Settings,
        address: Any,
        environment: GymnasiumVectorEnvironment,
        seed: int,
        collector: int = -1,
    ):
        super().__init__(settings)
        self._own_environment = environment
        self._agent = build.build_agent(settings, environment, seed)
        if isinstance(address, str):
            self._open_replay(environment, self._agent, REVERB, address=address)
        else:
            self._opened.callback(environment.close)
            self.replay = build.build_ray_client(settings, environment, self._agent, address, collector)
        self._weights_step = -1

    def _pull(self) -> None:
        """Takes the newest weights, if there are newer ones than those in use."""
        newer = self.replay.weights(newer_than=self._weights_step)
        if newer is not None:
            self._weights_step, data = newer
            assign(self._agent.acting_variables, data)

    def _wait_for_weights(self) -> None:
        while self._weights_step < 0 and not self._stopping.wait(_POLL):
            self._pull()


class CollectorRole(Acting):
    """Acts in a batch of environments and feeds the replay.

    Args:
      address: of the replay.
      index: which collector of the run this is.
      start: how often it was started before, so that it does not repeat the episodes that it began with.
    """

    def __init__(self, address: Any, index: int, start: int):
        settings = Settings.configured()
        seed = settings.seeds.collector(index, start, seconds=int(time.time()))
        environment = build.build_environment(settings, settings.train.num_envs, seed)
        super().__init__(settings, address, environment, seed, index)
        self._collector = build.build_collector(environment, self._agent, self.replay, f"collector {index}")
        self._opened.callback(self._collector.close)

    def run(self) -> None:
        self._wait_for_weights()
        pulled_at = 0
        while not self._stopping.is_set():
            steps = self._collector.environment_steps
            if steps - pulled_at >= self.training.weights_interval * self._own_environment.batch_size:
                self._pull()
                pulled_at = steps
            self._collector.run(self.training.steps_per_round)

    def stop(self) -> None:
        super().stop()
        self.replay.end_waits()

    def status(self) -> dict[str, Any]:
        activity, since = self._collector.activity
        return {
            "activity": activity,
            "seconds": time.monotonic() - since,
            "steps": self._collector.environment_steps,
            "waited": self._collector.waited,
            "weights": self._weights_step,
        }


class EvaluatorRole(Acting):
    """Plays greedily whenever weights are `eval_interval` updates newer, and once more at the end.

    Args:
      root_dir: the run folder.
      address: of the replay.
    """

    def __init__(self, root_dir: str, address: Any):
        settings = Settings.configured()
        seed = settings.seeds.evaluating(newest_step(root_dir))
        environment = build.build_eval_environment(settings, settings.train.eval_envs, seed)
        super().__init__(settings, address, environment, seed)
        self._evaluations = Evaluations(root_dir, self._own_environment, self._agent)
        self._opened.callback(self._evaluations.close)
        self._loss_scales: summaries.LossScales | None = None
        self._finishing = threading.Event()

    def finish(self) -> None:
        """Lets `run` play the last evaluation and end; the learner has published its last weights."""
        self._finishing.set()

    def note_loss_scales(self, scales: summaries.LossScales) -> None:
        """The learner's, for the figure that goes with an evaluation."""
        self._loss_scales = scales

    def run(self) -> dict[str, Any]:
        self._wait_for_weights()
        interval = self.training.eval_interval
        # The first weights are those of the start, or the resumed ones, whose evaluation does not come again.
        evaluated = self._weights_step
        while not (self._stopping.is_set() or self._finishing.is_set()):
            self._pull()
            last = self._weights_step >= self.training.updates and self.training.final_eval_rounds
            if interval and self._weights_step // interval > evaluated // interval and not last:
                evaluated = self._weights_step
                self._evaluate(1)
            self._finishing.wait(1.0)
        if self._finishing.is_set() and self.training.final_eval_rounds:
            self._pull()
            self._evaluate(self.training.final_eval_rounds, self.training.trial_episodes)
        return self.status()

    def status(self) -> dict[str, Any]:
        last_return = self._evaluations.last_return
        return {
            "eval_return": None if np.isnan(last_return) else last_return,
            "evaluated": self._evaluations.last_words,
            "best": self._evaluations.best_words,
            "head": self._agent.heads.names[self._agent.policy.best_head],
            "game": self._own_environment.game,
            "steps": self._evaluations.evaluator.steps,
            "playing": self._evaluations.evaluator.playing,
        }

    def _evaluate(self, rounds: int, trial_episodes: int = 0) -> None:
        stopped = self._stopping.is_set
        self._evaluations.run(self._weights_step, rounds, stopped, self._loss_scales, trial_episodes)
