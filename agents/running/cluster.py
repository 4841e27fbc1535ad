"""Starts the roles of a distributed run with Ray, restarts what dies, and shows how the run goes.

Ray places processes and calls methods. With Reverb, observations, statistics and weights do not pass through it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gin

from agents.errors import EnvironmentFault, RunFolderError, UsageError
from agents.monitoring.progress import Progress, closing_words
from agents.monitoring.summaries import LossScales, figures_note
from agents.replay.backends import CALLS, REVERB
from agents.running import processes, ray_connection, roles
from agents.running.signals import raise_signal, stop_on_signal
from agents.settings import Settings
from agents.storage.run_folder import PROCESSES, describe_next_start, write
from agents.workers import build
from agents.workers.results import Result

DEFAULT_COLLECTORS = 4
_PREDECESSORS = 300.0  # seconds within which the processes of a killed driver have to be gone
_THREADS = 4  # of a process, for calls to its replay; none of these waits
_POLL = 0.5  # seconds between two looks at all processes


class Member:
    """A role of the run, and the process that has it now.

    Args:
      ray: the module, connected.
      name: in messages and in the run folder.
      start: starts a process; returns Ray's handle of it.

    Attributes:
      process, task: Ray's handle of the process, and its reference to `Role.run`, once that has begun.
      status: the last answer to `Role.status`.
      error: the exception that ended the task; None if it has not ended so.
      died_at: the run's updates at the last death of a process; -1 before any.
    """

    def __init__(self, ray: Any, name: str, start: Callable[[], Any]):
        self._ray = ray
        self.name = name
        self._start = start
        self._starts, self.died_at = 0, -1
        self.process: Any = None
        self.renew()

    def renew(self) -> None:
        """Replaces the present process by a new one."""
        self.kill()
        self.process = self._start()
        self.task = None
        self.status: dict[str, Any] = {}
        self.error: Exception | None = None
        self._ask()

    def kill(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self._ray.kill(self.process, no_restart=True)

    def work(self, address: Any) -> None:
        """Lets the role begin; see `Role.run`."""
        self.task = self.process.run.remote(address, self._starts)
        self._starts += 1

    def has_ended(self, within: float = 0.0) -> bool:
        """Whether the task has ended, or ends within so many seconds; sets `status` or `error` then."""
        if self.task is None or not self._ray.wait([self.task], timeout=within)[0]:
            return False
        try:
            self.status = self._ray.get(self.task, timeout=processes.ANSWER)
        except self._ray.exceptions.RayError as error:
            self.error = error
        return True

    @property
    def seconds_unanswered(self) -> float:
        """Seconds since the process was asked for its status, which it has not answered."""
        return time.monotonic() - self._asked_at

    def look(self) -> None:
        """Takes the newest status without waiting."""
        if self._ray.wait([self._asked], timeout=0)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self.status = self._ray.get(self._asked, timeout=processes.ANSWER)
            self._ask()

    def _ask(self) -> None:
        self._asked = self.process.status.remote()
        self._asked_at = time.monotonic()


class ClusterRun:
    """A distributed run, see `started`.

    Args:
      ray: the module, connected.
      settings, root_dir, collectors, cluster: as of `started`.

    Raises:
      UsageError: the replay needs what is not installed.
    """

    def __init__(self, ray: Any, settings: Settings, root_dir: str, collectors: int, cluster: str | None):
        self._ray = ray
        self._settings = settings
        self._training = settings.train
        self._root = root_dir
        self._stopped_by: int | None = None
        self._faults, self._processes = 0, ""
        self._progress = Progress(self._training.updates)
        self._counting = False
        self._host = ray.util.get_node_ip_address() if cluster else "127.0.0.1"
        # Of one machine; replicas do not reach another.
        most = max(int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"])
        gpus = most if self._training.strategy == "mirrored" else min(most, 1)
        backend = build.choose_backend(settings, root_dir, distributed=True)
        config = f"{gin.config_str()}\nReplay.backend = {backend!r}\n"
        # Learner, evaluator and replay share large streams and a disk, so Ray puts them on this node if it can.
        # Collectors go where there is room.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )

        def member(name: str, role: type[roles.Role], index: int = 0, **resources: Any) -> Member:
            # Four threads: `run`, and what the driver asks or tells meanwhile.
            actor = ray.remote(concurrency_groups={CALLS: _THREADS}, max_concurrency=4, num_cpus=1)(role)
            actor = actor.options(**{"scheduling_strategy": here} | resources)
            return Member(ray, name, lambda: actor.remote(config, root_dir, roles.describe_versions(), index))

        server = [member("replay", roles.ReplayRole)] if backend == REVERB else []
        self._learner = member("learner", roles.LearnerRole, num_gpus=gpus)
        self._evaluator = member("evaluator", roles.EvaluatorRole)
        self._collectors = [
            member(f"collector {i}", roles.CollectorRole, i, scheduling_strategy="SPREAD")
            for i in range(collectors)
        ]
        self._members = [*server, self._learner, self._evaluator, *self._collectors]
        # When it dies all restart, as they refer to its table; any other restarts by itself.
        self._holder = server[0] if server else self._learner

    def run(self) -> Result:
        """Trains to the end, or until `stop`; then evaluates, and says how it went.

        Raises:
          UsageError: the replay cannot be built as the settings say.
          RunFolderError: a process failed in a way that a restart would repeat, or too often.
        """
        while self._stopped_by is None and not _has_finished(self._learner):
            self._supervise()
        return self._finish()

    def close(self) -> None:
        """Ends every process of the run."""
        for member in self._members:
            member.kill()

    def stop(self, number: int) -> None:
        """Ends `run` in order; `number`: of the signal that asks for it."""
        self._stopped_by = number

    def _supervise(self) -> None:
        """One round: statuses, the terminal, and restarts of what has ended too early."""
        self._look(*self._members)
        self._replace_stuck(*self._members)
        self._show()
        tasks = {member.task: member for member in self._members if member.task is not None}
        ready, _ = self._ray.wait(list(tasks), timeout=_POLL)
        if ready:
            # When the holder of the replay dies, the others fail as well, and their end may be seen first: look at the
            # holder before them.
            ended = next(member for member in (self._holder, tasks[ready[0]]) if member.has_ended(2.0))
            if not _has_finished(self._learner):
                self._restart(ended)

    def _look(self, *members: Member) -> None:
        """Reads statuses, and lets roles begin once the replay is there."""
        for member in members:
            member.look()
            # The holder says what memory the replay takes as soon as it has built it.
            if member.task is None and member is self._holder:
                member.work(self._host)
            elif member.task is None and "memory" in self._holder.status:
                member.work(self._holder.status.get("address", self._holder.process))
        # For a driver that comes after this one has been killed, see `_wait_for_predecessors`.
        lines = ""
        for member in self._members:
            status = member.status
            process = f"{status['pid']} since {status['began']}" if "pid" in status else "-"
            lines += f"{member.name}: {process}\n"
        if lines != self._processes:
            self._processes = lines
            write(os.path.join(self._root, PROCESSES), lines)

    def _replace_stuck(self, *members: Member) -> None:
        """Replaces those processes whose environments hang."""
        for member in members:
            # A process that hangs in C++ answers no more: its last answer has aged by the time it has been silent.
            stepping = member.status.get("stepping", 0.0)
            stuck = stepping + member.seconds_unanswered
            if stepping and stuck > self._training.step_timeout:
                self._count_fault(
                    f"{member.name}: a step of its environments, after {member.status['steps']:,} of all together, "
                    f"has not returned for {stuck:.0f} s"
                )
                member.renew()

    def _restart(self, member: Member) -> None:
        """Restarts a member whose task has ended too early, and all of them if it holds the replay.

        Raises:
          UsageError, RunFolderError: a restart would fail again, or there were too many faults.
        """
        holds = member is self._holder
        if isinstance(member.error, self._ray.exceptions.RayActorError):
            updates = self._learner.status.get("updates", 0)
            before = member.died_at
            member.died_at = updates
            if updates == before:  # nothing was learned since the last death: something keeps killing it
                self._count_fault(f"{member.name}: its process died twice at update {updates:,}")
            else:
                then = "everything goes on from the last checkpoint" if holds else "it starts again"
                self._progress.say(f"{member.name}: its process died; {then}.")
        else:
            unasked = RuntimeError("it ended without being asked to")
            cause = getattr(member.error, "cause", member.error) or unasked
            # Before the first update: the replay cannot be built as the user has asked for it.
            if holds and not self._counting and isinstance(cause, ValueError | UsageError):
                raise UsageError(str(cause)) from member.error
            # What learner or replay raise, a restart would meet again.
            if holds or member is self._learner or isinstance(cause, UsageError):
                raise RunFolderError(f"{member.name}: {cause}") from member.error
            named = isinstance(cause, EnvironmentFault)  # says who acted
            self._count_fault(str(cause) if named else f"{member.name}: {type(cause).__name__}: {cause}")
        for each in self._members if holds else [member]:
            each.renew()

    def _count_fault(self, what: str) -> None:
        self._faults += 1
        if self._faults > self._training.max_faults:
            raise RunFolderError(
                f"{what}\nThat was fault {self._faults} of this start, and train.max_faults is "
                f"{self._training.max_faults}. {describe_next_start(self._root)}"
            )
        self._progress.say(f"{what}; it starts again (fault {self._faults} of {self._training.max_faults}).")

    def _show(self) -> None:
        learner = self._learner.status
        if "updates" not in learner:
            return
        if not self._counting:
            self._begin_counting(learner)
        self._evaluator.process.note.remote(learner["loss_scales"])
        # The same status is shown until the next one arrives: its returns count the first time only.
        eval_return = self._evaluator.status.get("eval_return")
        returns = learner.pop("returns", ())
        self._progress.update(learner["updates"], learner["steps"], returns, eval_return, learner["doing"])
        self._progress.say_once(learner["note"])

    def _begin_counting(self, learner: dict[str, Any]) -> None:
        """Replaces the progress by one that starts where the learner does."""
        self._counting = True
        self._progress = Progress(
            self._training.updates,
            total_steps=self._training.environment_steps,
            updates=learner["updates"],
            steps=learner["steps"],
        )
        for note in (self._holder.status["memory"], figures_note(), self._settings.heads.note):
            self._progress.say_once(note)
        if "address" in self._holder.status:
            port = self._holder.status["address"].rpartition(":")[2]
            self._progress.say(
                f"Open to the network, without a password: Reverb's port {port}; docs/scaling.md says how to close it."
            )
        if learner["updates"]:
            self._progress.say(f"Resumed at update {learner['updates']:,}.")

    def _finish(self) -> Result:
        """Stops all; the evaluator plays its last episodes if the run came to its own end."""
        for member in self._collectors:
            member.process.stop.remote()
        if self._stopped_by is not None:
            self._stop_learner()
        self._show()
        last = self._learner.status
        while self._stopped_by is None and not _has_finished(self._evaluator):
            self._supervise_last_evaluation(last["loss_scales"])
        updates = last.get("updates", 0)
        steps = last.get("steps", 0)
        played = self._evaluator.status
        eval_return = played.get("eval_return")
        self._progress.update(updates, steps, eval_return=eval_return)
        self._progress.finish()
        final = float("nan") if eval_return is None else eval_return
        self._progress.say(
            closing_words(
                updates, steps, final, played.get("evaluated"), played.get("best"), played.get("game")
            )
        )
        return Result(updates, steps, final, self._stopped_by, head=played.get("head", ""))

    def _stop_learner(self) -> None:
        """Waits for the learner's checkpoint; a second signal ends this process at once."""
        for member in (self._learner, self._evaluator):
            member.process.stop.remote()
        begun = "updates" in self._learner.status  # otherwise it has nothing to save
        while begun and not self._learner.has_ended():
            self._look(self._learner)
            time.sleep(_POLL)

    def _supervise_last_evaluation(self, loss_scales: LossScales) -> None:
        """One round; where the evaluator has failed or hangs, another process plays again."""
        evaluator = self._evaluator
        if evaluator.error is not None:
            self._restart(evaluator)
        # Every time: a process that has just taken another's place has not heard it.
        evaluator.process.note.remote(loss_scales, True)
        self._look(self._holder, evaluator)
        self._replace_stuck(evaluator)
        self._progress.show_evaluation(evaluator.status.get("playing", ""))
        time.sleep(_POLL)


