"""Runs processes, some at a time, here or on a Ray cluster; what interrupts that ends them in order."""

from __future__ import annotations

import ctypes
import functools
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agents import UsageError
from agents.running import ray_connection

Job = TypeVar("Job")
_POLL = 0.5  # seconds between two looks at all processes
_PRCTL, _PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


def start(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a command that the terminal's Ctrl-C does not reach, and that gets SIGTERM when this process is gone."""
    end_with_this = functools.partial(_PRCTL, _PR_SET_PDEATHSIG, signal.SIGTERM)
    return subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_this, **options)


def work_through(
    jobs: Iterable[Job], begin: Callable[[Job], subprocess.Popen], places: int = 1
) -> Generator[tuple[Job, int], None, None]:
    """Begins jobs, as many at a time as there are places, and yields each that has ended with its exit code.

    An exception sends SIGTERM to what runs and waits until it has ended; so do Ctrl-C and SIGTERM, which raise one.
    """
    _exit_on_sigterm()
    waiting = iter(jobs)
    running: dict[Job, subprocess.Popen] = {}
    try:
        while True:
            for job in itertools.islice(waiting, places - len(running)):
                running[job] = begin(job)
            if not running:
                return
            time.sleep(_POLL)
            for job in [job for job, process in running.items() if process.poll() is not None]:
                yield job, running.pop(job).returncode
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def work_through_on_ray(
    commands: Mapping[Path, Sequence[str]], cluster: str, resources: dict[str, float]
) -> Generator[tuple[Path, int], None, None]:
    """Runs the command of each folder wherever a cluster has room, printing to FOLDER.log; yields as `work_through`.

    Raises:
      UsageError: the cluster cannot be reached, or is smaller than the `resources` of one command.
    """
    with ray_connection.opened(cluster, slots=0) as ray:
        _exit_on_sigterm()  # Ray has a handler of its own
        there = ray.cluster_resources()
        if resources["num_cpus"] > there.get("CPU", 0) or resources["num_gpus"] > there.get("GPU", 0):
            raise UsageError(f"No machine of the cluster has room for a run with {resources}.")
        remote = ray.remote(_work).options(max_retries=0, **resources)
        tasks = {remote.remote(command, f"{folder}.log"): folder for folder, command in commands.items()}
        try:
            while tasks:
                time.sleep(_POLL)  # a signal that arrives in a call of Ray's becomes another exception
                for task in ray.wait(list(tasks), num_returns=len(tasks), timeout=0)[0]:
                    try:
                        code = ray.get(task)
                    except ray.exceptions.RayError:  # its machine is gone, for one
                        code = 1
                    yield tasks.pop(task), code
        finally:
            for task in tasks:
                ray.cancel(task)
            for task in tasks:
                ray.wait([task])


def _exit_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _work(command: Sequence[str], log: str) -> int:
    """The task of Ray's, which interrupts it as Ctrl-C would."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as said:
        begin = functools.partial(start, stdout=said, stderr=subprocess.STDOUT)
        ((_, code),) = work_through([tuple(command)], begin)
    return code
