"""Log of what has left the statistics queue since a checkpoint, on disk before any update uses it.

    statistics/<step>.log    reports drained between the checkpoint of that step (0: the beginning) and the next one

A process that is killed loses what it has learned since its checkpoint, but no statistics: sigma is all-time. Each
record carries the key of the queue's item, so that a report counts once, however often the queue yields it: its
deletion may not have happened, or been undone by a replay server that went back to its own checkpoint.

Records reach the operating system, not the disk: they survive the death of the process, not that of the machine.
"""

from __future__ import annotations

import io
import logging
import os
import pathlib
import struct
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from agents import RunFolderError

_MARK = b"\xf5rec"  # by which records are found again behind a damaged one
_HEADER = struct.Struct(
    "<4sQIII"
)  # mark, key, bytes of the payload, their CRC-32, CRC-32 of what is before this
_SUFFIX = ".log"

log = logging.getLogger(__name__)


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
            # A record that was cut off in writing, whose report is still queued.
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
            self._file.write(_packed(key, data))
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
        return [path for path in _logs(self._folder) if _step(path) >= self._since[0]]

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
    for path in _logs(pathlib.Path(root_dir) / "statistics"):
        if _step(path) > step:
            path.unlink()
        elif _step(path) == step:
            os.truncate(path, end)


def _logs(folder: pathlib.Path) -> list[pathlib.Path]:
    """The logs in a folder, oldest first; other files are not ours."""
    return sorted((path for path in folder.glob("*" + _SUFFIX) if path.stem.isdecimal()), key=_step)


def _step(path: pathlib.Path) -> int:
    return int(path.stem)


def _packed(key: int, data: bytes) -> bytes:
    header = _HEADER.pack(_MARK, key, len(data), zlib.crc32(data), 0)[:-4]
    return header + struct.pack("<I", zlib.crc32(header)) + data


def _records(path: pathlib.Path) -> Iterator[tuple[int, dict[str, np.ndarray], int]]:
    """Key, report and end of each whole record; one that is damaged is left out with a word, wherever it is."""
    content, place, damaged = path.read_bytes(), 0, False
    while (start := content.find(_MARK, place)) >= 0 and start + _HEADER.size <= len(content):
        damaged |= start > place
        _, key, size, checksum, of_header = _HEADER.unpack_from(content, start)
        end = start + _HEADER.size + size
        data = content[start + _HEADER.size : end]
        if zlib.crc32(content[start : start + _HEADER.size - 4]) != of_header:
            place, damaged = start + 1, True
        elif zlib.crc32(data) != checksum:  # or cut off
            place, damaged = min(end, len(content)), end <= len(content)
        else:
            with np.load(io.BytesIO(data), allow_pickle=False) as report:
                yield key, dict(report), end
            place = end
    if damaged:
        log.warning("%s is damaged: some of its statistics are lost.", path)
