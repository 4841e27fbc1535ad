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
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import gin

from agents.errors import RunFolderError, local_path, writing

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "ale-py", "gymnasium", "numpy", "gin-config", "rbs-tf")

CONFIG, OPERATIVE, _COMMAND = "config.gin", "operative_config.gin", "command.txt"
NATIVE = "native.log"
BEST = "best.npz"
_FORMAT = "5"  # of what a run goes on with: replay, statistics, checkpoints
OF_ANOTHER = f"does not fit {CONFIG}, which was edited, or comes from a different version of this program"
FINISHED = "finished.json"  # of a run that has come to its own end, not to a signal's
PROCESSES = "processes.txt"
_VERSIONS, _LOCK, _NEW = "versions.txt", "lock", ".new"
# What a start writes before the configuration, and with that all that it writes before something is collected.
_BEFORE_CONFIG = {_LOCK, _COMMAND, _VERSIONS, _VERSIONS + _NEW, CONFIG + _NEW}
_AT_START = (
    f"{_COMMAND} {_VERSIONS} {_VERSIONS}{_NEW} {CONFIG} {CONFIG}{_NEW} {OPERATIVE} {PROCESSES} {NATIVE} "
    "train/episodes.csv eval/episodes.csv tensorboard.new *.tfevents.* */*.tfevents.* statistics/*-*.tfrecord "
    f"wandb/**/* {_LOCK}"  # the lock last: a process that waits for it looks whether it is still there
).split()


@contextlib.contextmanager
def opened(root_dir: str | os.PathLike, command: Sequence[str]) -> Iterator[pathlib.Path]:
    """Locks `root_dir`, checks it against the parsed gin configuration and records this start in it.

    The configuration of a folder is fixed by its first start, except for `train.updates`: a run may go on
    for longer. The lock is the kernel's (`flock`), so it is gone when the process is, however it died.
    A first start that fails before something has been collected takes its files with it.

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
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with contextlib.ExitStack() as stack:
        try:
            with writing(folder):
                _check_is_run(folder)
                folder.mkdir(parents=True, exist_ok=True)
                first = not (folder / CONFIG).exists()
                stack.enter_context(_locked(folder))
        except BaseException:
            _remove_empty(made)
            raise
        try:
            with writing(folder):
                check_goes_on(folder)
                write(folder / _VERSIONS, versions())
                now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
                with open(folder / _COMMAND, "a") as lines:
                    lines.write(f"{now}  {shlex.join(command)}\n")
                write(folder / CONFIG, gin.config_str())
            yield folder
        except BaseException:
            logs = folder.glob("statistics/*.tfrecord")
            collected = any(folder.glob("checkpoints/*")) or any(log.stat().st_size for log in logs)
            if first and not collected:
                _remove_start(folder)
                _remove_empty(made)
            raise


def set_aside(root_dir: str | os.PathLike) -> pathlib.Path | None:
    """Renames a run's folder to the first free NAME.N; returns it, None without a folder.

    Raises:
      RunFolderError: it is no run's folder, or one in use.
    """
    folder = pathlib.Path(root_dir).absolute()
    if not folder.exists():
        return None
    with writing(folder):
        _check_is_run(folder)
        with _locked(folder):
            return folder.rename(unused(folder))


def unused(path: pathlib.Path) -> pathlib.Path:
    """The path, or the first with a number behind it that nothing has yet."""
    names = itertools.chain([path], (path.with_name(f"{path.name}.{n}") for n in itertools.count(1)))
    return next(name for name in names if not os.path.lexists(name))


def checkpoints(root_dir: str | os.PathLike, suffix: str = "") -> list[pathlib.Path]:
    """The checkpoints of a run, the newest first, or those with a suffix: folders that have a part of one."""
    pattern = re.compile(rf"\d+{re.escape(suffix)}" + (r"(\.\d+)?" if suffix else ""))
    parts = ("manifest.json", "extra.json", "variables.index")
    ours = [
        path
        for path in pathlib.Path(root_dir, "checkpoints").glob("*")
        if pattern.fullmatch(path.name) and any((path / part).exists() for part in parts)
    ]
    return sorted(ours, key=lambda path: (int(path.name.split(".")[0]), len(path.name)), reverse=True)


def acting_head(root_dir: str | os.PathLike) -> str | None:
    """The head that played the last evaluation of a run that has finished; in many processes no checkpoint has it."""
    try:
        return str(json.loads(pathlib.Path(root_dir, FINISHED).read_text())["head"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def newest_step(root_dir: str | os.PathLike) -> int:
    """Update of the newest checkpoint, 0 without any."""
    return max((int(path.name) for path in checkpoints(root_dir)), default=0)


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
    describe = "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty= with changes"
    try:
        git = subprocess.run(("git", "-C", REPOSITORY, *describe), capture_output=True, text=True, check=True)
        commit = git.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return "\n".join([*lines, f"commit {commit}", ""])


def first_start(root_dir: str | os.PathLike) -> str:
    """The line about the folder's first start: when, and the command. No two runs have the same."""
    return _text(root_dir, _COMMAND).partition("\n")[0]


