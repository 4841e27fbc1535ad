"""The roles of a distributed run, each a Ray actor.

They exchange data only through the replay: Reverb's server, or the learner's table, which Ray's calls reach.
"""

from __future__ import annotations

import abc
import contextlib
import os
import platform
import threading
import time
from typing import Any

from agents.running.startup import quiet

quiet()  # before TensorFlow: in Ray's workers this module is imported first

import gin  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import rbs_tf  # noqa: E402
from agents.agent import RecurrentMultiHeadAgent  # noqa: E402
from agents.errors import UsageError  # noqa: E402
from agents.monitoring import summaries  # noqa: E402
from agents.replay.backends import RAY, REVERB  # noqa: E402
from agents.replay.replay import ReplayStopped  # noqa: E402
from agents.running.loop import learn  # noqa: E402
from agents.running.processes import read_start_time  # noqa: E402
from agents.running.ray_connection import SAME_VERSIONS  # noqa: E402
from agents.settings import Settings  # noqa: E402
from agents.storage.checkpoint import Checkpointer  # noqa: E402
from agents.storage.run_folder import newest_step, write_operative_config  # noqa: E402
from agents.storage.weights import assign, pack  # noqa: E402
from agents.workers import build  # noqa: E402
from agents.workers.evaluator import Evaluations  # noqa: E402
from agents.workers.learner import Learner  # noqa: E402
from rbs_tf.environments.batched import GymnasiumVectorEnvironment  # noqa: E402

_PUBLISH_EVERY = 100  # updates; evaluations wait for it, so no more than their interval
_POLL = 0.05  # seconds between two looks for weights or sequences


def describe_versions() -> str:
    """Versions that have to be the same on all machines of a run, in words."""
    packages = (f"{package.__name__} {package.__version__}" for package in (rbs_tf, tf, np))
    return ", ".join([f"Python {platform.python_version()}", *packages])


class Role(abc.ABC):
    """A process with one task, `run`. Its other methods may be called at any time.

    Args:
      config: gin's configuration of the run.
      root_dir: the run folder; all but collectors need its disk.
      versions: of the driver, see `describe_versions`.
      index: of a collector.

    Attributes:
      opened: closes the role's parts, the newest first.
      environment: the role's own.
      replay: the run's, or a client of it; None until it is built.
    """

    environment: GymnasiumVectorEnvironment
    on_gpu = False

    def __init__(self, config: str, root_dir: str, versions: str, index: int = 0):
        if not self.on_gpu:  # Ray leaves it visible, and a TensorFlow that sees a GPU takes all of its memory
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        os.setpgid(0, 0)  # the terminal's Ctrl-C goes to the driver's group
        with gin.unlock_config():
            gin.parse_config(config)
        self.settings = Settings.from_gin()
        self.training = self.settings.train
        tf.random.set_seed(self.training.seed)  # for layers of users that draw from it
        self.opened = contextlib.ExitStack()
        self.replay: Any = None
        self._root = root_dir
        self._versions = versions
        self._index = index
        self._stopping = threading.Event()
        self._built = False

    def run(self, address: Any, start: int) -> dict[str, Any]:
        """Builds the role and works until it is done or stopped; returns the last status.

        Args:
          address: of Reverb's server, or Ray's handle of the learner. Of `ReplayRole`: the name of its machine.
          start: how often the role was started before.

        Raises:
          UsageError: this machine's versions are not the driver's.
        """
        if (here := describe_versions()) != self._versions:
            raise UsageError(
                f"{platform.node()} has {here}, and the driver {self._versions}. {SAME_VERSIONS}"
            )
        with self.opened:
            self.build(address, start)
            self._built = True
            with contextlib.suppress(ReplayStopped):  # it was waiting when it was stopped
                self.work()
            last = self.status()
        return last

    def status(self) -> dict[str, Any]:
        """Figures for the driver; only those of the process until the role is built."""
        pid = os.getpid()
        return {"pid": pid, "began": read_start_time(pid)} | (self.figures() if self._built else {})

    def stop(self) -> None:
        """Ends `run` soon."""
        self._stopping.set()
        if self.replay is not None:
            self.replay.end_waits()

    @abc.abstractmethod
    def build(self, address: Any, start: int) -> None:
        """Opens what the role needs."""

    @abc.abstractmethod
    def work(self) -> None:
        """Works until it is done or stopped."""

    @abc.abstractmethod
    def figures(self) -> dict[str, Any]:
        """The role's part of the status."""

    def _open_replay(self, agent: RecurrentMultiHeadAgent, backend: str, **place: str) -> None:
        self.opened.callback(self.environment.close)
        self.replay = build.build_replay(self.settings, self.environment, agent, backend, **place)
        self.opened.callback(self.replay.stop)


