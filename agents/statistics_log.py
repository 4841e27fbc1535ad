"""What has been taken out of the statistics queue since a checkpoint, on disk before any update uses it.

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
from collections.abc import Iterator, Sequence

import numpy as np

_HEADER = struct.Struct("<QII")  # key, bytes of the payload, their CRC-32
_SUFFIX = ".log"


class StatisticsLog:
    """Reports by queue key, appended as they are drained.

    Args:
      root_dir: the run folder.
      step: of the checkpoint that was restored, 0 for none. Records since then are `kept`; those of later checkpoints
        that were found damaged are among them.

    Attributes:
      keys: of all records since the last checkpoint.
    """

    def __init__(self, root_dir: str | os.PathLike, step: int):
        self._folder = pathlib.Path(root_dir) / "statistics"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._since = step
        self.keys: set[int] = set()
        for path in self._files():
            whole = 0
            for key, _, end in _records(path):
                self.keys.add(key)
                whole = end
            # A record that was cut off in writing hides whatever would be appended to it. Its report is still queued.
            os.truncate(path, whole)
        self._file = open(self._path(step), "ab")  # noqa: SIM115  as long as the run

    def kept(self) -> Iterator[list[np.ndarray]]:
        """Arrays of every report since the restored checkpoint, in order; the checkpoint does not hold them."""
        for path in self._files():
            for _, arrays, _ in _records(path):
                yield arrays

    def append(self, key: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes a report down; returns when the operating system has it."""
        payload = io.BytesIO()
        for array in arrays:
            np.save(payload, array, allow_pickle=False)
        data = payload.getvalue()
        self._file.write(_HEADER.pack(key, len(data), zlib.crc32(data)) + data)
        self._file.flush()
        self.keys.add(key)

    def saved(self, step: int, oldest: int) -> None:
        """A checkpoint of `step` holds everything appended so far; the oldest that is kept is that of `oldest`."""
        self._file.close()
        self._file = open(self._path(step), "ab")  # noqa: SIM115
        self.keys.clear()
        for path in self._folder.glob("*" + _SUFFIX):
            if int(path.stem) < oldest:
                path.unlink()

    def close(self) -> None:
        """Nothing is lost if this is never called."""
        self._file.close()

    def _files(self) -> list[pathlib.Path]:
        paths = [path for path in self._folder.glob("*" + _SUFFIX) if int(path.stem) >= self._since]
        return sorted(paths, key=lambda path: int(path.stem))

    def _path(self, step: int) -> pathlib.Path:
        return self._folder / f"{step}{_SUFFIX}"


def _records(path: pathlib.Path) -> Iterator[tuple[int, list[np.ndarray], int]]:
    """Key, arrays and end of each whole record; ends at the first that is not."""
    with open(path, "rb") as file:
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            key, size, checksum = _HEADER.unpack(header)
            data = file.read(size)
            if len(data) != size or zlib.crc32(data) != checksum:
                return
            stream, arrays = io.BytesIO(data), []
            while stream.tell() < size:
                arrays.append(np.load(stream, allow_pickle=False))
            yield key, arrays, file.tell()
