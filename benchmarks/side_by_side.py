"""Two ways of doing the same work, measured by turns in one process or one run, and the table that they end up in.

A ratio of two times taken by turns survives what a single time does not: other programs, clock speeds, another machine.
CPU time is that of the whole process with all its threads; `one_core()` keeps it free of threads that wait in a loop.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

# `python -m benchmarks.performance` reads what it is named here; without it rows are printed and no more.
ROWS_FILE = "RBS_TF_BENCHMARK_ROWS"
ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      what, against: ours and the rival, in words.
      unit: of `ours` and `rival`, such as "cpu-ms per update".
      ours, rival: medians over rounds.
      ratio: median over rounds of ours / rival; `least` and `most` are the rounds' extremes, which hold the
        median of all rounds to come with probability 1 - 2^(1 - rounds): 98% of seven.
      wall: the same ratio in wall time, None where it means nothing.
      reach: the bound to keep, "at most 0.85" or "at least 5"; empty for none.
      note: what a reader must know beside it.
    """

    what: str
    against: str
    unit: str
    ours: float
    rival: float
    ratio: float
    least: float
    most: float
    wall: float | None = None
    reach: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        """Says whether the bound is kept: "yes" or "no" where all rounds agree, else which the median says.

        Raises:
          ValueError: a bound that does not start with "at most" or "at least".
        """
        side, _, bound = self.reach.rpartition(" ")
        if side not in ("at most", "at least"):
            raise ValueError(f'reach must be "at most X" or "at least X", got {self.reach!r}')
        sign = 1 if side == "at most" else -1
        by_ratio, *by_extremes = (sign * (x - float(bound)) <= 0 for x in (self.ratio, self.least, self.most))
        word = "yes" if by_ratio else "no"
        return word if {by_ratio, *by_extremes} == {by_ratio} else f"{word}, by the median"


def one_core() -> None:
    """Binds this process to one core and TensorFlow, if it comes later, to one thread per pool.

    Call it before TensorFlow, JAX or PyTorch starts; libraries that read the number of cores then read one.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for pool in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[pool] = "1"
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as train.py does; for rivals, too


def times(
    *ways: Callable[[], object], rounds: int = ROUNDS, calls: int = 1, warm_up: int = 1
) -> list[list[tuple[float, float]]]:
    """CPU and wall seconds of one call of each way, by turns.

    Args:
      ways: functions without arguments; each waits for its result.
      rounds: how often each is measured; every other round runs them in the opposite order.
      calls: in one measurement; the seconds are of one of them.
      warm_up: unmeasured calls of each before.

    Returns:
      for each way a (cpu, wall) per round.
    """
    for way in ways:
        for _ in range(warm_up):
            way()
    found: list[list[tuple[float, float]]] = [[] for _ in ways]
    for turn in range(rounds):
        order = range(len(ways)) if turn % 2 == 0 else reversed(range(len(ways)))
        for index in order:
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(calls):
                ways[index]()
            found[index].append(((time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls))
    return found


def row(
    what: str,
    against: str,
    ours: list[tuple[float, float]],
    rival: list[tuple[float, float]],
    *,
    unit: str = "cpu-ms",
    reach: str = "",
    note: str = "",
    work: tuple[float, float] | None = None,
) -> Row:
    """The line of two measurements.

    Args:
      what, against, unit, reach, note: see `Row`.
      ours, rival: a (cpu, wall) in seconds per round, of equally many rounds.
      work: what one call of each gets done. None compares costs, in milliseconds; with it rates are compared,
        work per CPU second, and more is better.
    """
    pairs = list(zip(ours, rival, strict=True))
    if work is None:
        figures = [[1e3 * cpu for cpu, _ in way] for way in (ours, rival)]
        ratios, walls = ([a[kind] / b[kind] for a, b in pairs] for kind in (0, 1))
    else:
        figures = [[done / cpu for cpu, _ in way] for done, way in zip(work, (ours, rival), strict=True)]
        gain = work[0] / work[1]
        ratios, walls = ([gain * b[kind] / a[kind] for a, b in pairs] for kind in (0, 1))
    return Row(
        what,
        against,
        unit,
        *map(statistics.median, figures),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(walls),
        reach,
        note,
    )


def compare(
    what: str,
    against: str,
    ours: Callable[[], object],
    rival: Callable[[], object],
    *,
    calls: int = 1,
    **options: str,
) -> None:
    """Measures two ways by turns and publishes their row; arguments as those of `times` and `row`."""
    publish(row(what, against, *times(ours, rival, calls=calls), **options))


def publish(*rows: Row) -> None:
    """Prints lines for a reader and, where `RBS_TF_BENCHMARK_ROWS` names a file, appends them to it as JSON."""
    for line in rows:
        bound = f" ({line.reach}: {line.verdict})" if line.reach else ""
        print(
            f"{line.what} against {line.against}: {line.ratio:.3g} [{line.least:.3g}, {line.most:.3g}]{bound}; "
            f"{line.ours:.4g} against {line.rival:.4g} {line.unit}. {line.note}".rstrip(),
            flush=True,
        )
    if path := os.environ.get(ROWS_FILE):
        with Path(path).open("a") as file:
            file.writelines(json.dumps(asdict(line)) + "\n" for line in rows)
