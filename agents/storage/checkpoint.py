"""Checkpoints of a whole run: variables, replay, and what lives in Python.

    checkpoints/<step>/manifest.json    sizes of its other files, and checksums of all but the largest
    checkpoints/<step>/extra.json       counters and states of random number generators
    checkpoints/<step>/variables.*      written by `tf.train.Checkpoint`
    checkpoints/<step>/replay/          written by the replay

A checkpoint is built beside its final place, forced to the disk and renamed, so `checkpoints/<step>` is whole
or absent; the manifest notices files that are lost or cut off afterwards. Only files that a manifest lists are removed:
until the checkpoint is whole, it lists the names that are to come.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import json
import logging
import os
import pathlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from agents.errors import RunFolderError, is_pattern, writing
from agents.storage.run_folder import OF_ANOTHER, checkpoints, unused, write

_MANIFEST, _EXTRA, _VARIABLES, _REPLAY = "manifest.json", "extra.json", "variables", "replay"
_UNFINISHED, _REPLACED, _DAMAGED = ".tmp", ".replaced", ".damaged"
_KEPT = 2  # checkpoints
_CHECKED = 100_000_000  # bytes of a file, up to which it has a checksum
_WRITING = tf.errors.OpError, RuntimeError  # of `tf.train.Checkpoint`, beside an OSError

log = logging.getLogger(__name__)


class ReplayFolders(NamedTuple):
    """A replay's part of a run's checkpoints."""

    writes_to: pathlib.Path  # on the disk of the checkpoints; may hold an earlier start's leftovers
    begins_with: pathlib.Path | None  # the replay's part of the newest whole checkpoint


class Checkpointer:
    """Saves the run in `root_dir` and finds its newest whole checkpoint.

    On disk there are two checkpoints, one more while saving, and the replay counts in each of them.

    Args:
      root_dir: the run folder, which no other process may be using (see `run_folder.opened`).
      trackables: what `tf.train.Checkpoint` saves, by name.
      replay_checkpoint: makes the replay write a checkpoint and returns its folder: `Replay.checkpoint`, of one that
        was started with `replay_folders()`. None: the run has no replay to save.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        trackables: Mapping[str, Any],
        replay_checkpoint: Callable[[], str] | None = None,
    ):
        self._root = pathlib.Path(root_dir).absolute()
        self._folder = self._root / "checkpoints"
        self._checkpoint = tf.train.Checkpoint(**trackables)
        self._replay_checkpoint = replay_checkpoint
        self._newest: pathlib.Path | None = None  # known to be whole
        with writing(self._folder, *_WRITING):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tidy()

    @property
    def oldest(self) -> int:
        """Step of the oldest checkpoint that is kept, 0 without any."""
        return min((int(path.name) for path in checkpoints(self._root)[:_KEPT]), default=0)

    def replay_folders(self) -> ReplayFolders:
        """Returns what to start the replay with, so that it begins with that of `restore`.

        What a replay has written is moved into the checkpoint.
        """
        folder = self._root / _REPLAY
        with writing(folder):
            folder.mkdir(exist_ok=True)
        newest = self._newest_whole()
        return ReplayFolders(folder, newest / _REPLAY if newest and (newest / _REPLAY).exists() else None)

    def save(self, step: int, extra: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint and removes the oldest.

        Args:
          step: its number, at least 0; a checkpoint of the same step is replaced.
          extra: what JSON can hold; tuples come back as lists.

        Raises:
          RunFolderError: it could not be written (disk full, for one); the earlier ones are untouched.
        """
        final = self._folder / str(step)
        unfinished = unused(_with_suffix(final, _UNFINISHED))
        try:
            with writing(self._folder, *_WRITING):
                unfinished.mkdir()
                to_come = _EXTRA, f"{_MANIFEST}.new", f"{_VARIABLES}*", f"{_REPLAY}/*"
                _write_manifest(unfinished, dict.fromkeys(to_come))
                self._checkpoint.write(str(unfinished / _VARIABLES))
                (unfinished / _EXTRA).write_text(json.dumps(dict(extra or {})))
                if self._replay_checkpoint is not None:
                    # A rename, not a copy: both are in the run folder.
                    os.rename(self._replay_checkpoint(), unfinished / _REPLAY)
                _write_manifest(
                    unfinished, {name: _described(unfinished / name) for name in _files(unfinished)}
                )
                for path in (*unfinished.rglob("*"), unfinished):
                    _sync(path)
                if os.path.lexists(final):  # a folder cannot be overwritten
                    final.rename(unused(_with_suffix(final, _REPLACED)))
                unfinished.rename(final)
                _sync(self._folder)
                self._newest = final
                self._tidy()
        finally:
            _remove(unfinished)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Restores the variables from the newest whole checkpoint; returns its step and extra, None without any.

        Variables that do not exist yet (an optimizer's slots) are restored when they are created. The replay
        comes back through `replay_folders`.

        Raises:
          RunFolderError: the checkpoint lacks variables that the program has.
        """
        if (newest := self._newest_whole()) is not None:
            _read_variables(self._checkpoint, newest)
        return self.newest()

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Returns what `restore` would; restores nothing."""
        if (newest := self._newest_whole()) is None:
            return None
        return int(newest.name), json.loads((newest / _EXTRA).read_text())

    def _newest_whole(self) -> pathlib.Path | None:
        """The newest whole checkpoint; renames damaged ones, which would count among the kept ones.

        Raises:
          RunFolderError: there are checkpoints, and all of them are damaged.
        """
        if self._newest is None and (saved := checkpoints(self._root)):
            damage = damaged(self._root)
            self._newest = saved[len(damage)]
            for folder, why in damage.items():
                aside = folder.rename(unused(_with_suffix(folder, _DAMAGED)))
                log.warning(
                    f"Checkpoint {folder} is damaged ({why}); the one before is taken. It is now {aside.name} and "
                    "may be deleted."
                )
        return self._newest

    def _tidy(self) -> None:
        for replaced in checkpoints(self._root, _REPLACED):
            final = replaced.with_name(replaced.name.split(".")[0])
            if not os.path.lexists(final):  # killed between the two renames of `save`
                replaced.rename(final)
        leftovers = (checkpoints(self._root, suffix) for suffix in (_REPLACED, _UNFINISHED))
        for folder in (*checkpoints(self._root)[_KEPT:], *itertools.chain.from_iterable(leftovers)):
            _remove(folder)


def damaged(root_dir: str | os.PathLike) -> dict[pathlib.Path, str]:
    """The checkpoints that are newer than the newest whole one, and what is wrong with each; changes nothing.

    Raises:
      RunFolderError: there are checkpoints, and all of them are damaged.
    """
    saved, damage = checkpoints(root_dir), dict[pathlib.Path, str]()
    for folder in saved:
        if (why := _damage(folder)) is None:
            break
        damage[folder] = why
    if saved and len(damage) == len(saved):
        listed = "; ".join(f"{folder.name}: {why}" for folder, why in damage.items())
        raise RunFolderError(
            f"All checkpoints in {saved[0].parent} are damaged ({listed}). They are as they were. Bring one back from "
            "a copy, start in another folder with --root_dir=DIR, or here with --anew, which keeps what is there under "
            "another name"
        )
    return damage


def read_newest(root_dir: str | os.PathLike, trackables: Mapping[str, Any], attempts: int = 5) -> int:
    """Restores variables, and nothing else, from the newest whole checkpoint; returns its step.

    The run may go on: nothing in its folder is changed, and if it replaces a checkpoint meanwhile, this looks for the
    newest one again, `attempts` times. `trackables` are as the run's `Checkpointer` has them.

    Raises:
      RunFolderError: none is whole, or it lacks variables that the program has.
    """
    folder = pathlib.Path(root_dir).absolute() / "checkpoints"
    checkpoint = tf.train.Checkpoint(**trackables)
    for _ in range(attempts):
        for saved in checkpoints(root_dir):
            if _damage(saved, replay=False) is None:  # which may have been removed to make room
                with contextlib.suppress(tf.errors.OpError):  # it has just been removed
                    _read_variables(checkpoint, saved)
                    return int(saved.name)
    raise RunFolderError(f"There is no whole checkpoint in {folder}.")


def _read_variables(checkpoint: tf.train.Checkpoint, folder: pathlib.Path) -> None:
    # TensorFlow takes the path for a pattern. Variables that are created later are read there, too: it stays open.
    path = f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}" if is_pattern(folder) else folder
    try:
        checkpoint.read(f"{path}/{_VARIABLES}").assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:  # variables are missing, or of other shapes
        (first, *_) = str(error).splitlines() or [""]
        raise RunFolderError(
            f"The checkpoint {folder} {OF_ANOTHER}: {first}\nBring that file or that version back, or train in another "
            "folder with --root_dir=DIR."
        ) from error


def _with_suffix(folder: pathlib.Path, suffix: str) -> pathlib.Path:
    return folder.with_name(folder.name + suffix)


def _remove(folder: pathlib.Path) -> None:
    """Removes a checkpoint, whole or not; what its manifest does not list stays, and the folder around it."""
    if listed := _listed(folder):
        remove_files(folder, listed)
        (folder / _MANIFEST).unlink()  # last: a kill before leaves the rest to the next start
    with contextlib.suppress(OSError):
        folder.rmdir()


def remove_files(folder: pathlib.Path, patterns: Iterable[str]) -> None:
    """Removes files in a folder, and below it, whose names there match a pattern, then the empty folders in it."""
    patterns = list(patterns)
    for name in _files(folder):
        if any(fnmatch.fnmatchcase(name, each) for each in patterns):
            (folder / name).unlink(missing_ok=True)
    for path, *_ in os.walk(folder, topdown=False):
        if path != str(folder):
            with contextlib.suppress(OSError):  # something else is in it
                os.rmdir(path)


def _write_manifest(folder: pathlib.Path, contents: Mapping[str, Any]) -> None:
    write(folder / _MANIFEST, json.dumps(contents, indent=2))


def _listed(folder: pathlib.Path) -> dict[str, Any]:
    """Contents of a folder's manifest; empty without one that can be read."""
    try:
        listed = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return listed if isinstance(listed, dict) and _EXTRA in listed else {}


def _files(folder: pathlib.Path) -> list[str]:
    """Names of the files in a folder and below it, not behind links; the manifest is not among them."""
    found = (pathlib.Path(path, name) for path, _, names in os.walk(folder) for name in names)
    return sorted(str(path.relative_to(folder)) for path in found if path != folder / _MANIFEST)


def _described(path: pathlib.Path) -> dict[str, int]:
    """A file's entry in the manifest; large files have no checksum, which would take long."""
    if (size := path.stat().st_size) > _CHECKED:
        return {"bytes": size}
    checksum = 0
    with open(path, "rb") as file:
        while part := file.read(2**20):  # in parts, to save memory
            checksum = zlib.crc32(part, checksum)
    return {"bytes": size, "crc32": checksum}


def _damage(folder: pathlib.Path, replay: bool = True) -> str | None:
    """What is wrong with a checkpoint, in words, or None; `replay`: look at the replay's files, too."""
    listed = _listed(folder)
    if f"{_VARIABLES}.index" not in listed:
        return f"it has no {_MANIFEST} of a whole checkpoint"
    for name, then in listed.items():
        if replay or not name.startswith(f"{_REPLAY}/"):
            try:
                now = _described(folder / name)
            except OSError as error:
                return f"{name}: {error.strerror}"
            if not isinstance(then, dict) or any(now[key] != then.get(key, now[key]) for key in now):
                return f"{name} is not the file that {_MANIFEST} describes"
    return None


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