@contextlib.contextmanager
def started(
    settings: Settings, root_dir: str, collectors: int, cluster: str | None = None
) -> Iterator[ClusterRun]:
    """Starts the processes of a distributed run, and ends them.

    Args:
      settings: of the run; its processes read them from gin's configuration, which they get as text.
      root_dir: the run folder, on a disk that the machines of replay, learner and evaluator share.
      collectors: how many processes collect, each in `train.num_envs` environments.
      cluster: address of a Ray cluster to join; None starts one on this machine.

    Raises:
      UsageError: Ray is not installed, nor what the replay needs, or the cluster cannot be reached.
      RunFolderError: the run has failed.
    """
    root_dir = os.path.abspath(root_dir)
    _wait_for_predecessors(root_dir)
    # Signals are handled until Ray has shut down, which an exception of theirs would disturb.
    with (
        contextlib.closing(contextlib.ExitStack()) as signals,
        ray_connection.opened(cluster, collectors + 3) as ray,
    ):
        run: ClusterRun | None = None
        signals.enter_context(
            stop_on_signal(lambda number: run.stop(number) if run else raise_signal(number))
        )
        run = ClusterRun(ray, settings, root_dir, collectors, cluster)
        try:
            yield run
        finally:
            run.close()


def _has_finished(member: Member) -> bool:
    """Whether its task has ended in order."""
    return member.has_ended() and member.error is None


def _wait_for_predecessors(root_dir: str) -> None:
    """Waits until the processes of a killed driver are gone: they still write to the folder.

    Raises:
      RunFolderError: one of them stays.
    """
    recorded = Path(root_dir, PROCESSES)
    text = recorded.read_text(errors="replace") if recorded.exists() else ""
    # A number alone may by now be that of another process, or may come from another machine.
    listed = re.findall(r": (\d+) since (\d+)$", text, re.MULTILINE)
    end = time.monotonic() + _PREDECESSORS
    while left := [number for number, began in listed if processes.read_start_time(number) == began]:
        if time.monotonic() > end:
            raise RunFolderError(
                f"Processes of an earlier start still work in {root_dir}: {', '.join(left)}. Stop them, or wait."
            )
        time.sleep(_POLL)
