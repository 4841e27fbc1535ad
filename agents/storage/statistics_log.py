"""Log of what has left the statistics queue since a checkpoint, on disk before any update uses it.

    statistics/<step>-<number>.tfrecord    one record per report; every start and every checkpoint begins a file

A learner that is killed beside collectors that live on loses what it has learned since its checkpoint, but no
statistics, as sigma is all-time. A run in one process goes back to its checkpoint, statistics included. Each record
carries the key of the queue's item, so that a report counts once, however often the queue yields it: its deletion may
not have happened, or been undone by a replay that went back to its own checkpoint.

A checkpoint holds whole files: those whose number is below that of its position. No start appends to the file of an
earlier one, so a record that a kill has cut off stays the last one there, and its report is still queued. `<step>` is
that of the checkpoint before the file, 0 without one; it says when the file is no longer needed.

Records reach the operating system, not the disk: they survive the death of the process, not that of the machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from agents.errors import writing


class StatisticsLog:
    """Reports by queue key, appended as they are drained.

    Args:
      root_dir: the run folder.
      position: what `begin_file` returned for the restored checkpoint; (0, 0) without one.

    Attributes:
      keys: of all records since that position.

    Raises:
      RunFolderError: the disk takes no new file. So do `append` and `begin_file`.
    """

    def __init__(self, root_dir: str | os.PathLike, position: tuple[int, int] = (0, 0)):
        self._folder = pathlib.Path(root_dir) / "statistics"
        with writing(self._folder, tf.errors.OpError):
            self._folder.mkdir(parents=True, exist_ok=True)
        step, self._since = position
        self.keys = {key for key, _ in self._records()}
        self._open(step, max([self._since, *(number + 1 for _, number, _ in _files(self._folder))]))

    def reports(self) -> list[dict[str, np.ndarray]]:
        """Every report since the position that was given, in order."""
        return [report for _, report in self._records()]

    def append(self, key: int, report: Mapping[str, np.ndarray]) -> None:
        """Writes a report down; returns when the operating system has it.

        Raises:
          RunFolderError: it does not take it (disk full, for one). The report must not be used then.
        """
        payload = io.BytesIO()
        np.savez(payload, key=np.uint64(key), **report)
        with writing(self._folder, tf.errors.OpError):
            self._writer.write(payload.getvalue())
            self._writer.flush()
        self.keys.add(key)

    def begin_file(self, step: int) -> tuple[int, int]:
        """Returns the position for a checkpoint of `step` that holds everything appended so far."""
        with writing(self._folder, tf.errors.OpError):
            self._writer.close()
        return self._open(step, self._number + 1)

    def forget_saved(self, oldest: int) -> None:
        """Forgets what the checkpoint of the latest position holds, and files from before that of step `oldest`."""
        self.keys.clear()
        for step, _, path in _files(self._folder):
            if step < oldest:
                path.unlink()

    def _open(self, step: int, number: int) -> tuple[int, int]:
        self._number = number
        with writing(self._folder, tf.errors.OpError):
            path = self._folder / f"{step}-{number}.tfrecord"
            self._writer: tf.io.TFRecordWriter = tf.io.TFRecordWriter(str(path))
        return step, number

    def _records(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        for *_, path in _files(self._folder, self._since):
            yield from _read(path)


def forget_after(root_dir: str | os.PathLike, position: tuple[int, int]) -> None:
    """Removes what came after a checkpoint from the log.

    For a run in one process: with its networks and its replay, its statistics are those of the checkpoint.
    """
    _, since = position
    for *_, path in _files(pathlib.Path(root_dir) / "statistics", since):
        path.unlink()


def _files(folder: pathlib.Path, since: int = 0) -> list[tuple[int, int, pathlib.Path]]:
    """Step, number and path of the logs in a folder, in order from a number on; other files are not ours."""
    named = ((re.fullmatch(r"(\d+)-(\d+)\.tfrecord", path.name), path) for path in folder.glob("*.tfrecord"))
    ours = [(int(name[1]), int(name[2]), path) for name, path in named if name]
    return sorted((file for file in ours if file[1] >= since), key=lambda file: file[1])


def _read(path: pathlib.Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Key and report of each record, up to one that a kill has cut off."""
    with contextlib.suppress(tf.errors.DataLossError):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            with np.load(io.BytesIO(record), allow_pickle=False) as arrays:
                report = dict(arrays)
            yield int(report.pop("key")), report
