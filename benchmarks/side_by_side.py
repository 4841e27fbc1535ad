"""Two ways of doing the same work, measured by turns in one run, and the rows of the table that they end up in.

A ratio of two times taken by turns survives what a single time does not: other programs, clock speeds, another machine.
CPU time is that of the whole process with all its threads; `one_core()` keeps it free of threads that wait in a loop.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# `python -m benchmarks.performance` reads what it is named here; without it rows are printed and no more.
ROWS_FILE = "RBS_TF_BENCHMARK_ROWS"
ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """One line of the table: costs of ours and of a rival.

    Attributes:
      what, against: ours and the rival, in words.
      unit: of `ours` and `rival`, such as "cpu-ms per update".
      ours, rival: medians over rounds.
      ratio: median over rounds of ours / rival; `least` and `most` are the rounds' extremes, which hold the
        median of all rounds to come with probability 1 - 2^(1 - rounds): 98% of seven.
      at_most: the bound to keep; None for none.
    """

    what: str
    against: str
    unit: str
    ours: float
    rival: float
    ratio: float
    least: float
    most: float
    at_most: float | None = None

    @property
    def bound(self) -> str:
        """The bound, and "no" if it is not kept; "by the median" where not all rounds agree."""
        if self.at_most is None:
            return ""
        by_median, *by_extremes = (x <= self.at_most for x in (self.ratio, self.least, self.most))
        agreed = all(kept == by_median for kept in by_extremes)
        return f"≤ {self.at_most:g}{'' if by_median else ': **no**'}{'' if agreed else ', by the median'}"


def one_core() -> None:
    """Binds this process to one core and TensorFlow, if it comes later, to one thread per pool.

    Call it before TensorFlow, JAX or PyTorch starts; libraries that read the number of cores then read one.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for pool in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[pool] = "1"
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as train.py does; for rivals, too


def times(
    *ways: Callable[[], object],
    rounds: int = ROUNDS,
    calls: int = 1,
    warm_up: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> list[list[float]]:
    """CPU seconds of one call of each way, by turns.

    Args:
      ways: functions without arguments; each waits for its result.
      rounds: how often each is measured; every other round runs them in the opposite order.
      calls: in one measurement; the seconds are of one of them.
      warm_up: unmeasured calls of each before.
      clock: seconds that have been spent so far; by default by this process.

    Returns:
      for each way the seconds of each round.
    """
    for way in ways:
        for _ in range(warm_up):
            way()
    found: list[list[float]] = [[] for _ in ways]
    for turn in range(rounds):
        for index in list(range(len(ways)))[:: 1 if turn % 2 == 0 else -1]:
            start = clock()
            for _ in range(calls):
                ways[index]()
            found[index].append((clock() - start) / calls)
    return found


def row(
    what: str,
    against: str,
    ours: Sequence[float],
    rival: Sequence[float],
    *,
    unit: str,
    per_call: float = 1.0,
    **options: Any,
) -> Row:
    """The line of two measurements in seconds, one per round, of equally many rounds.

    Args:
      what, against, options: see `Row`.
      unit: of milliseconds per what is done.
      per_call: how much of that one call does.
    """
    figures = [1e3 * statistics.median(way) / per_call for way in (ours, rival)]
    ratios = [a / b for a, b in zip(ours, rival, strict=True)]
    spread = statistics.median(ratios), min(ratios), max(ratios)
    return Row(what, against, unit, *figures, *spread, **options)


def publish(line: Row) -> None:
    """Prints a line for a reader and, where `RBS_TF_BENCHMARK_ROWS` names a file, appends it to that as JSON."""
    print(
        f"{line.what} against {line.against}: {line.ratio:.3g} [{line.least:.3g}, {line.most:.3g}] {line.bound}; "
        f"{line.ours:.4g} against {line.rival:.4g} {line.unit}",
        flush=True,
    )
    if path := os.environ.get(ROWS_FILE):
        with Path(path).open("a") as file:
            file.write(json.dumps(asdict(line)) + "\n")
