"""Parts that studies share: colours, the command line, and where results go."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.monitoring.figure import figure_class, new_figure

__all__ = ["COLOURS", "arguments", "new_figure", "save"]

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's.
COLOURS = {
    "unscaled": "tab:red",
    "scaled": "tab:green",
    "false friend": "tab:cyan",
    "reference": "tab:gray",
}


def arguments(
    description: str | None, command_line: Sequence[str] | None = None, **options: float | str
) -> argparse.Namespace:
    """Parses the command line: `output_dir` (a Path, "figures" by default) and the study's own options.

    Args:
      description: the study's docstring.
      command_line: the words after the program's name; None reads those of this process.
      **options: name and default of each further `--name`, which takes the default's type.

    Raises:
      SystemExit: matplotlib is missing, or the command line says something unknown.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", type=Path, default=Path("figures"), help="default: %(default)s")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help="default: %(default)s")
    parsed = parser.parse_args(command_line)
    try:
        figure_class()
    except ImportError as error:  # known before minutes of computing, not after
        parser.error(str(error))
    return parsed


def save(
    figure: Figure,
    name: str,
    rows: Iterable[Sequence[Any]],
    header: Sequence[str],
    conclusion: str,
    output_dir: str | Path,
) -> None:
    """Writes NAME.png, NAME.svg and NAME.csv, and prints the conclusion.

    Args:
      figure: from `new_figure`.
      name: the study's.
      rows: the CSV's, as long as `header` each; floats are written with six significant digits.
      header: the CSV's column names, with units where there are any.
      conclusion: one line: what the numbers say.
      output_dir: made if need be.
    """
    table = [[f"{x:.6g}" if isinstance(x, float | np.floating) else x for x in row] for row in rows]
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=150)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *table])
    print(conclusion)
