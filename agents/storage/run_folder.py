"""The folder of one run: what was asked for, by which versions, and a lock that keeps a second process out.

config.gin             the parsed configuration, written before work starts
operative_config.gin   every value that the constructed program uses, defaults included
command.txt            one line per start: time and command line
versions.txt           the folder's format, and what the latest start ran on
lock                   held while a process works in the folder
processes.txt          of a distributed run: the number of each process, and when it began on its machine's clock
best.npz               weights of the evaluation with the highest mean return (`best`)
native.log             messages of C++ libraries: what Reverb says of itself, and why it died if it did
finished.json          written when the run has come to its own end
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import fcntl
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import gin

from agents.errors import RunFolderError, local_path, writing

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "ale-py", "gymnasium", "numpy", "gin-config", "rbs-tf")

CONFIG = "config.gin"
OPERATIVE = "operative_config.gin"
_COMMAND = "command.txt"
NATIVE = "native.log"
BEST = "best.npz"
_FORMAT = "6"  # of what a run goes on with: replay, statistics, checkpoints
OF_ANOTHER = f"does not fit {CONFIG}, which was edited, or comes from a different version of this program"
FINISHED = "finished.json"  # of a run that has come to its own end, not to a signal's
PROCESSES = "processes.txt"
EXTRA = "extra.json"  # the last file of a checkpoint to be written
REPLAY = "replay"  # a folder in a checkpoint, and in the run folder for what Reverb's server writes
NEW = ".new"  # behind the name of what is being written
_VERSIONS, _LOCK = "versions.txt", "lock"
# Of a first start that was killed before it had written the configuration.
_BEFORE_CONFIG = {_LOCK, _VERSIONS, _VERSIONS + NEW, CONFIG + NEW}


class RunFolder:
    """A run's folder while this process has it, see `opened`.

    Attributes:
      path: absolute; there is no such folder yet if the run is new and has not begun.
    """

    def __init__(self, path: pathlib.Path, held: contextlib.ExitStack):
        self.path, self._held = path, held
        self._locked = False
        with writing(path):
            _check_is_run(path)
            if (path / CONFIG).exists():
                self._lock()

    def _lock(self) -> None:
        if not self._locked:
            self._held.enter_context(_locked(self.path))
            self._locked = True
            check_goes_on(self.path)

    def begin(self, command: Sequence[str]) -> None:
        """Makes and locks the folder if it is new, and records this start: what has been built may now write there.

        The configuration of a folder is fixed by its first start, except for `train.updates`: a run may go on for
        longer. The lock is the kernel's (`flock`), so it is gone when the process is, however it died.

        Args:
          command: the command line, for the record.

        Raises:
          RunFolderError: as `opened`.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock()
            write(self.path / _VERSIONS, list_versions())
            write(self.path / CONFIG, gin.config_str())
            now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            with open(self.path / _COMMAND, "a") as lines:
                lines.write(f"{now}  {shlex.join(command)}\n")
            (self.path / FINISHED).unlink(missing_ok=True)

    def finish(self, updates: int, head: str) -> None:
        """Records that the run has come to its end: a later start that asks for no more `updates` has nothing to do."""
        write(self.path / FINISHED, json.dumps({"updates": updates, "head": head}))


@contextlib.contextmanager
def opened(root_dir: str | os.PathLike) -> Iterator[RunFolder]:
    """Locks a run's folder, if it exists, and checks it against the parsed gin configuration; creates nothing.

    Args:
      root_dir: of a run of this configuration, an empty folder, or none.

    Raises:
      RunFolderError: the folder is a file, cannot be written, holds something else than a run, is in use by
        another process, or belongs to another configuration.
      UsageError: it is an address, not a path.
    """
    with contextlib.ExitStack() as held:
        yield RunFolder(pathlib.Path(local_path(root_dir)).absolute(), held)


