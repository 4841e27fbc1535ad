"""Checkpoints of a whole run: variables, replay, and what lives in Python.

    checkpoints/<step>/manifest.json    sizes and SHA-256 of all the other files
    checkpoints/<step>/extra.json       counters and states of random number generators
    checkpoints/<step>/variables.*      written by `tf.train.Checkpoint`
    checkpoints/<step>/replay/          written by the replay
    checkpoints/<step>/<other>          files that `save` was given

A checkpoint is built beside its final place, forced to the disk and renamed, so `checkpoints/<step>` is whole
or absent; the manifest notices what happens to it afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.errors import RunFolderError
from agents.storage.run_folder import unused

_MANIFEST, _EXTRA, _VARIABLES, _REPLAY = "manifest.json", "extra.json", "variables", "replay"
_UNFINISHED, _REPLACED, _DAMAGED = ".tmp", ".replaced", ".damaged"

log = logging.getLogger(__name__)


class ReplayFolders(NamedTuple):
    """A replay's part of a run's checkpoints."""

    writes_to: pathlib.Path  # an empty folder, on the disk of the others
    begins_with: pathlib.Path | None  # what an earlier start has left in a checkpoint


class Checkpointer:
    """Saves the run in `root_dir` and finds its newest whole checkpoint.

    On disk there are `keep` checkpoints, one more while saving, and the replay counts in each of them.

    Args:
      root_dir: the run folder, which no other process may be using (see `run_folder.opened`).
      trackables: what `tf.train.Checkpoint` saves, by name.
      replay_checkpoint: makes the replay write a checkpoint and returns its folder: `Replay.checkpoint`, of one that
        was started with `replay_folders()`. None: the run has no replay to save.
      keep: how many checkpoints stay, at least 1.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        trackables: Mapping[str, Any],
        replay_checkpoint: Callable[[], str] | None = None,
        keep: int = 2,
    ):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}.")
        self._root = pathlib.Path(root_dir).absolute()
        self._folder = self._root / "checkpoints"
        self._checkpoint = tf.train.Checkpoint(**trackables)
        self._replay_checkpoint = replay_checkpoint
        self._keep = keep
        self._newest: pathlib.Path | None = None  # known to be whole
        with _explained(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tidy()

    @property
    def oldest(self) -> int:
        """Step of the oldest checkpoint that is kept, 0 without any."""
        return int(self._saved()[-1].name) if self._saved() else 0

    def replay_folders(self) -> ReplayFolders:
        """Returns what to start the replay with, so that it begins with that of `restore`.

        Reverb keeps only the last checkpoint under its path and, on starting, prefers it to any other. So
        what a replay has written is moved into our checkpoints, and what a killed process left there is removed.
        """
        with _explained(self._root / _REPLAY):
            shutil.rmtree(self._root / _REPLAY, ignore_errors=True)
            (self._root / _REPLAY).mkdir()
            newest = self._newest_whole()
        saved = newest / _REPLAY if newest and (newest / _REPLAY).exists() else None
        return ReplayFolders(self._root / _REPLAY, saved)

    def save(
        self, step: int, extra: Mapping[str, Any] | None = None, files: Mapping[str, bytes] | None = None
    ) -> str:
        """Writes a checkpoint and removes the oldest.

        Args:
          step: its number, at least 0; a checkpoint of the same step is replaced.
          extra: numbers, strings, lists, dictionaries with string keys, and numpy arrays; numpy scalars and
            tuples come back as Python scalars and lists.
          files: what else belongs to it, by file name.
        Returns:
          the folder of the checkpoint.
        Raises:
          RunFolderError: it could not be written (disk full, for one); the earlier ones are untouched.
        """
        final = self._folder / str(step)
        unfinished = _with_suffix(final, _UNFINISHED)
        try:
            with _explained(self._folder):
                unfinished.mkdir()
                self._checkpoint.write(str(unfinished / _VARIABLES))
                (unfinished / _EXTRA).write_text(json.dumps(dict(extra or {}), default=_encode))
                for name, content in (files or {}).items():
                    (unfinished / name).write_bytes(content)
                if self._replay_checkpoint is not None:
                    # A rename, not a copy: both are in the run folder.
                    os.rename(self._replay_checkpoint(), unfinished / _REPLAY)
                _write_manifest(unfinished)
                _replace(unfinished, final)
                self._newest = final
                self._tidy()
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return str(final)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Restores the variables from the newest whole checkpoint.

        Variables that do not exist yet (an optimizer's slots) are restored when they are created. The replay
        comes back through `replay_folders`.

        Returns:
          (step, extra) as they were saved, or None if there is no checkpoint.
        Raises:
          RunFolderError: the checkpoint lacks variables that the program has.
        """
        newest = self._newest_whole()
        if newest is None:
            return None
        _read_variables(self._checkpoint, newest)
        return self.newest()

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Returns what `restore` would; restores nothing."""
        newest = self._newest_whole()
        if newest is None:
            return None
        return int(newest.name), json.loads((newest / _EXTRA).read_text(), object_hook=_decode)

    def file(self, name: str) -> bytes | None:
        """A file that the newest whole checkpoint was given; None if there is none of that name."""
        newest = self._newest_whole()
        return (newest / name).read_bytes() if newest and (newest / name).exists() else None

    def is_own(self, name: str) -> bool:
        """Says whether a file of the newest whole checkpoint is this user's, for those that it trusts nobody else's."""
        newest = self._newest_whole()
        return newest is not None and (newest / name).stat().st_uid == os.geteuid()

    def _newest_whole(self) -> pathlib.Path | None:
        """Sets damaged checkpoints aside if there is a whole one: left in place, they would be kept instead of it.

        Raises:
          RunFolderError: there are checkpoints, and all of them are damaged.
        """
        if self._newest is None and (saved := self._saved()):
            damage = dict(
                itertools.takewhile(lambda of: of[1], ((folder, _damage(folder)) for folder in saved))
            )
            if len(damage) == len(saved):
                listed = "; ".join(f"{folder.name}: {why}" for folder, why in damage.items())
                raise RunFolderError(
                    f"All checkpoints in {self._folder} are damaged ({listed}). Nothing has been changed. Bring one "
                    "back from a copy, start anew in another folder with --root_dir=DIR, or here with --anew, "
                    "which keeps what is there under another name"
                )
            self._newest = saved[len(damage)]
            for folder, why in damage.items():
                aside = unused(_with_suffix(folder, _DAMAGED))
                folder.rename(aside)
                log.warning(
                    "Checkpoint %s is damaged (%s); the one before is taken. It is now %s and may be deleted.",
                    folder,
                    why,
                    aside.name,
                )
        return self._newest

    def _saved(self) -> list[pathlib.Path]:
        """Newest first."""
        return _numbered(self._folder)

    def _tidy(self) -> None:
        for replaced in _numbered(self._folder, _REPLACED):
            if not replaced.with_suffix("").exists():  # killed between the two renames of _replace
                replaced.rename(replaced.with_suffix(""))
        for superfluous in self._saved()[self._keep :]:
            superfluous.rename(_with_suffix(superfluous, _REPLACED))
        for suffix in (_REPLACED, _UNFINISHED):
            for leftover in _numbered(self._folder, suffix):
                shutil.rmtree(leftover, ignore_errors=True)


def read_newest(root_dir: str | os.PathLike, trackables: Mapping[str, Any], attempts: int = 5) -> int:
    """Restores variables, and nothing else, from the newest whole checkpoint, and changes nothing in the run folder.

    The run may go on: if it replaces a checkpoint meanwhile, this looks for the newest one again.

    Args:
      root_dir: the run folder.
      trackables: as the run's `Checkpointer` has them.
      attempts: how often to look again.

    Returns:
      the step of the checkpoint.
    Raises:
      RunFolderError: there is none that is whole, or it lacks variables that the program has.
    """
    folder = pathlib.Path(root_dir).absolute() / "checkpoints"
    checkpoint = tf.train.Checkpoint(**trackables)
    for _ in range(attempts):
        for saved in _numbered(folder):
            # Not the replay: it is the largest part by far, and of no use here.
            if _damage(saved, (_EXTRA, _VARIABLES + ".*")) is None:
                with contextlib.suppress(tf.errors.OpError):  # it has just been removed
                    _read_variables(checkpoint, saved)
                    return int(saved.name)
    raise RunFolderError(f"There is no whole checkpoint in {folder}.")


@contextlib.contextmanager
def _explained(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (OSError, tf.errors.OpError, RuntimeError) as error:
        raise RunFolderError(
            f"Cannot write to {folder}: {error}. Earlier checkpoints are as they were. "
            "Free space on that disk or make the folder writable, then repeat the command."
        ) from error


def _read_variables(checkpoint: tf.train.Checkpoint, folder: pathlib.Path) -> None:
    try:
        checkpoint.read(str(folder / _VARIABLES)).assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:  # variables are missing, or of other shapes
        (first, *_) = str(error).splitlines() or [""]
        raise RunFolderError(
            f"The checkpoint {folder} is of another network or a different version of this program: {first}\n"
            "Go on with that version, or start again in another folder with --root_dir=DIR."
        ) from error


def _numbered(folder: pathlib.Path, suffix: str = "") -> list[pathlib.Path]:
    """The checkpoints in a folder, newest first, or what has their names and a suffix; other files are not ours."""
    ours = [path for path in folder.glob("*" + suffix) if path.name.removesuffix(suffix).isdecimal()]
    return sorted(ours, key=lambda path: -int(path.name.removesuffix(suffix)))


def _with_suffix(folder: pathlib.Path, suffix: str) -> pathlib.Path:
    return folder.with_name(folder.name + suffix)


def _replace(new: pathlib.Path, final: pathlib.Path) -> None:
    """Renames `new` to `final`; what stood there is moved first, for a folder cannot be overwritten."""
    if final.exists():
        final.rename(_with_suffix(final, _REPLACED))
    new.rename(final)
    _sync(final.parent)


def _write_manifest(folder: pathlib.Path) -> None:
    """Describes the files of a folder and forces everything to the disk."""
    (folder / _MANIFEST).write_text(json.dumps(_described(folder), indent=2))
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _described(folder: pathlib.Path, patterns: Iterable[str] = ("*",)) -> dict[str, dict[str, Any]]:
    matching = itertools.chain.from_iterable(map(folder.rglob, patterns))
    files = sorted(path for path in matching if path.is_file() and path != folder / _MANIFEST)
    return {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in files
    }


def _damage(folder: pathlib.Path, patterns: Iterable[str] = ("*",)) -> str | None:
    """Says what is wrong with those files of a checkpoint, or returns None."""
    try:
        described = json.loads((folder / _MANIFEST).read_text())
        expected = {
            name: of for name, of in described.items() if any(map(pathlib.PurePath(name).match, patterns))
        }
        if expected == _described(folder, patterns):
            return None
    except (OSError, ValueError) as error:
        return str(error)
    except (AttributeError, TypeError):  # JSON of another form
        return f"{_MANIFEST} describes no files"
    return f"its files are not those that {_MANIFEST} describes"


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(value: Any) -> Any:
    """JSON's `default`; decimal digits hold floating-point numbers of any width exactly."""
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": value.shape, "values": value.ravel().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"A checkpoint's extra holds numbers, strings, lists, dictionaries and arrays, not {value!r}."
    )


def _decode(value: dict[str, Any]) -> Any:
    if value.keys() == {"dtype", "shape", "values"}:
        return np.array(value["values"], value["dtype"]).reshape(value["shape"])
    return value
