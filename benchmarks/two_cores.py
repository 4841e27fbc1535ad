"""Updates per second of wall time with two cores against one: the quickstart in one process, and with two collectors.

    .venv/bin/python -m benchmarks.two_cores

One run of train.py each, after its warm-up given two cores and one by turns (`sched_setaffinity` of all its threads and
processes); updates are read off its progress, which a terminal gets twice a second. Its thread pools keep the size that
they have with two cores. No evaluation and no checkpoints meanwhile. Wall time, so it needs an idle machine.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import Row, publish

ROUNDS = 7
SECONDS, SETTLING = 4.0, 1.0  # of one measurement; after a change of cores
WARM_UP = 100  # updates
LONGEST_START = 180.0  # seconds
SETTINGS = ("train.eval_interval = 0", "train.final_eval_rounds = 0", "train.checkpoint_interval = 1_000_000")
TICKS = os.sysconf("SC_CLK_TCK")

Marks = list[tuple[float, int]]  # when (monotonic), how many updates by then


def read_progress(terminal: int, marks: Marks) -> None:
    """Appends to `marks` until the process has closed its side."""
    text = ""
    with contextlib.suppress(OSError):  # what a terminal without processes answers
        while piece := os.read(terminal, 4096).decode(errors="replace"):
            *lines, text = re.split(
                "[\r\n]", text + piece
            )  # each line begins with a return, so the last one waits
            found = [re.match(r"updates ([\d,]+)/", line) for line in lines]
            marks += [(time.monotonic(), int(line[1].replace(",", ""))) for line in found if line]


@contextlib.contextmanager
def running(
    *arguments: str, cores: set[int] | None = None, environment: dict[str, str] | None = None
) -> Iterator[tuple[int, Marks]]:
    """A run past its warm-up, in a terminal of its own; yields its process id and its progress, which goes on.

    Args:
      *arguments: of train.py, beside those of a quickstart without end.
      cores, environment: where it starts, and its variables; by default this process's.

    Raises:
      RuntimeError: it ended, or did not get so far.
    """
    marks: Marks = []
    with tempfile.TemporaryDirectory() as folder:
        ours, its = pty.openpty()
        bindings = [f"--gin_bindings={setting}" for setting in SETTINGS]
        command = [sys.executable, "train.py", "--config=quickstart", "--updates=1000000", *bindings]
        command += [f"--root_dir={folder}/run", *arguments]
        process = subprocess.Popen(command, stdout=its, stdin=subprocess.DEVNULL, env=environment)
        if cores:
            give(process.pid, cores)
        os.close(its)
        reader = threading.Thread(target=read_progress, args=(ours, marks))
        reader.start()
        try:
            end = time.monotonic() + LONGEST_START
            while not marks or marks[-1][1] < WARM_UP:
                time.sleep(0.1)
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"train.py {' '.join(arguments)} has not begun to learn")
            yield process.pid, marks
        finally:
            give(process.pid, os.sched_getaffinity(0))
            process.send_signal(signal.SIGTERM)
            process.wait()
            reader.join()
            os.close(ours)


def family(pid: int) -> list[int]:
    """A process and all that it has started, and so on."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for member in found:
        found += parents.get(member, [])
    return found


def give(pid: int, cores: set[int]) -> None:
    """Binds every thread of a run to these cores."""
    for member in family(pid):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{member}/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread), cores)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a run's processes that live."""
    ticks = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def rate(pid: int, marks: Marks, cores: set[int]) -> tuple[float, float]:
    """Updates per second with these cores, and how many of them were in use."""
    give(pid, cores)
    time.sleep(SETTLING)
    first, cpu, start = len(marks), cpu_seconds(pid), time.monotonic()
    time.sleep(SECONDS)
    used = (cpu_seconds(pid) - cpu) / (time.monotonic() - start)
    (then, before), (now, after) = marks[first], marks[-1]
    return (after - before) / (now - then), used


def compare(what: str, *arguments: str, reach: str = "") -> Row:
    one, *others = sorted(os.sched_getaffinity(0))
    if not others:
        raise RuntimeError("This takes two cores")
    choices = {2: {one, others[0]}, 1: {one}}
    found: dict[int, list[tuple[float, float]]] = {2: [], 1: []}
    with running(*arguments) as (pid, marks):
        for turn in range(ROUNDS):
            for cores in (2, 1) if turn % 2 == 0 else (1, 2):
                found[cores].append(rate(pid, marks, choices[cores]))
    ratios = [two / one for (two, _), (one, _) in zip(found[2], found[1], strict=True)]
    (two, in_use), (one, one_in_use) = (
        tuple(map(statistics.median, zip(*found[cores], strict=True))) for cores in (2, 1)
    )
    note = f"Wall time; cores in use: {in_use:.2f} of two, {one_in_use:.2f} of one."
    middle = statistics.median(ratios)
    return Row(
        f"{what}, two cores", "one core", "updates per second", two, one, middle, min(ratios), max(ratios), middle,
        reach, note,
    )  # fmt: skip


def main() -> None:
    publish(compare("quickstart, embedded", reach="at least 1.5"))
    publish(compare("quickstart, two collectors", "--collectors=2", reach="at least 1.7"))


if __name__ == "__main__":
    main()
