"""Tables of a run's episodes, of training and of evaluations: CSV files that grow, and that a resumed run cuts back."""

from __future__ import annotations

import csv
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agents.storage.run_folder import write

NAME = "episodes.csv"  # in a run's `train` and `eval` folders


class Episodes:
    """A table whose first column only grows.

    Args:
      path: of the file, which is made, with its folder.
      columns: their names.
      most: rows that say more in the first column are removed: what an earlier start did after its checkpoint.
    """

    def __init__(self, path: pathlib.Path, columns: Sequence[str], most: int):
        self._path, self._header = path, ",".join(columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.keep(most)

    def keep(self, most: int) -> None:
        """Removes rows that say more than this in the first column, and what is damaged."""
        text = self._path.read_text(errors="replace") if self._path.exists() else ""
        numbered = re.findall(r"^(([0-9]{1,18}),.*)$", text, re.MULTILINE)
        kept = [line for line, number in numbered if int(number) <= most]
        write(self._path, "\n".join([self._header, *kept, ""]))

    def append(self, rows: Iterable[Sequence[Any]]) -> None:
        """Adds rows of integers, strings without commas, and floats, which are written to their last bit."""
        with self._path.open("a") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def last_return(folder: pathlib.Path) -> float:
    """The mean return of the last evaluation, from the run's `eval` folder; NaN without one."""
    try:
        with (folder / NAME).open() as file:
            returns = [(line["update"], line["head"], float(line["return"])) for line in csv.DictReader(file)]
        *last, _ = returns[-1]
        return float(np.mean([each for *of, each in returns if of == last]))
    except (OSError, LookupError, TypeError, ValueError):
        return float("nan")
