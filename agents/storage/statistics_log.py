"""Log of what has left the statistics queue since a checkpoint, on disk before any update uses it.

    statistics/<step>.log    reports drained between the checkpoint of that step (0: the beginning) and the next one

A process that is killed loses what it has learned since its checkpoint, but no statistics: sigma is all-time. Each
record carries the key of the queue's item, so that a report counts once, however often the queue yields it: its
deletion may not have happened, or been undone by a replay server that went back to its own checkpoint.

Records reach the operating system, not the disk: they survive the death of the process, not that of the machine.
"""

from __future__ import annotations

import io
import os
import pathlib
import struct
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from agents import RunFolderError

_HEADER = struct.Struct("<QII")  # key, bytes of the payload, their CRC-32
_SUFFIX = ".log"


class StatisticsLog:
    """Reports by queue key, appended as they are drained.

    Args:
      root_dir: the run folder.
      position: `position` when the restored checkpoint was written; (0, 0) without one.

    Attributes:
      keys: of all records since that position.
    """

    def __init__(self, root_dir: str | os.PathLike, position: tuple[int, int] = (0, 0)):
        self._folder = pathlib.Path(root_dir) / "statistics"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._since = tuple(position)
        self.keys: set[int] = set()
        for path in self._files():
            # A record that was cut off in writing would hide what is appended to it. Its report is still queued.
            os.truncate(path, max((end for *_, end in _records(path)), default=0))
        self.keys.update(key for key, _ in self._kept())
        files = self._files()
        self._open(_step(files[-1]) if files else self._since[0])

    @property
    def position(self) -> tuple[int, int]:
        """The log's end now, for the checkpoint that holds everything appended so far."""
        return self._step, self._file.tell()

    def kept(self) -> Iterator[dict[str, np.ndarray]]:
        """Every report since the position that was given, in order."""
        for _, report in self._kept():
            yield report

    def append(self, key: int, report: Mapping[str, np.ndarray]) -> None:
        """Writes a report down; returns when the operating system has it.

        Raises:
          RunFolderError: it does not take it (disk full, for one). The report must not be used then.
        """
        payload = io.BytesIO()
        np.savez(payload, **report)
        data = payload.getvalue()
        try:
            self._file.write(_HEADER.pack(key, len(data), zlib.crc32(data)) + data)
            self._file.flush()
        except OSError as error:
            raise RunFolderError(
                f"Cannot write to {self._folder}: {error}. Nothing is lost. "
                "Free space on that disk or make the folder writable, then repeat the command."
            ) from error
        self.keys.add(key)

    def saved(self, step: int, oldest: int) -> None:
        """A checkpoint of `step` holds everything appended so far; the oldest that is kept is that of `oldest`."""
        self.keys.clear()
        if step > self._step:  # not if a checkpoint is repeated: its position is in the file at hand
            self._file.close()
            self._open(step)
        for path in self._files():
            if _step(path) < oldest:
                path.unlink()

    def close(self) -> None:
        """Nothing is lost if this is never called."""
        self._file.close()

    def _open(self, step: int) -> None:
        self._step = step
        self._file = open(self._folder / f"{step}{_SUFFIX}", "ab")  # noqa: SIM115  as long as the run

    def _files(self) -> list[pathlib.Path]:
        paths = [path for path in self._folder.glob("*" + _SUFFIX) if _step(path) >= self._since[0]]
        return sorted(paths, key=_step)

    def _kept(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        for path in self._files():
            for key, report, end in _records(path):
                if (_step(path), end) > self._since:
                    yield key, report


def forget_after(root_dir: str | os.PathLike, position: tuple[int, int]) -> None:
    """Removes what came after a checkpoint from the log of a run that goes on from exactly there.

    Such a run collects the same steps again, which must not count twice.
    """
    step, end = position
    for path in (pathlib.Path(root_dir) / "statistics").glob("*" + _SUFFIX):
        if _step(path) > step:
            path.unlink()
        elif _step(path) == step:
            os.truncate(path, end)


def _step(path: pathlib.Path) -> int:
    return int(path.stem)


def _records(path: pathlib.Path) -> Iterator[tuple[int, dict[str, np.ndarray], int]]:
    """Key, report and end of each whole record; ends at the first that is not."""
    with open(path, "rb") as file:
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            key, size, checksum = _HEADER.unpack(header)
            data = file.read(size)
            if len(data) != size or zlib.crc32(data) != checksum:
                return
            with np.load(io.BytesIO(data), allow_pickle=False) as report:
                yield key, dict(report), file.tell()
