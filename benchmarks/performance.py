"""Runs the speed benchmarks one after the other and writes what they found to docs/performance.md.

    make bench                                              # all of them, some 20 minutes on an idle core
    .venv/bin/python -m benchmarks.performance replay       # only this one; the others' rows stay

Rows are kept in docs/performance.json, each with the machine and day it was measured; the page's table is made of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.side_by_side import ROWS_FILE, Row

ROOT = Path(__file__).parents[1]
ROWS, PAGE = ROOT / "docs/performance.json", ROOT / "docs/performance.md"
BENCHMARKS = ("learner_step", "other_frameworks", "environment_step", "replay", "start_up")
TABLE, END = "<!-- table: written by benchmarks/performance.py -->", "<!-- end of table -->"


def processor() -> str:
    """This machine's."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if "model name" in line), platform.machine())


def machine() -> str:
    """Processor, number of cores, memory, and versions that decide."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GB; Python {platform.python_version()}, "
        f"TensorFlow {version('tensorflow')}"
    )


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replaces what a page has between two marks."""
    before, rest = page.read_text().split(begin)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


def run(name: str) -> list[Row]:
    """The rows of a benchmark, which runs in a process of its own."""
    with tempfile.NamedTemporaryFile("r") as file:
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        subprocess.run(command, cwd=ROOT, env=os.environ | {ROWS_FILE: file.name}, check=True)
        return [Row(**json.loads(line)) for line in file]


def table(kept: dict[str, dict]) -> str:
    """Markdown; `kept`: name of a benchmark -> its machine, day and rows."""
    lines = ["| what | against | ratio | bound | ours | rival |", "|---" * 6 + "|"]
    for name in BENCHMARKS:
        for fields in kept.get(name, {}).get("rows", ()):
            row = Row(**fields)
            ratio = f"{row.ratio:.3g} [{row.least:.3g}, {row.most:.3g}]"
            figures = f"{row.ours:.4g} | {row.rival:.4g}"
            lines.append(f"| {row.what} | {row.against} | {ratio} | {row.bound} | {figures} |")
    by_machine: dict[str, list[str]] = {}
    for name in BENCHMARKS:
        if name in kept:
            by_machine.setdefault(f"{kept[name]['machine']}, {kept[name]['day']}", []).append(f"`{name}`")
    measured = " ".join(f"Measured on {where}: {', '.join(names)}." for where, names in by_machine.items())
    return "\n".join([*lines, "", textwrap.fill(measured, 120)])


def keep(name: str, rows: list[Row]) -> None:
    """Puts a benchmark's rows in place of its earlier ones, in the file and on the page."""
    kept = json.loads(ROWS.read_text())
    day = time.strftime("%Y-%m-%d")
    kept[name] = {"machine": machine(), "day": day, "rows": [row.__dict__ for row in rows]}
    ROWS.write_text(json.dumps(kept, indent=1) + "\n")
    put_between(PAGE, TABLE, END, table(kept))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all")
    for name in parser.parse_args().names or BENCHMARKS:
        if name not in BENCHMARKS:
            parser.error(f"unknown: {name}; choose from {', '.join(BENCHMARKS)}")
        print(name, flush=True)
        if rows := run(name):
            keep(name, rows)  # at once: a run that is stopped keeps what it has


if __name__ == "__main__":
    main()
