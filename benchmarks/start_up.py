"""What `train.py --config=quickstart` costs when it makes one update, new and resumed with a full replay.

    .venv/bin/python -m benchmarks.start_up

The real command in processes of their own, by turns, after one run that has filled the replay and stopped: interpreter,
imports, building, compiling, the first steps, one update, and the checkpoint at the end. The runs that fill and resume
replay less (`Replay.replay_ratio`), for at the quickstart's ratio filling would take 20,000 updates. Few rounds, as a
start takes long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.side_by_side import publish, row

ROUNDS = 3
NO_EVALUATION = ("train.final_eval_rounds = 0", "train.eval_interval = 0")
FILLING = "Replay.replay_ratio = 0.5"
FILLED_AFTER = 640  # updates: 0.5 * (10,440 sequences - 200) / 8, and there is room for 10,000


def train(root: str, updates: int, *bindings: str) -> float:
    """CPU seconds of a run to this number of updates."""
    flags = ["--config=quickstart", f"--root_dir={root}", f"--updates={updates}"]
    flags += [f"--gin_bindings={binding}" for binding in (*NO_EVALUATION, *bindings)]
    command = [sys.executable, "train.py", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    new, resumed = [], []
    with tempfile.TemporaryDirectory() as folder:
        full = f"{folder}/full"
        train(full, FILLED_AFTER, FILLING)
        for turn in range(ROUNDS):
            new.append(train(f"{folder}/new{turn}", 1))
            resumed.append(train(full, FILLED_AFTER + turn + 1, FILLING))
    publish(
        row("the quickstart with one update", "one second", new, [1.0] * ROUNDS, unit="cpu-ms", at_most=8)
    )
    what = "one more update of a quickstart with a full replay"
    publish(row(what, "a new one", resumed, new, unit="cpu-ms", at_most=1.5))


if __name__ == "__main__":
    main()