class ReplayRole(Role):
    """Hosts the Reverb server, restored from the newest whole checkpoint."""

    def build(self, address: str, start: int) -> None:
        self.environment = build.build_eval_environment(self.settings)
        agent = build.build_agent(self.settings, self.environment)
        self._memory = build.check_fits(self.settings, self.environment, agent.network.state_spec, REVERB)
        self._open_replay(agent, REVERB, root_dir=self._root)
        self.address = f"{address}:{self.replay.address.rsplit(':', 1)[1]}"

    def work(self) -> None:
        self._stopping.wait()

    def figures(self) -> dict[str, Any]:
        return {"address": self.address, "memory": self._memory}


class LearnerRole(Role):
    """Updates, publishes weights, writes checkpoints, counts. Without Reverb it holds the replay's table."""

    on_gpu = True

    def build(self, address: Any, start: int) -> None:
        self.environment = environment = build.build_eval_environment(self.settings)
        strategy = build.build_strategy(self.training.strategy)
        agent = build.build_agent(self.settings, environment, strategy=strategy)
        self._memory = ""
        if self.settings.replay.backend == RAY:
            self._memory = build.check_fits(self.settings, environment, agent.network.state_spec, RAY)
            self._open_replay(agent, RAY, root_dir=self._root)
        else:
            self._open_replay(agent, REVERB, address=address)
        checkpointer = Checkpointer(self._root, build.trackables(agent), self.replay.checkpoint)
        self._learner = Learner(
            self._root,
            agent,
            self.replay,
            self.training.batch_size,
            self.training.summary_interval,
            checkpointer,
        )
        self._acting_variables = agent.acting_variables
        self._doing = ""
        self._waited = 0.0
        self._mark = time.monotonic()
        self._publish()
        self._new_returns: list[float] = []
        self._returns_lock = threading.Lock()
        write_operative_config(self._root)
        summaries.write_once(self._root, agent, self.settings)

    def work(self) -> None:
        """Trains to the end or until stopped, then writes a checkpoint."""
        learner = self._learner
        stopped = self._stopping.is_set
        try:
            learn(learner, self, self.training, stopped, self._after_update, learner.save, self._show)
        except FloatingPointError:  # weights that must not reach a checkpoint
            raise
        except Exception:
            if not stopped():  # otherwise it was waiting for sequences, and the dataset has ended
                raise
        learner.save()
        self._publish()

    def is_due(self) -> bool:
        """Says whether a batch keeps to the replay ratio, and the run goes on."""
        learner = self._learner
        over = self.training.is_over(learner.updates, learner.environment_steps)
        return not over and self.replay.batch_due(learner.batch_size)

    def gather(self) -> None:
        """Waits a moment for the collectors."""
        self._waited += _POLL
        self._stopping.wait(_POLL)

    def figures(self) -> dict[str, Any]:
        with self._returns_lock:
            returns, self._new_returns = self._new_returns, []
        return {
            "updates": self._learner.updates,
            "steps": self._learner.environment_steps,
            "returns": returns,
            "loss_scales": self._loss_scales,
            "doing": self._doing,
            "note": self._learner.note,
            "memory": self._memory,
        }

    def write(self, writer: int, number: int, report: Any, round_: Any) -> int:
        """Calls `RayTable.write` for a client; the next two do likewise."""
        return self.replay.write(writer, number, report, round_)

    def count_waiting(self, writer: int) -> int:
        return self.replay.count_waiting(writer)

    def weights(self, newer_than: int) -> tuple[int, list[Any]] | None:
        return self.replay.weights(newer_than)

    def _after_update(self, updates: int) -> None:
        if updates % min(_PUBLISH_EVERY, self.training.eval_interval or _PUBLISH_EVERY) == 0:
            self._publish()
        if self.training.summary_interval and updates % self.training.summary_interval == 0:
            self._write_waits(updates)

    def _write_waits(self, updates: int) -> None:
        """Tells TensorBoard the share of the time since the last call that the learner has waited."""
        then, self._mark = self._mark, time.monotonic()
        with self._learner.summary_writer.as_default(step=updates):
            tf.summary.scalar("waits/learner", self._waited / (self._mark - then))
        self._waited = 0.0

    def _show(self, returns: list[float], doing: str) -> None:
        self._doing = doing
        with self._returns_lock:
            self._new_returns.extend(returns)

    def _publish(self) -> None:
        self._loss_scales = self._learner.loss_scales()
        self.replay.publish(self._learner.updates, pack(self._acting_variables))


