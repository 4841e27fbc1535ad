"""Checkpoints of a whole run: variables, replay, and what lives in Python.

    checkpoints/<step>/variables.*      written by `tf.train.Checkpoint`
    checkpoints/<step>/replay/          written by the replay
    checkpoints/<step>/extra.json       `Counters`; written last, so a checkpoint that has it is whole

A checkpoint is written as `<step>.new`, forced to the disk, and renamed once an older one of the same step is removed.
A kill between the two leaves `<step>.new`, which is whole and is found like any other.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from agents.errors import RunFolderError, is_pattern, writing
from agents.storage.run_folder import EXTRA, NEW, OF_ANOTHER, REPLAY, checkpoints, write

_VARIABLES = "variables"
_KEPT = 2  # checkpoints
_WRITING = tf.errors.OpError, RuntimeError  # of `tf.train.Checkpoint`, beside an OSError


class Counters(NamedTuple):
    """What a checkpoint says of a run, beside its variables and replay."""

    environment_steps: int = 0  # of all collectors
    episodes: int = 0  # that have ended
    statistics_log: tuple[int, int] = (0, 0)  # see `StatisticsLog.begin_file`


class Checkpointer:
    """Saves the run in `root_dir`, and restores its newest checkpoint.

    On disk there are two checkpoints, one more while saving, and the replay counts in each of them.

    Args:
      root_dir: the run folder, which no other process may be using (see `run_folder.opened`).
      trackables: what `tf.train.Checkpoint` saves, by name.
      write_replay: makes the replay write a checkpoint into a new folder: `Replay.checkpoint`. None: the run has no
        replay to save.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        trackables: Mapping[str, Any],
        write_replay: Callable[[pathlib.Path], None] | None = None,
    ):
        self._root = pathlib.Path(root_dir).absolute()
        self._folder = self._root / "checkpoints"
        self._checkpoint = tf.train.Checkpoint(**trackables)
        self._write_replay = write_replay
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tidy()

    @property
    def oldest(self) -> int:
        """Step of the oldest checkpoint that is kept, 0 without any."""
        return min((int(folder.stem) for folder in checkpoints(self._root)), default=0)

    def save(self, step: int, counters: Counters) -> None:
        """Writes a checkpoint and removes the oldest; one of the same step is replaced.

        Raises:
          RunFolderError: it could not be written (disk full, for one); the earlier ones are untouched.
        """
        new = self._folder / f"{step}{NEW}"
        with writing(self._folder, *_WRITING):
            try:
                new.mkdir(exist_ok=True)
                self._checkpoint.write(str(new / _VARIABLES))
                if self._write_replay is not None:
                    self._write_replay(new / REPLAY)
                for path in (*new.rglob("*"), new):
                    _sync(path)
                write(new / EXTRA, json.dumps(counters._asdict()))
                _sync(new)
            finally:
                self._tidy()

    def restore(self) -> tuple[int, Counters] | None:
        """Restores the variables from the newest checkpoint; returns its step and counters, None without any.

        Variables that do not exist yet (an optimizer's slots) are restored when they are created. A replay begins with
        `run_folder.newest_replay`.

        Raises:
          RunFolderError: the checkpoint cannot be read, or lacks variables that the program has.
        """
        for folder in checkpoints(self._root)[:1]:
            _read_variables(self._checkpoint, folder)
        return find_newest(self._root)

    def _tidy(self) -> None:
        """Gives whole checkpoints their names; removes the oldest, and what is not whole."""
        for new in [folder for folder in checkpoints(self._root) if folder.suffix]:
            final = new.with_suffix("")
            _remove(final)
            new.rename(final)
        _sync(self._folder)
        kept = checkpoints(self._root)[:_KEPT]
        for folder in self._folder.iterdir():
            if re.fullmatch(rf"\d+({NEW})?", folder.name) and folder not in kept:
                _remove(folder)


def find_newest(root_dir: str | os.PathLike) -> tuple[int, Counters] | None:
    """Step and counters of a run's newest checkpoint; None without any.

    Raises:
      RunFolderError: they cannot be read.
    """
    for folder in checkpoints(root_dir)[:1]:
        with readable(folder):
            return int(folder.stem), Counters(**json.loads((folder / EXTRA).read_text()))
    return None


def check_readable(root_dir: str | os.PathLike) -> None:
    """Reads counters and variables of a run's newest checkpoint: a start that is refused leaves the folder as it is.

    Raises:
      RunFolderError: they cannot be read.
    """
    find_newest(root_dir)
    for folder in checkpoints(root_dir)[:1]:
        with readable(folder):
            variables = tf.train.load_checkpoint(_variables_path(folder))
            for name in variables.get_variable_to_shape_map():
                variables.get_tensor(name)


def read_newest(root_dir: str | os.PathLike, trackables: Mapping[str, Any], attempts: int = 5) -> int:
    """Restores variables, and nothing else, from the newest checkpoint; returns its step.

    The run may go on: nothing in its folder is changed, and if it replaces the checkpoint meanwhile, this looks for the
    newest one again, `attempts` times. `trackables` are as the run's `Checkpointer` has them.

    Raises:
      RunFolderError: there is none, it cannot be read, or it lacks variables that the program has.
    """
    checkpoint = tf.train.Checkpoint(**trackables)
    for _ in range(attempts):
        for folder in checkpoints(root_dir)[:1]:
            try:
                _read_variables(checkpoint, folder)
                return int(folder.stem)
            except RunFolderError:
                if (folder / EXTRA).exists():  # the run has not just removed or renamed it
                    raise
    raise RunFolderError(f"There is no checkpoint in {pathlib.Path(root_dir).absolute()}.")


@contextlib.contextmanager
def readable(folder: pathlib.Path) -> Iterator[None]:
    """Turns what a damaged file leads to into a RunFolderError that names the checkpoint's folder."""
    try:
        yield
    except (RunFolderError, MemoryError):
        raise
    except Exception as error:  # JSON, NumPy, Reverb and TensorFlow have a dozen kinds for damage
        why = str(getattr(error, "message", "") or error) or type(error).__name__
        before = [other for other in checkpoints(folder.parents[1]) if other != folder]
        then = f"goes on from checkpoint {before[0].stem}" if before else "starts from the beginning"
        raise RunFolderError(
            f"The checkpoint {folder} cannot be read ({why.splitlines()[0]}). Remove that folder, then the same "
            f"command {then}; or start in another folder with --root_dir=DIR, or here with --anew, which keeps what is "
            "there under another name."
        ) from error


def _read_variables(checkpoint: tf.train.Checkpoint, folder: pathlib.Path) -> None:
    with readable(folder):
        try:
            checkpoint.read(_variables_path(folder)).assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:  # variables are missing, or of other shapes
            (first, *_) = str(error).splitlines() or [""]
            raise RunFolderError(
                f"The checkpoint {folder} {OF_ANOTHER}: {first}\nBring that file or that version back, or train in "
                "another folder with --root_dir=DIR."
            ) from error


def _variables_path(folder: pathlib.Path) -> str:
    """The path that TensorFlow reads a checkpoint's variables from."""
    if is_pattern(folder):  # TensorFlow takes the path for one
        # Never closed: variables that are created later are read there, too.
        return f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}/{_VARIABLES}"
    return str(folder / _VARIABLES)


def _remove(folder: pathlib.Path) -> None:
    """Removes a checkpoint, if it is there; its last file goes first, without which it is not whole any more."""
    if folder.exists():
        (folder / EXTRA).unlink(missing_ok=True)
        shutil.rmtree(folder)


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