def starts(root_dir: str | os.PathLike) -> list[float]:
    """When the folder's starts were, in their order: seconds since 1970. A clock may have been set back in between."""
    said = re.findall(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*)  ", _text(root_dir, _COMMAND), re.MULTILINE)
    return [datetime.datetime.fromisoformat(each).timestamp() for each in said]


def recorded_versions(root_dir: str | os.PathLike) -> dict[str, str]:
    """Returns what `versions` said at the folder's last start, name -> version; nothing without the file."""
    return dict(re.findall(r"^(\S+) (.+)$", _text(root_dir, _VERSIONS), re.MULTILINE))


def _text(root_dir: str | os.PathLike, name: str) -> str:
    """What a file of the folder says; nothing without it."""
    path = pathlib.Path(root_dir, name)
    return path.read_text(errors="replace") if path.is_file() else ""


def is_locked(root_dir: str | os.PathLike) -> bool:
    """Says whether a process of this machine works in the folder; does not take the lock from a run that starts now."""
    try:
        inode = (pathlib.Path(root_dir) / _LOCK).stat().st_ino
        locks = pathlib.Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any("FLOCK" in line and f":{inode} " in line and "->" not in line for line in locks)


def _check_is_run(folder: pathlib.Path) -> None:
    """Raises RunFolderError for what is neither a run's folder, nor an empty one, nor none at all."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(
            f"{folder} is a file; a run needs a folder. Give another one with --root_dir=DIR."
        )
    found = {path.name for path in folder.glob("*")}
    # A start that was killed, or has yet to write the configuration, has made a lock, and said in it which process.
    begun = _LOCK in found <= _BEFORE_CONFIG and re.match(r"process \d+ on |\Z", _text(folder, _LOCK))
    if found and CONFIG not in found and not begun:
        few = ", ".join(sorted(found)[:5]) + (", ..." if len(found) > 5 else "")
        raise RunFolderError(
            f"{folder} holds something else than a run: {few}. "
            "Give a new or empty folder, or that of an earlier run, with --root_dir=DIR."
        )


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds the folder's lock, which says which process has it."""
    with open(folder / _LOCK, "a+", errors="replace") as lock:
        lock.seek(0)
        said = lock.read(1000)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samefile(lock.fileno(), folder / _LOCK):
                raise FileNotFoundError
        except (BlockingIOError, FileNotFoundError):  # the latter: a start that failed has just removed it
            raise RunFolderError(
                f"Another process ({said.strip() or 'starting'}) is working in {folder}. "
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
            f"{folder / CONFIG} was written by another version of this program (commit "
            f"{recorded.get('commit', 'unknown')}): only that one can go on with it. Give another folder with "
            "--root_dir=DIR. Playing, exporting and reporting work as before."
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


def _remove_start(folder: pathlib.Path) -> None:
    """Removes the files of a first start, and the folders that were theirs only."""
    for pattern in _AT_START:
        for path in folder.glob(pattern):
            if not path.is_dir():
                path.unlink()
    _remove_empty([pathlib.Path(path) for path, *_ in os.walk(folder, topdown=False)][:-1])


def _remove_empty(folders: Sequence[pathlib.Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):  # something of somebody else's is in it
            path.rmdir()


def write(path: str | os.PathLike, text: str) -> None:
    """Replaces a file as a whole: a reader sees the old text or the new one, never half of it."""
    path = pathlib.Path(path)
    with replacing(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a new file beside the path that takes its place in the end, or is gone if there was an error."""
    new = unused(path.with_name(path.name + _NEW))
    with open(new, "xb") as file:
        try:
            yield file
            file.flush()
            new.replace(path)
        except BaseException:
            new.unlink()
            raise
