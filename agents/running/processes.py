"""Runs processes side by side; an interrupt ends them in order."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agents.running.signals import raise_signal, stop_on_signal

Job = TypeVar("Job")
ANSWER = 60.0  # seconds in which Ray has to hand out what it says is there
_POLL = 0.5  # seconds between two looks at all processes
_PRCTL = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1  # as Linux numbers it


def read_start_time(process: int | str) -> str:
    """Clock ticks between this machine's start and that of a process, which tells it from others of the same number.

    "" if no process has this number, or only one that has ended and whose parent does not look.
    """
    try:
        state, *figures = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else figures[18]


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
    with stop_on_signal(signals.append):
        waiting = iter(jobs)
        at_work = dict[int, tuple[Job, subprocess.Popen]]()
        try:
            while True:
                free = [place for place in range(at_a_time) if place not in at_work]
                for place, job in zip(free, waiting, strict=False):
                    at_work[place] = job, begin(job, place)
                if not at_work:
                    return
                time.sleep(_POLL)
                if signals:
                    raise_signal(signals[0])
                for place, (job, process) in list(at_work.items()):
                    if (code := process.poll()) is not None:
                        del at_work[place]
                        yield job, code
        finally:
            for _, process in at_work.values():
                process.terminate()
            for _, process in at_work.values():
                process.wait()
