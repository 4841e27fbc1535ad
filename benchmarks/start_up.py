"""Time to the end of the first update of `train.py --config=quickstart`, new and resumed with a full replay.

    .venv/bin/python -m benchmarks.start_up

The real command in processes of their own, by turns, after one run that has filled the replay and stopped. CPU time is
that of the process and its children, the interpreter's start included; wall time begins before the process does. The
runs that fill and resume replay less (`Replay.replay_ratio`), for at the quickstart's ratio filling would take 20,000
updates. Few rounds, as a start takes long.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.side_by_side import Row, publish

ROUNDS = 3
QUICKSTART = ["--config=quickstart"]
FILLING = ["--gin_bindings=Replay.replay_ratio = 0.5"]
FILLED_AFTER = 640  # updates: 0.5 * (10,440 sequences - 200) / 8, and there is room for 10,000
STAGES = ("interpreter", "imports", "environment", "parts", "first steps", "first update")


def cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def marked() -> None:
    """Runs train.py as `sys.argv` says, and ends with its first update: prints the stages' CPU seconds as JSON."""
    from agents.commands import train as command_line

    marks = [cpu_seconds()]

    def mark(*_: Any) -> None:
        marks.append(cpu_seconds())

    def imported(*_: Any) -> None:
        mark()
        from agents.running.embedded import EmbeddedRun
        from agents.workers.learner import Learner

        def updated(learner: Learner) -> None:
            mark()
            usage = {"stages": marks, "wall": time.monotonic(), "sequences": learner._replay.size}
            print(json.dumps(usage), flush=True)
            os._exit(0)  # without the checkpoint that a signal would bring

        around(EmbeddedRun, "__init__", after=mark)
        around(Learner, "update", before=mark, after=updated)

    around(command_line, "_mode", after=imported)
    around(command_line.run_folder, "opened", before=mark)
    runpy.run_path("train.py", run_name="__main__")


def around(
    owner: Any, name: str, before: Callable = lambda *_: None, after: Callable = lambda *_: None
) -> None:
    """Replaces a function by itself between these two, which get its arguments."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def replaced(*args):
        before(*args)
        result = function(*args)
        after(*args)
        return result

    setattr(owner, name, replaced)


def first_update(*arguments: str) -> dict[str, Any]:
    """Starts train.py; returns what `marked` prints, `stages` by name and without those before, `wall` in seconds."""
    start = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.start_up", "--marked", *arguments]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    marks = [0.0, *found["stages"]]
    stages = {name: then - now for name, now, then in zip(STAGES, marks[:-1], marks[1:], strict=True)}
    return found | {"wall": found["wall"] - start, "cpu": marks[-1], "stages": stages}


def start_row(what: str, against: str, starts: list[dict], rivals: list[dict] | None, reach: str) -> Row:
    """Ours and the rival in CPU seconds; without a rival, the ratio is that to one second."""
    ones = [{"cpu": 1.0, "wall": 1.0}] * len(starts)
    pairs = list(zip(starts, rivals or ones, strict=True))
    ratios = [ours["cpu"] / rival["cpu"] for ours, rival in pairs]
    medians = {name: statistics.median(start["stages"][name] for start in starts) for name in STAGES}
    wall = statistics.median(start["wall"] for start in starts)
    return Row(
        what,
        against,
        "cpu-s",
        statistics.median(ours["cpu"] for ours, _ in pairs),
        statistics.median(rival["cpu"] for _, rival in pairs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(ours["wall"] / rival["wall"] for ours, rival in pairs),
        reach,
        f"Wall: {wall:.3g} s, {starts[0]['sequences']:,} sequences. "
        + ", ".join(f"{name} {seconds:.2f}" for name, seconds in medians.items())
        + " cpu-s.",
    )


def main() -> None:
    new, resumed = [], []
    with tempfile.TemporaryDirectory() as folder:
        full = [*QUICKSTART, *FILLING, f"--root_dir={folder}/full"]
        short = ["--gin_bindings=train.final_eval_rounds = 0", "--gin_bindings=train.eval_interval = 0"]
        filling = [sys.executable, "train.py", *full, *short, f"--updates={FILLED_AFTER}"]
        subprocess.run(filling, check=True, stdout=subprocess.DEVNULL)
        for turn in range(ROUNDS):
            new.append(first_update(*QUICKSTART, f"--root_dir={folder}/new{turn}"))
            resumed.append(first_update(*full, *short))
    publish(start_row("start of the quickstart to its first update", "one second", new, None, "at most 8"))
    publish(
        start_row("resuming the quickstart with a full replay", "starting it", resumed, new, "at most 1.5")
    )


if __name__ == "__main__":
    if "--marked" in sys.argv:
        sys.argv = [arg for arg in sys.argv if arg != "--marked"]
        marked()
    else:
        main()
