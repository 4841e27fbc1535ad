"""The local replay in a checkpoint: a folder of .npy files and one of JSON, nothing that could run code.

    table.json          settings, counts, the state of the random number generator
    priorities.npy      float64 [N], oldest sequence first
    windows.npy         int64 [N, blocks of a window]: which blocks each sequence is made of
    statistics.npz      the queue

and its M blocks, one behind the other:

    observations.npy    [M rows of a block, ...]; compressed: uint8, bytes
    lengths.npy         int64 [M], bytes of each block; only if they are compressed
    scalars.npy         float32 [M rows of a block, 4]
    starts.npy          bool [M]: does a window begin there?
    core_states.npy     float32 [those, S]

Blocks are written and read one by one, so that neither way takes the memory a second time.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.replay.blocks import Block, blocks_of, columns_of
from agents.replay.replay import TABLE, StatisticsReport
from agents.storage.state import from_bytes, joined, part, to_bytes

_STATISTICS = "statistics.npz"


class Table(NamedTuple):
    """All that a checkpoint has of a replay."""

    settings: dict[str, Any]
    counts: dict[str, int]
    random: Any  # of the bit generator
    windows: list[tuple[Block, ...]]  # oldest first
    priorities: np.ndarray  # float64 [N]
    reports: list[tuple[int, StatisticsReport]]


def settings(folder: pathlib.Path) -> dict[str, Any]:
    """Those that a checkpoint was written with."""
    return json.loads((folder / TABLE).read_text())["settings"]


def write(folder: pathlib.Path, table: Table) -> None:
    """Writes a checkpoint into an empty folder.

    Raises:
      OSError: the disk does not take it.
    """
    # Blocks are their own identity; the table keeps them alive meanwhile.
    numbers: dict[int, int] = {}
    blocks: list[Block] = []
    for block in (block for window in table.windows for block in window):
        if numbers.setdefault(id(block), len(blocks)) == len(blocks):
            blocks.append(block)
    windows = [[numbers[id(block)] for block in window] for window in table.windows]
    np.save(folder / "windows.npy", np.array(windows, np.int64))
    np.save(folder / "priorities.npy", table.priorities)
    for name, parts in columns_of(blocks).items():
        _save(folder / f"{name}.npy", parts)
    reports = joined({str(key): report for key, report in table.reports})
    (folder / _STATISTICS).write_bytes(to_bytes(reports))
    described = {
        "settings": table.settings,
        "counts": table.counts,
        "random": table.random,
        "reports": [key for key, _ in table.reports],
    }
    (folder / TABLE).write_text(json.dumps(described))


def read(folder: pathlib.Path) -> Table:
    """Reads what `write` has written."""
    described = json.loads((folder / TABLE).read_text())
    columns = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    blocks = blocks_of(columns)
    reports = from_bytes((folder / _STATISTICS).read_bytes())
    return Table(
        described["settings"],
        described["counts"],
        described["random"],
        [tuple(blocks[index] for index in window) for window in columns["windows"].tolist()],
        np.array(columns["priorities"]),
        [(key, part(reports, str(key))) for key in described["reports"]],
    )


def _save(path: pathlib.Path, parts: Sequence[np.ndarray]) -> None:
    """Writes what `np.save` would of them one behind the other; nothing if there is none."""
    if not parts:
        return
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    described = {
        "descr": np.lib.format.dtype_to_descr(parts[0].dtype),
        "fortran_order": False,
        "shape": shape,
    }
    with open(path, "wb", buffering=1 << 20) as file:
        np.lib.format.write_array_header_1_0(file, described)
        for array in parts:
            file.write(np.ascontiguousarray(array).data)
