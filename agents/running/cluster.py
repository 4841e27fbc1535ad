"""Places the roles of a distributed run with Ray, restarts what dies, and shows how the run goes.

Ray starts processes and calls methods. With Reverb, observations, statistics and weights never pass through it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.running.startup import quiet

quiet()  # in Ray's workers this module is the first of ours

import gin  # noqa: E402

from agents.errors import EnvironmentFault, RunFolderError, UsageError  # noqa: E402
from agents.monitoring.progress import Progress, closing_words  # noqa: E402
from agents.monitoring.summaries import figures_note  # noqa: E402
from agents.replay.backends import CALLS, REVERB  # noqa: E402
from agents.running import processes, ray_connection, roles  # noqa: E402
from agents.running.signals import on_first_signal, raise_for  # noqa: E402
from agents.storage.run_folder import PROCESSES, write  # noqa: E402
from agents.workers import build  # noqa: E402
from agents.workers.settings import Result, Settings  # noqa: E402

DEFAULT_COLLECTORS = 4
_PREDECESSORS = 300.0  # seconds within which the processes of a killed driver have to be gone
_NEXT_PROCESS = 300.0  # seconds within which Ray has to put another process in the place of one that died
_WAITS_WINDOW = 5.0  # seconds over which shares of waiting are taken
_COMPUTING = 20.0  # CPU seconds that show that it computes: more than looking at it takes in that time
_THREADS = 4  # in which a process answers what the others ask of its replay: nothing that waits
_POLL = 0.5  # seconds between two looks at all processes


class Host:
    """The Ray actor: one process with one role in it, which it builds anew whenever it is told to `work`."""

    def __init__(self, config: str, on_gpu: bool):
        if not on_gpu:  # Ray leaves it visible, and each TensorFlow that sees a GPU takes all of its memory
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        # The terminal's Ctrl-C reaches the whole process group; only the driver shall act on it.
        os.setpgid(0, 0)
        self._role: roles.Role | None = None
        with gin.unlock_config():
            gin.parse_config(config)

    def work(self, role: str, *args: Any) -> Any:
        """Builds `agents.running.roles.<role>(*args)` and returns what its `run` does."""
        self._role = None
        with getattr(roles, role)(*args) as working:
            self._role = working
            return working.run()

    def status(self) -> dict[str, Any]:
        """The role's status, empty while it is being built; and the process, with the CPU seconds that it has used."""
        process = {"pid": os.getpid(), "machine": platform.node(), "cpu_seconds": time.process_time()}
        return process | (self._role.status() if self._role is not None else {})

    def tell(self, method: str, *args: Any) -> None:
        """Calls a method of the role, if there is one already."""
        if self._role is not None:
            getattr(self._role, method)(*args)

    def ask(self, method: str, *args: Any) -> Any:
        """Calls a method of the role's replay for another process of the run."""
        if self._role is None:
            raise RuntimeError("the replay is not there yet, or no more")
        return getattr(self._role.replay, method)(*args)


class Member:
    """One process of the run, through all its restarts; `ray`: the module, connected."""

    def __init__(self, ray: Any, name: str, role: str, host: Any):
        self._ray = ray
        self.name, self.role, self.host = name, role, host
        self.task: Any = None
        self.starts = 0
        self.status: dict[str, Any] = {}
        self.died_at = -1  # updates of the run when its process died last
        self._asked: Any = None
        self._asked_at = 0.0

    def begin(self, *args: Any) -> None:
        """Lets the process work, for the first time or again."""
        self.task = self.host.work.remote(self.role, *args)
        self.forget()
        self.starts += 1

    def forget(self) -> None:
        """The next status will be one that is asked for from now on."""
        self.status, self._asked = {}, None

    def look(self) -> float:
        """Asks for the status without waiting for it; returns for how many seconds there has been no answer."""
        if self._asked is not None and self._ray.wait([self._asked], timeout=0)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self.status = self._ray.get(self._asked, timeout=processes.ANSWER)
            self._asked = None
        if self._asked is None:
            self._asked, self._asked_at = self.host.status.remote(), time.monotonic()
        return time.monotonic() - self._asked_at