class Acting(Role):
    """An agent that follows the learner's weights in an environment."""

    _weights_step = -1

    def _open(self, address: Any, environment: GymnasiumVectorEnvironment, seed: int) -> None:
        self.environment = environment
        self._agent = build.build_agent(self.settings, environment, seed)
        if self.settings.replay.backend == RAY:
            self.opened.callback(environment.close)
            self.replay = build.build_ray_client(self.settings, environment, self._agent, address)
        else:
            self._open_replay(self._agent, REVERB, address=address)

    def _pull(self) -> None:
        """Takes the newest weights, if they are newer than those in use."""
        newer = self.replay.weights(newer_than=self._weights_step)
        if newer is not None:
            self._weights_step, data = newer
            assign(self._agent.acting_variables, data)

    def _wait_for_weights(self) -> None:
        while self._weights_step < 0 and not self._stopping.wait(_POLL):
            self._pull()


class CollectorRole(Acting):
    """Acts in a batch of environments and feeds the replay."""

    def build(self, address: Any, start: int) -> None:
        # A later start does not repeat the episodes that the first one began with.
        seed = self.settings.seeds.collector_seed(self._index, start, seconds=int(time.time()))
        self._open(address, build.build_environment(self.settings, self.training.num_envs, seed), seed)
        name = f"collector {self._index}"
        self._collector = build.build_collector(self.environment, self._agent, self.replay, name)
        self.opened.callback(self._collector.close)

    def work(self) -> None:
        self._wait_for_weights()
        pulled_at = 0
        while not self._stopping.is_set():
            steps = self._collector.environment_steps
            if steps - pulled_at >= self.training.weights_interval * self.environment.batch_size:
                self._pull()
                pulled_at = steps
            self._collector.run(self.training.steps_per_round)

    def figures(self) -> dict[str, Any]:
        return {
            "stepping": self._collector.stepper.seconds,
            "steps": self._collector.environment_steps,
            "weights": self._weights_step,
        }


class EvaluatorRole(Acting):
    """Plays greedily whenever weights are `eval_interval` updates newer, and once more at the end."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._loss_scales: summaries.LossScales | None = None
        self._finishing = threading.Event()

    def build(self, address: Any, start: int) -> None:
        seed = self.settings.seeds.evaluation_seed(newest_step(self._root))
        self._open(address, build.build_eval_environment(self.settings, self.training.eval_envs, seed), seed)
        self._evaluations = Evaluations(self._root, self.environment, self._agent)
        self.opened.callback(self._evaluations.close)

    def note(self, scales: summaries.LossScales, last: bool = False) -> None:
        """Takes the learner's loss scales, for the figure that goes with an evaluation.

        Args:
          last: the learner has published its last weights: `run` plays the last evaluation and ends.
        """
        self._loss_scales = scales
        if last:
            self._finishing.set()

    def work(self) -> None:
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

    def figures(self) -> dict[str, Any]:
        evaluator = self._evaluations.evaluator
        last_return = self._evaluations.last_return
        return {
            "stepping": evaluator.stepper.seconds,
            "eval_return": None if np.isnan(last_return) else last_return,
            "evaluated": self._evaluations.last_words,
            "best": self._evaluations.best_words,
            "head": self._agent.heads.names[self._agent.policy.best_head],
            "game": self.environment.game,
            "steps": evaluator.steps * self.environment.batch_size,
            "playing": evaluator.playing,
        }

    def _evaluate(self, rounds: int, trial_episodes: int = 0) -> None:
        stopped = self._stopping.is_set
        self._evaluations.run(self._weights_step, rounds, stopped, self._loss_scales, trial_episodes)
