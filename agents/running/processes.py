"""Runs processes side by side, here or on a Ray cluster; an interrupt ends them in order."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agents.errors import UsageError
from agents.running import ray_connection
from agents.running.signals import on_first_signal, raise_for

Job = TypeVar("Job")
PATIENCE = 300.0  # seconds in which something of a run that was told to stop has to change
ANSWER = 60.0  # seconds in which Ray has to hand out what it says is there
_POLL = 0.5  # seconds between two looks at all processes
_PRCTL, _PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


def start(command: Sequence[str], core: int | None = None, **options: Any) -> subprocess.Popen:
    """Starts a command that the terminal's Ctrl-C does not reach, and that gets SIGTERM when this process is gone.

    Args:
      core: of this machine, the only one that it may use; None: it may use all.
    """

    def prepare() -> None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if core is not None:
            os.sched_setaffinity(0, {core})

    return subprocess.Popen(command, start_new_session=True, preexec_fn=prepare, **options)


def work_through(
    jobs: Iterable[Job], begin: Callable[[Job, int], subprocess.Popen], at_a_time: int = 1
) -> Generator[tuple[Job, int], None, None]:
    """Runs jobs, `at_a_time` side by side, and yields each that has ended with its exit code.

    `begin` gets a job and the number of a free place, from 0. An exception sends SIGTERM to the processes and waits for
    them. A first SIGINT or SIGTERM raises one; a second one ends this process, and SIGTERM goes to the others again.
    """
    signals: list[int] = []
    with on_first_signal(signals.append):
        waiting, at_work = iter(jobs), dict[int, tuple[Job, subprocess.Popen]]()
        try:
            while True:
                free = [place for place in range(at_a_time) if place not in at_work]
                for place, job in zip(free, waiting, strict=False):
                    at_work[place] = job, begin(job, place)
                if not at_work:
                    return
                time.sleep(_POLL)
                if signals:
                    raise_for(signals[0])
                for place, (job, process) in list(at_work.items()):
                    if (code := process.poll()) is not None:
                        del at_work[place]
                        yield job, code
        finally:
            for _, process in at_work.values():
                process.terminate()
            for _, process in at_work.values():
                process.wait()


def work_through_on_ray(
    commands: Mapping[Path, Sequence[str]], cluster: str, resources: dict[str, float]
) -> Generator[tuple[Path, int], None, None]:
    """Runs the command of each folder on a Ray cluster, with its output in FOLDER.log; yields as `work_through`.

    Raises:
      UsageError: the cluster cannot be reached, or is smaller than the `resources` of one command.
    """
    signals: list[int] = []
    # Entered within the connection, as Ray installs a handler of its own, and left after it: see `cluster.started`.
    with contextlib.closing(contextlib.ExitStack()) as handlers, ray_connection.opened(cluster, 0) as ray:
        handlers.enter_context(on_first_signal(signals.append))
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus, gpus = resources["num_cpus"], resources["num_gpus"]
        if not any(cpus <= has.get("CPU", 0) and gpus <= has.get("GPU", 0) for has in machines):
            raise UsageError(f"No machine of the cluster has room for a run with {resources}.")
        remote = ray.remote(_work).options(max_retries=0, **resources)
        tasks: dict[Any, Path] = {}
        try:
            for folder, command in commands.items():
                tasks[remote.remote(command, str(_log(folder)))] = folder
            while tasks:
                time.sleep(_POLL)
                if signals:
                    raise_for(signals[0])
                for task in _ended(ray, tasks):
                    try:
                        code = ray.get(task, timeout=ANSWER)
                    except ray.exceptions.RayError:  # its machine is gone, for one
                        code = 1
                    yield tasks.pop(task), code
        finally:
            _stop(ray, tasks)


def _ended(ray: Any, tasks: Mapping[Any, Path]) -> list[Any]:
    return ray.wait(list(tasks), num_returns=len(tasks), timeout=0)[0] if tasks else []


def _stop(ray: Any, tasks: Mapping[Any, Path]) -> None:
    """Interrupts tasks and waits for them; kills them when nothing in their folders has changed for `PATIENCE`."""
    left, before, changed = dict(tasks), None, time.monotonic()
    while left and time.monotonic() - changed < PATIENCE:
        for task in left:  # again and again: an interrupt that comes too early is lost
            ray.cancel(task)
        time.sleep(_POLL)
        for task in _ended(ray, left):
            del left[task]
        now = {path: last_change(path) for run in left.values() for path in (run, _log(run))}
        if now != before:
            before, changed = now, time.monotonic()
    for task in left:
        ray.cancel(task, force=True)


def last_change(path: Path) -> float:
    """Last change of a file, or of anything in a folder, in seconds of its disk's clock; 0.0 if there is none."""
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in ("", *names))
    latest = 0.0
    for each in (str(path), *inside):
        with contextlib.suppress(OSError):  # what is at work in there may have removed it
            latest = max(latest, os.stat(each).st_mtime)
    return latest


def _log(folder: Path) -> Path:
    return Path(f"{folder}.log")


def _work(command: Sequence[str], log: str) -> int:
    """Ray's task: runs a command to its end, or until Ray cancels it by SIGINT, again and again."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    signals: list[int] = []
    with open(log, "a") as said, on_first_signal(signals.append, only=True):
        process = start(command, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(_POLL)
            if signals:
                process.terminate()
                process.wait()
        return process.returncode
