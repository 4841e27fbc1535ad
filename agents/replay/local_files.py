"""The local replay in a checkpoint: a folder of .npy files and one of JSON, nothing that could run code.

    table.json          settings, counts, the state of the random number generator
    priorities.npy      float64 [N], oldest sequence first
    windows.npy         int64 [N, blocks of a window]: which blocks each sequence is made of
    observations.npy    [M, rows of a block, ...]; compressed: uint8, all blocks one behind the other
    lengths.npy         int64 [M], bytes of each of them; only if they are compressed
    scalars.npy         float32 [M, rows, 4]
    starts.npy          bool [M]: has a window begun there?
    core_states.npy     float32 [those, S]
    statistics.npz      the queue

Blocks are written and read one by one, so that neither way takes the memory a second time.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.replay.replay import StatisticsReport
from agents.storage.state import from_bytes, joined, part, to_bytes

_TABLE, _STATISTICS = "table.json", "statistics.npz"


class StoredBlock(NamedTuple):
    """Rows that are kept together."""

    observation: Any  # [block, ...], or bytes
    scalars: np.ndarray  # float32 [block, 4]
    core_state: np.ndarray | None  # float32 [S], entering its first row; None unless a window starts here


class Table(NamedTuple):
    """All that a checkpoint has of a replay."""

    settings: dict[str, Any]
    counts: dict[str, int]
    random: Any  # of the bit generator
    windows: list[tuple[StoredBlock, ...]]  # oldest first
    priorities: np.ndarray  # float64 [N]
    reports: list[tuple[int, StatisticsReport]]


def wrote(folder: pathlib.Path) -> bool:
    """Says whether a checkpoint is of the local replay."""
    return (folder / _TABLE).exists()


def settings(folder: pathlib.Path) -> dict[str, Any]:
    """Those that a checkpoint was written with."""
    return json.loads((folder / _TABLE).read_text())["settings"]


def write(folder: pathlib.Path, table: Table, observation_spec: tf.TensorSpec, compression: int) -> None:
    """Writes a checkpoint into an empty folder.

    Raises:
      OSError: the disk does not take it.
    """
    # Blocks are their own identity; the table keeps them alive meanwhile.
    numbers: dict[int, int] = {}
    blocks: list[StoredBlock] = []
    for block in (block for window in table.windows for block in window):
        if numbers.setdefault(id(block), len(blocks)) == len(blocks):
            blocks.append(block)
    starts = np.array([block.core_state is not None for block in blocks], bool)
    windows = [[numbers[id(block)] for block in window] for window in table.windows]
    np.save(folder / "windows.npy", np.array(windows, np.int64))
    np.save(folder / "priorities.npy", table.priorities)
    np.save(folder / "starts.npy", starts)
    core_states = (block.core_state for block in blocks if block.core_state is not None)
    _save(folder / "core_states.npy", core_states, int(starts.sum()))
    _save(folder / "scalars.npy", (block.scalars for block in blocks), len(blocks))
    if compression:
        lengths = np.array([len(block.observation) for block in blocks], np.int64)
        np.save(folder / "lengths.npy", lengths)
        with open(folder / "observations.npy", "wb", buffering=1 << 20) as file:
            _write_header(file, np.dtype(np.uint8), (int(lengths.sum()),))
            file.writelines(block.observation for block in blocks)
    else:
        _save(folder / "observations.npy", (block.observation for block in blocks), len(blocks))
    reports = joined({str(key): report for key, report in table.reports})
    (folder / _STATISTICS).write_bytes(to_bytes(reports))
    described = {
        "settings": table.settings,
        "counts": table.counts,
        "random": table.random,
        "reports": [key for key, _ in table.reports],
    }
    (folder / _TABLE).write_text(json.dumps(described))


def read(folder: pathlib.Path) -> Table:
    """Reads what `write` has written."""
    described = json.loads((folder / _TABLE).read_text())
    windows = np.load(folder / "windows.npy")
    blocks: list[StoredBlock] = []
    if windows.size:
        starts = np.load(folder / "starts.npy")
        scalars, core_states, observations = (
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("scalars", "core_states", "observations")
        )
        compressed = (folder / "lengths.npy").exists()
        ends = np.cumsum(np.load(folder / "lengths.npy")) if compressed else np.zeros(0, np.int64)
        begun = 0
        for index, start in enumerate(starts):
            if compressed:
                observation = observations[0 if index == 0 else ends[index - 1] : ends[index]].tobytes()
            else:
                observation = np.array(observations[index])
            core_state = np.array(core_states[begun]) if start else None
            blocks.append(StoredBlock(observation, np.array(scalars[index]), core_state))
            begun += int(start)
    reports = from_bytes((folder / _STATISTICS).read_bytes())
    return Table(
        described["settings"],
        described["counts"],
        described["random"],
        [tuple(blocks[index] for index in window) for window in windows.tolist()],
        np.load(folder / "priorities.npy"),
        [(key, part(reports, str(key))) for key in described["reports"]],
    )


def _save(path: pathlib.Path, arrays: Iterable[np.ndarray], count: int) -> None:
    """Writes what `np.save` would of them stacked; nothing if there is none."""
    with open(path, "wb", buffering=1 << 20) as file:
        for index, array in enumerate(arrays):
            if index == 0:
                _write_header(file, array.dtype, (count, *array.shape))
            file.write(np.ascontiguousarray(array).data)


def _write_header(file: Any, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