class ClusterRun:
    """A distributed run; build it, `run` it, `close` it.

    Args:
      ray: the module, connected.
      settings: of the run.
      root_dir: the run folder, on a disk that the machines of replay, learner and evaluator share.
      collectors: how many processes collect, each in `train.num_envs` environments.
      one_machine: whether nobody joins from outside, so that the loopback address will do.
      backend: of the replay: "reverb", a process of its own, or "ray", in the learner's.
    """

    def __init__(
        self, ray: Any, settings: Settings, root_dir: str, collectors: int, one_machine: bool, backend: str
    ):
        self._root = root_dir
        self._stopped_by: int | None = None
        self._ray = ray
        self._settings, self._training, self._processes = settings, settings.train, ""
        config = f"{gin.config_str()}\nReplay.backend = {backend!r}\n"
        self._faults = 0
        self._waits_mark: tuple[float, dict[Member, float]] = time.monotonic(), {}
        # Of one machine; replicas do not reach another.
        most = max(int(node["Resources"].get("GPU", 0)) for node in self._ray.nodes() if node["Alive"])
        gpus = most if self._training.strategy == "mirrored" else min(most, 1)
        self._host_name = "127.0.0.1" if one_machine else self._ray.util.get_node_ip_address()

        # Sequences are the largest stream of all, and checkpoints are renamed within the run folder: who shares these
        # stays with this process if it can, whoever only writes sequences goes where there is room.
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=True
        )

        process = self._ray.remote(concurrency_groups={CALLS: _THREADS})(Host)

        def member(name: str, role: str, place: Any = here, **resources: Any) -> Member:
            actor = process.options(
                max_restarts=-1, max_concurrency=4, num_cpus=1, scheduling_strategy=place, **resources
            )
            return Member(ray, name, role, actor.remote(config, role == "LearnerRole"))

        server = [member("replay", "ReplayServer")] if backend == REVERB else []
        self._learner = member("learner", "LearnerRole", num_gpus=gpus)
        self._holder = (*server, self._learner)[0]  # of the replay: its death takes that along
        self._evaluator = member("evaluator", "EvaluatorRole")
        self._collectors = [member(f"collector {i}", "CollectorRole", "SPREAD") for i in range(collectors)]

    @property
    def _members(self) -> list[Member]:
        first = dict.fromkeys([self._holder, self._learner])
        return [*first, self._evaluator, *self._collectors]

    def run(self) -> Result:
        """Trains to the end, or until `stop`; then evaluates, and says how it went.

        Raises:
          RunFolderError: a process failed in a way that a restart would repeat, or too often.
        """
        self._begin_all()
        self._progress = self._first_progress()
        while self._stopped_by is None and not self._done():
            self._look_after_all()
        return self._finish()

    def close(self) -> None:
        """Ends every process of the run."""
        for member in self._members:
            self._ray.kill(member.host, no_restart=True)

    def stop(self, number: int) -> None:
        """Lets `run` come to its end; `number`: of the signal that asks for it."""
        self._stopped_by = number

    def _begin(self, member: Member) -> None:
        """Lets a member work with the arguments of its role."""
        index = self._collectors.index(member) if member in self._collectors else 0
        through_ray = None if member is self._learner else self._learner.host
        address = self._holder.status.get("address", through_ray)
        if member.role == "ReplayServer":
            member.begin(self._root, self._host_name)
        elif member in self._collectors:
            member.begin(address, index, member.starts)
        else:
            member.begin(self._root, address)
        self._write_processes()

    def _begin_all(self) -> None:
        """The replay first: the others need its address, and the learner what it has restored."""
        if self._stopped_by is not None:
            return
        self._begin(self._holder)
        self._wait_until_built(self._holder)
        if self._stopped_by is not None:
            return
        for member in self._members:
            if member is not self._holder:
                self._begin(member)

    def _wait_until_built(self, member: Member) -> None:
        deaths, since = 0, time.monotonic()
        while "memory" not in member.status and self._stopped_by is None:
            if self._ended(member):
                deaths += self._died_at_start(member, deaths, since)
                self._begin(member)
            member.look()
            time.sleep(0.05)

    def _died_at_start(self, member: Member, deaths: int, since: float) -> bool:
        """Says whether a process of the replay died while that was built; it has died so often `since` a time.

        Raises:
          UsageError: it was told what cannot be built.
          RunFolderError: something else would repeat itself.
        """
        try:
            self._ray.get(member.task, timeout=processes.ANSWER)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ValueError | UsageError):
                raise UsageError(str(error.cause)) from error
            raise RunFolderError(f"The {member.name} cannot be started: {error.cause}") from error
        except self._ray.exceptions.RayActorError as error:
            # Calls keep failing until its next process is there.
            away = isinstance(error, self._ray.exceptions.ActorUnavailableError) and not member.status
            if away and time.monotonic() - since < _NEXT_PROCESS:
                return False
            if deaths == self._training.max_faults:
                (why, *_) = str(error).strip().splitlines() or [type(error).__name__]
                raise RunFolderError(
                    f"The {member.name}'s process died {deaths + 1} times before it had started: {why}"
                ) from error
        return True

    def _restart_all(self) -> None:
        """After the end of the replay's process: what the others hold refers to a table that is gone."""
        self._say_died(self._holder, "everything goes on from the last checkpoint")
        for member in self._members:
            if member is not self._holder:
                self._ray.kill(member.host, no_restart=False)
        self._begin_all()

    def _lost(self, patience: float = 0.0) -> bool:
        """Says whether the process that holds the replay has died, or dies in these seconds."""
        holder = self._holder
        if not self._ray.wait([holder.task], timeout=patience)[0]:
            return False
        # A learner may be done, or fail as it would again.
        died = self._ray.exceptions.RayActorError
        return holder is not self._learner or isinstance(self._failure(holder), died)

    def _ended(self, member: Member) -> bool:
        """Says whether a member that has begun works no more, for whatever reason."""
        return member.task is not None and bool(self._ray.wait([member.task], timeout=0)[0])

    def _done(self) -> bool:
        """Says whether the learner has made all of its updates; one that died has ended, and is not done."""
        return self._ended(self._learner) and self._failure(self._learner) is None

    def _look_after_all(self) -> None:
        """One round of supervision: restarts, stuck environments, the terminal."""
        self._ray.wait([member.task for member in self._members], timeout=_POLL)
        if self._lost():
            return self._restart_all()
        for member in self._members:
            error = self._failure(member) if self._ended(member) else None
            if error is None:
                continue
            # Whoever fails because the replay is gone may be noticed before the replay is.
            if self._lost(2.0):
                return self._restart_all()
            if self._done():
                return
            self._explain(member, error)
            self._begin(member)
        for member in self._members:
            silent = member.look()
            stuck = member.status.get("activity") == "environment" and member.status["seconds"] + silent
            if stuck and stuck > self._training.step_timeout:
                here = member.status.get("machine") == platform.node()  # another machine's cannot be seen
                if here and not _is_host(member.status["pid"]):  # and Ray has yet to notice
                    self._say_died(member, "it starts again")
                else:
                    self._count_fault(
                        f"{member.name}: a step of its environments, after {member.status['steps']:,} of all together, "
                        f"has not returned for {stuck:.0f} s"
                    )
                    self._ray.kill(member.host, no_restart=False)
                member.status = {}
        self._show()

    def _failure(self, member: Member) -> Exception | None:
        """Names what ended a member's work; None for a learner that is done."""
        try:
            self._ray.get(member.task, timeout=processes.ANSWER)
        except self._ray.exceptions.RayError as error:
            return error
        return None if member is self._learner else RuntimeError("it ended without being asked to")

    def _explain(self, member: Member, error: Exception) -> None:
        """Says why a member has to begin again.

        Raises:
          RunFolderError: it would fail again in the same way.
        """
        if isinstance(error, self._ray.exceptions.RayActorError):
            if member.status:  # the first news of it; calls keep failing until its next process is there
                self._say_died(member, "it starts again")
            return
        cause = getattr(error, "cause", error)
        if member is self._learner or isinstance(cause, UsageError):
            raise RunFolderError(f"{member.name}: {cause}") from error
        named = isinstance(cause, EnvironmentFault)
        self._count_fault(str(cause) if named else f"{member.name}: {type(cause).__name__}: {cause}")

    def _say_died(self, member: Member, then: str) -> None:
        """A death is a fault if nothing was learned since the one before: then something keeps killing it."""
        updates, before = self._learner.status.get("updates", 0), member.died_at
        member.died_at = updates
        if updates == before:
            self._count_fault(f"{member.name}: its process died twice at update {updates:,}")
        else:
            self._progress.say(f"{member.name}: its process died; {then}.")

    def _count_fault(self, what: str) -> None:
        self._faults += 1
        if self._faults > self._training.max_faults:
            raise RunFolderError(
                f"{what}\nThat was fault {self._faults} of this start, and train.max_faults is "
                f"{self._training.max_faults}. The same command goes on from the last checkpoint"
            )
        self._progress.say(f"{what}; it starts again (fault {self._faults} of {self._training.max_faults}).")

    def _first_progress(self) -> Progress:
        while "updates" not in self._learner.status and not self._ended(self._learner):
            if self._stopped_by is not None:
                break
            self._learner.look()
            time.sleep(0.05)
        status = self._learner.status
        progress = Progress(
            self._training.updates,
            total_steps=self._training.environment_steps,
            updates=status.get("updates", 0),
            steps=status.get("steps", 0),
            frames_per_step=status.get("frames_per_step"),
        )
        for note in (self._holder.status.get("memory"), figures_note(), self._settings.heads.note):
            progress.say_once(note)
        if "address" in self._holder.status:
            port = self._holder.status["address"].rpartition(":")[2]
            progress.say(
                f"Open to the network, without a password: Reverb's port {port}; docs/scaling.md says how to close it."
            )
        if status.get("updates"):
            progress.say(f"Resumed at update {status['updates']:,}.")
        return progress

    def _show(self) -> None:
        self._write_processes()
        learner = self._learner.status
        if "updates" not in learner:
            return
        counts = learner["updates"], learner["steps"]
        eval_return = self._evaluator.status.get("eval_return")
        waits = self._waits()
        if waits is not None:
            self._learner.host.tell.remote("note_waits", *waits)
        self._evaluator.host.tell.remote("note_loss_scales", learner["loss_scales"])
        self._progress.update(
            *counts,
            learner.pop("returns", ()),
            eval_return,
            waits,
            learner.get("doing", ""),
        )
        self._progress.say_once(learner["note"])

    def _waits(self) -> tuple[float, float] | None:
        """Shares of the last seconds in which the learner waited for data, and collectors for the learner."""
        then, before = self._waits_mark
        seconds = time.monotonic() - then
        if seconds < _WAITS_WINDOW:
            return None
        now = {member: member.status["waited"] for member in self._members if "waited" in member.status}
        self._waits_mark = time.monotonic(), now
        shares = {m: min(1.0, max(0.0, now[m] - before[m]) / seconds) for m in now if m in before}
        learner = shares.pop(self._learner, None)
        return None if learner is None or not shares else (learner, sum(shares.values()) / len(shares))

    def _write_processes(self) -> None:
        """Says in the run folder which process is which."""
        lines = "".join(f"{member.name}: {member.status.get('pid', '-')}\n" for member in self._members)
        if lines != self._processes:
            self._processes = lines
            write(os.path.join(self._root, PROCESSES), lines)

    def _finish(self) -> Result:
        """Lets everybody stop; the evaluator plays its last episodes if the run came to its own end."""
        for member in self._collectors:
            member.host.tell.remote("stop")
        if self._stopped_by is not None:
            for member in (self._learner, self._evaluator):
                member.host.tell.remote("stop")
            if "updates" in self._learner.status:  # otherwise it has not begun, and has nothing to save
                for _ in self._looks_until_end(self._learner):
                    pass
        else:
            self._play_last()
        learner, evaluator = (self._outcome(member) for member in (self._learner, self._evaluator))
        updates, steps = learner.get("updates", 0), learner.get("steps", 0)
        eval_return = evaluator.get("eval_return")
        self._progress.update(updates, steps, learner.get("returns", ()), eval_return)
        self._progress.done()
        final = float("nan") if eval_return is None else eval_return
        others = (evaluator.get(name) for name in ("evaluated", "best", "game"))
        self._progress.say(closing_words(updates, steps, final, *others))
        return Result(updates, steps, final, self._stopped_by, head=evaluator.get("head", ""))

    def _play_last(self) -> None:
        """Waits for the last evaluation, which an evaluator that fails plays again."""
        evaluator = self._evaluator
        while self._stopped_by is None:
            for _ in self._looks_until_end(evaluator):
                if self._stopped_by is not None:
                    return
                # Again and again, for it may still be starting.
                evaluator.host.tell.remote(
                    "note_loss_scales", self._outcome(self._learner).get("loss_scales")
                )
                evaluator.host.tell.remote("finish")
                self._progress.playing(evaluator.status.get("playing", ""))
            error = self._failure(evaluator)
            if not isinstance(error, self._ray.exceptions.RayError):
                return
            self._explain(evaluator, error)
            evaluator.forget()
            while not evaluator.status:  # until its next process is there
                if self._stopped_by is not None:
                    return
                evaluator.look()
                time.sleep(_POLL)
            self._begin(evaluator)

    def _looks_until_end(self, member: Member) -> Iterator[None]:
        """Yields before every look at a member that is to end; kills its process once nothing about it moves.

        It moves while it computes, counts or writes. A second signal ends this process at once.
        """
        moved, before = time.monotonic(), None
        patience = max(processes.PATIENCE, self._training.step_timeout)
        while not self._ended(member):
            yield
            self._ray.wait([member.task], timeout=_POLL)
            member.look()
            counts = (member.status.get(name) for name in ("pid", "updates", "steps"))
            computed = member.status.get("cpu_seconds", 0.0) // _COMPUTING
            now = (*counts, computed, processes.last_change(Path(self._root)))
            if now != before:
                moved, before = time.monotonic(), now
            elif time.monotonic() - moved > patience:
                self._progress.say(
                    f"{member.name}: told to end, it has done nothing for {patience:.0f} s; it is killed."
                )
                return self._ray.kill(member.host, no_restart=False)

    def _outcome(self, member: Member) -> dict[str, Any]:
        """Returns what a member's work came to, or else its last status."""
        if self._ended(member):
            with contextlib.suppress(self._ray.exceptions.RayError):
                return self._ray.get(member.task, timeout=processes.ANSWER)
        return member.status