def find_made_updates(root_dir: str | os.PathLike, updates: int) -> int | None:
    """How many updates a run has made, if it has nothing left to do for `updates`; otherwise None."""
    newest = newest_step(root_dir)
    return newest or updates if newest > updates or is_finished(root_dir, updates) else None


def is_finished(root_dir: str | os.PathLike, updates: int) -> bool:
    """Whether a run of this many updates has ended, the last evaluation included."""
    return _read_finished(root_dir).get("updates", -1) >= updates


def acting_head(root_dir: str | os.PathLike) -> str | None:
    """The head that played a finished run's last evaluation: checkpoints of many processes lack it."""
    return _read_finished(root_dir).get("head")


def _read_finished(root_dir: str | os.PathLike) -> dict[str, Any]:
    try:
        said = json.loads(pathlib.Path(root_dir, FINISHED).read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def set_aside(root_dir: str | os.PathLike) -> pathlib.Path | None:
    """Renames a run's folder to the first free NAME.N; returns the new path, None without a folder.

    Raises:
      RunFolderError: it is no run's folder, or one in use.
    """
    folder = pathlib.Path(root_dir).absolute()
    if not folder.exists():
        return None
    with writing(folder):
        _check_is_run(folder)
        with _locked(folder):
            names = (folder.with_name(f"{folder.name}.{n}") for n in itertools.count(1))
            return folder.rename(next(name for name in names if not os.path.lexists(name)))


def checkpoints(root_dir: str | os.PathLike) -> list[pathlib.Path]:
    """Folders of a run's whole checkpoints, the newest first: <step>, or <step>.new until it replaces <step>."""
    found = [path.parent for path in pathlib.Path(root_dir, "checkpoints").glob(f"*/{EXTRA}")]
    ours = [folder for folder in found if re.fullmatch(rf"\d+({NEW})?", folder.name)]
    return sorted(ours, key=lambda folder: (int(folder.stem), folder.suffix), reverse=True)


def newest_step(root_dir: str | os.PathLike) -> int:
    """Update of the newest checkpoint, 0 without any."""
    return max((int(folder.stem) for folder in checkpoints(root_dir)), default=0)


def newest_replay(root_dir: str | os.PathLike) -> pathlib.Path | None:
    """The replay's folder in the newest checkpoint; None without one."""
    found = [folder / REPLAY for folder in checkpoints(root_dir)[:1]]
    return next((folder for folder in found if folder.exists()), None)


def describe_next_start(root_dir: str | os.PathLike) -> str:
    """What the same command does when this start has ended early."""
    if checkpoints(root_dir):
        return "The same command goes on from the last checkpoint"
    return "There is no checkpoint yet: the same command starts from the beginning"


def write_operative_config(root_dir: str | os.PathLike) -> None:
    """Saves every gin value in use, defaults included. Call it once everything is constructed."""
    write(pathlib.Path(root_dir) / OPERATIVE, gin.operative_config_str())


def unread_note() -> str:
    """Names what gin's configuration sets and nothing has read, or "". Call it once everything is constructed."""
    bound, read = (
        set(re.findall(r"^([\w/]+(?:\.\w+)+) =", text, re.MULTILINE))
        for text in (gin.config_str(), gin.operative_config_str())
    )
    unread = ", ".join(sorted(bound - read))
    return f"Set, but nothing in this run reads it: {unread}." if unread else ""


def list_versions() -> str:
    """Returns one line per part: Python, the packages that results depend on, and this clone's commit."""
    lines = [f"format {_FORMAT}", f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for package in PACKAGES:
        try:
            lines.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{package} not installed")
    describe = "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty= with changes"
    try:
        git = subprocess.run(("git", "-C", REPOSITORY, *describe), capture_output=True, text=True, check=True)
        commit = git.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return "\n".join([*lines, f"commit {commit}", ""])


def first_start(root_dir: str | os.PathLike) -> str:
    """The line about the folder's first start: when, and the command. No two runs have the same."""
    return _read_text(root_dir, _COMMAND).partition("\n")[0]


def recorded_versions(root_dir: str | os.PathLike) -> dict[str, str]:
    """`versions` of the folder's last start, name -> version; empty without the file."""
    return dict(re.findall(r"^(\S+) (.+)$", _read_text(root_dir, _VERSIONS), re.MULTILINE))


def _read_text(root_dir: str | os.PathLike, name: str) -> str:
    """Content of a file of the folder; empty without it."""
    path = pathlib.Path(root_dir, name)
    return path.read_text(errors="replace") if path.is_file() else ""


def is_locked(root_dir: str | os.PathLike) -> bool:
    """Whether a process works in the folder, on this machine or on another that shares its disk."""
    try:
        with open(pathlib.Path(root_dir) / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for a moment, see `_locked`
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _check_is_run(folder: pathlib.Path) -> None:
    """Raises RunFolderError for a path that holds something else than a run."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(
            f"{folder} is a file; a run needs a folder. Give another one with --root_dir=DIR."
        )
    found = {path.name for path in folder.glob("*")}
    # A start that was killed, or has yet to write the configuration, has made a lock.
    begun = _LOCK in found <= _BEFORE_CONFIG
    if found and not {CONFIG, _VERSIONS} <= found and not begun:  # a configuration alone is a user's own
        few = ", ".join(sorted(found)[:5]) + (", ..." if len(found) > 5 else "")
        raise RunFolderError(
            f"{folder} holds something else than a run: {few}. "
            "Give a new or empty folder, or that of an earlier run, with --root_dir=DIR."
        )


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds the folder's lock, a file that names the process."""
    with open(folder / _LOCK, "a+", errors="replace") as lock:
        lock.seek(0)
        said = lock.read(1000)
        for last in (False, True):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if last:
                    raise RunFolderError(
                        f"Another process ({said.strip() or 'starting'}) is working in {folder}. "
                        "Wait for it, stop it, or give another folder with --root_dir=DIR."
                    ) from None
                time.sleep(0.1)  # `is_locked` has it for a moment
            except OSError as error:
                raise RunFolderError(
                    f"{folder} is on a disk that keeps no file locks ({error.strerror}), which a run needs. "
                    "Give a folder on another disk with --root_dir=DIR."
                ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}\n")
        lock.flush()
        yield


def check_goes_on(folder: pathlib.Path) -> None:
    """Checks that a run with the parsed gin configuration may go on in a folder, which need not exist.

    Raises:
      RunFolderError: it is of another format or configuration.
    """
    if not (folder / CONFIG).exists():
        return
    recorded = recorded_versions(folder)
    if recorded.get("format") != _FORMAT:
        raise RunFolderError(
            f"{folder / CONFIG} was written by another version of this program (commit "
            f"{recorded.get('commit', 'unknown')}): only that one can go on with it. Give another folder with "
            "--root_dir=DIR. Playing, exporting and reporting work as before."
        )
    before = _fixed_lines((folder / CONFIG).read_text(errors="replace"))
    now = _fixed_lines(gin.config_str())
    if before != now:
        diff = difflib.unified_diff(before, now, f"{folder / CONFIG}", "this command", n=0, lineterm="")
        shown = "\n".join("  " + line for line in diff if not line.startswith("@@"))
        raise RunFolderError(
            f"{folder} belongs to a run with another configuration:\n{shown}\n"
            "Repeat that run's command (its command.txt) to go on with it, only --updates and --collectors may change; "
            "or give another folder with --root_dir=DIR."
        )


def _fixed_lines(config: str) -> list[str]:
    lines = (line for line in config.splitlines() if line and not line.startswith("#"))
    return [line for line in lines if not line.startswith("train.updates = ")]


def write(path: str | os.PathLike, text: str) -> None:
    """Replaces a file in one step: a reader sees the old text or the new one."""
    path = pathlib.Path(path)
    with replacing(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a new file that takes the path's place once it is on the disk, or is removed after an error."""
    new = path.with_name(path.name + NEW)
    with open(new, "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            new.unlink()
            raise
