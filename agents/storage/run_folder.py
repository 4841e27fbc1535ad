"""The folder of one run: what was asked for, by which versions, and a lock that keeps a second process out.

config.gin             the parsed configuration, written before work starts
operative_config.gin   every value that the constructed program uses, defaults included
command.txt            one line per start: time and command line
versions.txt           the folder's format, and what the latest start ran on
lock                   held while a process works in the folder
processes.txt          of a distributed run: the number of each process on its machine
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
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import gin

from agents.errors import RunFolderError, local_path

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "ale-py", "gymnasium", "numpy", "gin-config", "rbs-tf")

CONFIG, OPERATIVE, _COMMAND = "config.gin", "operative_config.gin", "command.txt"
NATIVE = "native.log"  # made once the configuration is there
BEST = "best.npz"
_FORMAT = "3"  # of what a run goes on with: replay, statistics, checkpoints
FINISHED = "finished.json"  # of a run that has come to its own end, not to a signal's
_VERSIONS, _LOCK, _NEW = "versions.txt", "lock", ".new"
# A start that was killed before it wrote the configuration leaves no more than these behind.
_BEFORE_CONFIG = {_LOCK, _COMMAND, _VERSIONS, CONFIG + _NEW, _VERSIONS + _NEW}


@contextlib.contextmanager
def opened(root_dir: str | os.PathLike, command: Sequence[str]) -> Iterator[pathlib.Path]:
    """Locks `root_dir`, checks it against the parsed gin configuration and records this start in it.

    The configuration of a folder is fixed by its first start, except for `train.updates`: a run may go on
    for longer. The lock is the kernel's (`flock`), so it is gone when the process is, however it died.
    Whatever fails before something has been collected takes a new folder with it, for the corrected command.

    Args:
      root_dir: created if it does not exist.
      command: the command line, for the record.
    Yields:
      the absolute path of the folder.
    Raises:
      RunFolderError: the folder is a file, cannot be written, holds something else than a run, is in use by
        another process, or belongs to another configuration.
      UsageError: it is an address, not a path.
    """
    folder = pathlib.Path(local_path(root_dir)).absolute()
    with contextlib.ExitStack() as stack:
        try:
            made = _make(folder)
            stack.enter_context(_locked(folder))
            new = not (folder / CONFIG).exists()
            check_goes_on(folder)
            write(folder / _VERSIONS, versions())
            now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            with open(folder / _COMMAND, "a") as lines:
                lines.write(f"{now}  {shlex.join(command)}\n")
            write(folder / CONFIG, gin.config_str())
        except OSError as error:
            raise RunFolderError(
                f"The run folder {folder} cannot be written: {error.strerror or error}. "
                "Give a folder that can be with --root_dir=DIR."
            ) from error
        try:
            yield folder
        except BaseException:
            logs = folder.glob("statistics/*.tfrecord")
            collected = any(folder.glob("checkpoints/*")) or any(log.stat().st_size for log in logs)
            if new and not collected:
                _remove(folder, made)
            raise


def set_aside(root_dir: str | os.PathLike) -> pathlib.Path | None:
    """Gives a run's folder the first name of its own with a number that is free; returns it, None without a folder.

    Raises:
      RunFolderError: it is no run's folder, or one in use.
    """
    folder = pathlib.Path(root_dir).absolute()
    if not folder.exists():
        return None
    _make(folder)  # for its checks
    with _locked(folder):
        return folder.rename(unused(folder))


def unused(path: pathlib.Path) -> pathlib.Path:
    """The path, or the first with a number behind it that nothing has yet."""
    names = itertools.chain([path], (path.with_name(f"{path.name}.{n}") for n in itertools.count(1)))
    return next(name for name in names if not name.exists())


def write_operative_config(root_dir: str | os.PathLike) -> None:
    """Saves every gin value in use, defaults included. To be called once everything has been constructed."""
    write(pathlib.Path(root_dir) / OPERATIVE, gin.operative_config_str())


def versions() -> str:
    """Returns one line per part: Python, the packages that results depend on, and this clone's commit."""
    lines = [f"format {_FORMAT}", f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for package in PACKAGES:
        try:
            lines.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{package} not installed")
    return "\n".join([*lines, f"commit {_commit()}", ""])


def first_start(root_dir: str | os.PathLike) -> str:
    """The line about the folder's first start: when, and the command. No two runs have the same."""
    with open(pathlib.Path(root_dir) / _COMMAND, errors="replace") as lines:
        return lines.readline()


def recorded_versions(root_dir: str | os.PathLike) -> dict[str, str]:
    """Returns what `versions` said at the folder's last start, name -> version; nothing without the file."""
    path = pathlib.Path(root_dir) / _VERSIONS
    text = path.read_text(errors="replace") if path.exists() else ""
    return dict(re.findall(r"^(\S+) (.+)$", text, re.MULTILINE))


def is_locked(root_dir: str | os.PathLike) -> bool:
    """Says whether a process of this machine works in the folder; does not take the lock from a run that starts now."""
    try:
        inode = (pathlib.Path(root_dir) / _LOCK).stat().st_ino
        locks = pathlib.Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any("FLOCK" in line and f":{inode} " in line and "->" not in line for line in locks)


def _make(folder: pathlib.Path) -> list[pathlib.Path]:
    """Makes the folder; returns what there was not before, the innermost first."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(
            f"{folder} is a file; a run needs a folder. Give another one with --root_dir=DIR."
        )
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    foreign = sorted({entry.name for entry in folder.iterdir()} - _BEFORE_CONFIG)
    if foreign and CONFIG not in foreign:
        shown = ", ".join(foreign[:5]) + (", ..." if len(foreign) > 5 else "")
        raise RunFolderError(
            f"{folder} holds something else than a run: {shown}. "
            "Give a new or empty folder, or that of an earlier run, with --root_dir=DIR."
        )
    return made


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    with open(folder / _LOCK, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samefile(lock.fileno(), folder / _LOCK):
                raise FileNotFoundError
        except (BlockingIOError, FileNotFoundError):  # the latter: its holder has just removed the folder
            lock.seek(0)
            raise RunFolderError(
                f"Another process ({lock.read().strip() or 'starting'}) is working in {folder}. "
                "Wait for it, stop it, or give another folder with --root_dir=DIR."
            ) from None
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
            f"{folder} was written by another version of this program (commit {recorded.get('commit', 'unknown')}), "
            "whose replay and statistics this one cannot read: that version alone can go on with it. To train anew, "
            "give another folder with --root_dir=DIR. Playing, exporting and reporting work as before."
        )
    before, now = _fixed_lines((folder / CONFIG).read_text(errors="replace")), _fixed_lines(gin.config_str())
    if before != now:
        diff = difflib.unified_diff(before, now, f"{folder / CONFIG}", "this command", n=0, lineterm="")
        shown = "\n".join("  " + line for line in diff if not line.startswith("@@"))
        raise RunFolderError(
            f"{folder} belongs to a run with another configuration:\n{shown}\n"
            "Repeat that run's command (its command.txt) to go on with it, only --updates may change; "
            "or give another folder with --root_dir=DIR."
        )


def _fixed_lines(config: str) -> list[str]:
    lines = (line for line in config.splitlines() if line and not line.startswith("#"))
    return [line for line in lines if not line.startswith("train.updates = ")]


def _remove(folder: pathlib.Path, made: Sequence[pathlib.Path]) -> None:
    """Removes a new run's files, which `_make` has found to be alone in there, and the folders made for them."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
    (folder / _LOCK).unlink()  # last: whoever waits for it looks whether it is still there
    with contextlib.suppress(OSError):  # somebody else has begun there
        for path in made:
            path.rmdir()


def _commit() -> str:
    describe = "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty= with changes"
    try:
        git = subprocess.run(("git", "-C", REPOSITORY, *describe), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return git.stdout.strip()


def write(path: str | os.PathLike, text: str) -> None:
    """Replaces a file as a whole: a reader sees the old text or the new one, never half of it."""
    path = pathlib.Path(path)
    new = path.with_name(path.name + _NEW)
    new.write_text(text)
    new.replace(path)
