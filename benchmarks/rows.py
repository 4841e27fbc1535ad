"""What the studies of docs/examples share: a table of runs that goes on, the examples as modules, and intervals."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.performance import ROOT

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """The table's rows; none if there is no table yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def missing(path: Path, runs: Iterable[Row]) -> Iterator[Row]:
    """Those of the runs, told by what they set, that the table has no row of."""
    there = read(path)
    return (run for run in runs if not any(run.items() <= row.items() for row in there))


def add(path: Path, row: Row) -> None:
    """Appends a row to the table, which begins with it if there is none, and prints it."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)


def example(name: str, changes: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A new copy of a module of docs/examples, with changes: what stands there once -> what takes its place."""
    path = ROOT / f"docs/examples/{name}.py"
    source = path.read_text()
    for old, new in changes.items():
        if source.count(old) != 1:
            raise ValueError(f"docs/examples/{name}.py must contain once: {old}")
        source = source.replace(old, new)
    module = ModuleType(name)
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def interval(ours: np.ndarray, theirs: np.ndarray | None = None) -> np.ndarray:
    """A mean and Student's 95% interval, float64 [3]; of a difference of two means Welch's."""
    of = ours, np.zeros(1) if theirs is None else theirs
    difference = of[0].mean() - of[1].mean()
    if not any(np.ptp(scores) for scores in of):
        return np.full(3, difference)
    test = stats.ttest_1samp(ours, 0.0) if theirs is None else stats.ttest_ind(ours, theirs, equal_var=False)
    return np.array([difference, *test.confidence_interval()])


def shown(found: np.ndarray, digits: int = 0) -> str:
    return "{0:.{3}f} [{1:.{3}f}, {2:.{3}f}]".format(*(found + 0.0), digits)
