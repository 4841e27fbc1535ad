"""A check that memory stays flat: resident memory of every process of a distributed quickstart run, for half an hour.

    .venv/bin/python -m benchmarks.memory --minutes=30 --settle=10 -- --gin_bindings="Replay.capacity = 30000"

What follows `--` goes to train.py. Prints by how much each process's memory departs from what it was when it had
settled; every sample is in memory.csv beside the run folder.
"""

from __future__ import annotations

import argparse
import csv
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 10.0  # between samples


def resident(pid: int) -> float:
    """Resident memory of a process that is alive [MB], shared pages included."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


def samples(root: Path, driver: subprocess.Popen, minutes: float) -> dict[str, list[tuple[float, float]]]:
    """(minutes since the start, MB) of every process, by name."""
    found: dict[str, list[tuple[float, float]]] = {}
    start = time.monotonic()
    with (root.parent / "memory.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("process", "minute", "resident_mb"))
        while (minute := (time.monotonic() - start) / 60) < minutes:
            time.sleep(SECONDS)
            if driver.poll() is not None:
                raise SystemExit(f"the run ended with {driver.returncode}")
            processes = root / "processes.txt"
            lines = processes.read_text().splitlines() if processes.exists() else []
            pids = dict(line.split(": ") for line in lines) | {"driver": driver.pid}
            for name, pid in pids.items():
                if pid != "-":
                    row = round(minute, 2), round(resident(int(pid)), 1)
                    found.setdefault(name, []).append(row)
                    table.writerow((name, *row))
            file.flush()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--settle", type=float, default=10.0, help="minutes that do not count")
    parser.add_argument("arguments", nargs="*", help="for train.py")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="memory_")) / "run"
    command = [sys.executable, "train.py", "--config=quickstart", f"--root_dir={root}", "--collectors=2"]
    with (root.parent / "output.txt").open("w") as output:
        driver = subprocess.Popen(
            [*command, "--updates=100000000", *options.arguments], cwd=ROOT, stdout=output, stderr=output
        )
        try:
            found = samples(root, driver, options.minutes)
        finally:
            driver.send_signal(signal.SIGINT)
            driver.wait()
    print(
        next(
            line
            for line in (root.parent / "output.txt").read_text().splitlines()[::-1]
            if "updates from" in line
        )
    )
    print(f"| process | MB at minute {options.settle:g} | least and most after it |\n|---|---|---|")
    for name, rows in found.items():
        settled = [mb for minute, mb in rows if minute >= options.settle]
        least, most = (100 * (bound / settled[0] - 1) for bound in (min(settled), max(settled)))
        print(f"| {name} | {settled[0]:.0f} | {least:+.1f}%, {most:+.1f}% |")


if __name__ == "__main__":
    main()