def train(settings: Settings, root_dir: str, collectors: int, cluster: str | None = None) -> Result:
    """Trains in `root_dir`, distributed over processes; see `ClusterRun`.

    Args:
      settings: of the run; its processes read them from gin's configuration, which they get as text.
      cluster: address of a Ray cluster to join; None starts one on this machine.

    Raises:
      UsageError: Ray is not installed, nor what the replay needs, or the cluster cannot be reached.
      RunFolderError: the run has failed.
    """
    root_dir = os.path.abspath(root_dir)
    _wait_for_predecessors(root_dir)
    backend = build.backend_of(settings, root_dir, distributed=True)
    slots = collectors + 3
    # A second signal ends the process at once as long as Ray is there: an exception in its shutdown ends in anything.
    with contextlib.closing(contextlib.ExitStack()) as signals, ray_connection.opened(cluster, slots) as ray:
        run: ClusterRun | None = None
        signals.enter_context(on_first_signal(lambda number: run.stop(number) if run else raise_for(number)))
        run = ClusterRun(ray, settings, root_dir, collectors, one_machine=cluster is None, backend=backend)
        try:
            return run.run()
        finally:
            run.close()


def _wait_for_predecessors(root_dir: str) -> None:
    """Waits until the processes of a driver that was killed are gone: Ray ends them, and they write to the folder.

    Raises:
      RunFolderError: one of them stays.
    """
    recorded = Path(root_dir, PROCESSES)
    text = recorded.read_text(errors="replace") if recorded.exists() else ""
    numbers = re.findall(r": (\d+)$", text, re.MULTILINE)
    end = time.monotonic() + _PREDECESSORS
    while left := [number for number in numbers if _is_host(number)]:
        if time.monotonic() > end:
            raise RunFolderError(
                f"Processes of an earlier start still work in {root_dir}: {', '.join(left)}. Stop them, or wait."
            )
        time.sleep(_POLL)


def _is_host(process: str | int) -> bool:
    """Says whether a process of this machine is one of a distributed run, and no other one that has its number now."""
    try:
        return b"ray::Host" in Path("/proc", f"{process}", "cmdline").read_bytes()
    except OSError:
        return False
