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
import errno
import fcntl
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import shlex
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import BinaryIO

import gin

from agents.errors import RunFolderError, local_path

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "ale-py", "gymnasium", "numpy", "gin-config", "rbs-tf")

CONFIG, OPERATIVE, _COMMAND = "config.gin", "operative_config.gin", "command.txt"
NATIVE = "native.log"  # made once the configuration is there
BEST = "best.npz"
_FORMAT = "4"  # of what a run goes on with: replay, statistics, checkpoints
OF_ANOTHER = f"does not fit {CONFIG}, which was edited, or comes from a different version of this program"
FINISHED = "finished.json"  # of a run that has come to its own end, not to a signal's
PROCESSES = "processes.txt"
_VERSIONS, _LOCK, _NEW = "versions.txt", "lock", ".new"
_FILES = (
    _LOCK,
    CONFIG,
    OPERATIVE,
    _COMMAND,
    _VERSIONS,
    PROCESSES,
    BEST,
    NATIVE,
    FINISHED,
    "train/episodes.csv",
    "eval/episodes.csv",
    "events.out.tfevents.run",  # TensorBoard's
)
_FOLDERS = ("train", "eval", "wandb", "statistics", "checkpoints")
_LOGS = ("tensorboard.new", "*.tfevents.*", "*/*.tfevents.*", "statistics/*-*.tfrecord", "wandb/**/*")
_RENAME = "Give it another name, or another folder with --root_dir=DIR."
# A start that was killed before it wrote the configuration leaves no more than these behind, and they begin so.
_BEFORE_CONFIG = {_LOCK: r"process \d+ on ", _COMMAND: r"\d{4}-\d\d-\d\dT\S+  ", _VERSIONS: "format "}
_BEFORE_CONFIG |= {CONFIG + _NEW: "", _VERSIONS + _NEW: ""}


@contextlib.contextmanager
def opened(root_dir: str | os.PathLike, command: Sequence[str]) -> Iterator[pathlib.Path]:
    """Locks `root_dir`, checks it against the parsed gin configuration and records this start in it.

    The configuration of a folder is fixed by its first start, except for `train.updates`: a run may go on
    for longer. The lock is the kernel's (`flock`), so it is gone when the process is, however it died.
    Whatever fails before something has been collected takes what this start has made with it, and nothing else.

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
        with _explained(folder):
            made = _make(folder)
            there = stack.enter_context(_locked(folder))
        started = False
        try:
            with _explained(folder):
                check_goes_on(folder)
                write(folder / _VERSIONS, versions())
                now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
                with open(folder / _COMMAND, "a", opener=own_file) as lines:
                    lines.write(f"{now}  {shlex.join(command)}\n")
                write(folder / CONFIG, gin.config_str())
            started = True
            yield folder
        except BaseException:
            logs = folder.glob("statistics/*.tfrecord")
            collected = any(folder.glob("checkpoints/*")) or any(log.stat().st_size for log in logs)
            if not started or (CONFIG not in there and not collected):
                _remove(folder, there, made)
            raise


def set_aside(root_dir: str | os.PathLike) -> pathlib.Path | None:
    """Gives a run's folder the first name of its own with a number that is free; returns it, None without a folder.

    Raises:
      RunFolderError: it is no run's folder, or one in use.
    """
    folder = pathlib.Path(root_dir).absolute()
    with _explained(folder):
        if not folder.exists():
            return None
        _make(folder)  # for its checks
        with _locked(folder):
            return folder.rename(unused(folder))


def unused(path: pathlib.Path) -> pathlib.Path:
    """The path, or the first with a number behind it that nothing has yet."""
    return next(name for name in numbered(path) if not os.path.lexists(name))


def numbered(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The path, then the same with 1, 2, ... behind it."""
    yield path
    yield from (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))


def regular(path: pathlib.Path) -> pathlib.Path:
    """Returns the path, of a file or of nothing: whoever opens a pipe waits for ever.

    Raises:
      OSError: something else is there.
    """
    with contextlib.suppress(FileNotFoundError):
        if (what := _kind(os.stat(path).st_mode)) != "a file":
            raise OSError(errno.EINVAL, f"it is {what}, not a file", str(path))
    return path


def own_file(path: str, flags: int) -> int:
    """An opener that follows no link and waits for no pipe's other end."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def checkpoints(root_dir: str | os.PathLike, suffix: str = "") -> list[pathlib.Path]:
    """The checkpoints of a run, the newest first, or those with a suffix: folders that have a part of one."""
    pattern = re.compile(rf"\d+{re.escape(suffix)}" + (r"(\.\d+)?" if suffix else ""))
    parts = ("manifest.json", "extra.json", "variables.index")
    ours = []
    for path in pathlib.Path(root_dir, "checkpoints").glob("*"):
        is_one = any(os.path.lexists(path / part) for part in parts) and not path.is_symlink()
        if is_one and pattern.fullmatch(path.name):
            ours.append(path)
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
    return "\n".join([*lines, f"commit {_commit()}", ""])


def first_start(root_dir: str | os.PathLike) -> str:
    """The line about the folder's first start: when, and the command. No two runs have the same."""
    with open(regular(pathlib.Path(root_dir) / _COMMAND), errors="replace") as lines:
        return lines.readline()


def starts(root_dir: str | os.PathLike) -> list[float]:
    """When the folder's starts were, in their order: seconds since 1970. A clock may have been set back in between."""
    path = pathlib.Path(root_dir) / _COMMAND
    text = path.read_text(errors="replace") if path.is_file() else ""
    said = re.findall(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*)  ", text, re.MULTILINE)
    return [datetime.datetime.fromisoformat(each).timestamp() for each in said]


def recorded_versions(root_dir: str | os.PathLike) -> dict[str, str]:
    """Returns what `versions` said at the folder's last start, name -> version; nothing without the file."""
    path = pathlib.Path(root_dir) / _VERSIONS
    text = path.read_text(errors="replace") if path.is_file() else ""
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
            f"{folder} is {_kind(folder.stat().st_mode)}; a run needs a folder. Give another one with --root_dir=DIR."
        )
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        _remove_empty(made)
        raise
    foreign = sorted({entry.name for entry in folder.iterdir()} - _of_a_killed_start(folder))
    if foreign and CONFIG not in foreign:
        shown = ", ".join(foreign[:5]) + (", ..." if len(foreign) > 5 else "")
        raise RunFolderError(
            f"{folder} holds something else than a run: {shown}. "
            "Give a new or empty folder, or that of an earlier run, with --root_dir=DIR."
        )
    return made


def _of_a_killed_start(folder: pathlib.Path) -> set[str]:
    """The names of what a start has left behind that was killed before it wrote the configuration."""
    found = set()
    for name, begins in _BEFORE_CONFIG.items():
        with contextlib.suppress(OSError), open(folder / name, errors="replace", opener=own_file) as file:
            is_file = _kind(os.fstat(file.fileno()).st_mode) == "a file"
            if is_file and (re.match(begins, file.read(100)) or (name == _LOCK and is_locked(folder))):
                found.add(name)
    return found if _LOCK in found else set()


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[set[str]]:
    """Holds the folder's lock; yields the names of what was in the folder before."""
    path = folder / _LOCK
    _check_names(folder, [_LOCK])
    made, said = not os.path.lexists(path), ""
    with contextlib.ExitStack() as stack:
        try:
            mode = "x+" if made else "r+"
            lock = stack.enter_context(open(path, mode, errors="replace", opener=own_file))
            said = lock.read(1000)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samefile(lock.fileno(), path):
                raise FileNotFoundError
        # The latter two: somebody has just made it, or removed the folder.
        except (BlockingIOError, FileExistsError, FileNotFoundError):
            raise RunFolderError(
                f"Another process ({said.strip() or 'starting'}) is working in {folder}. "
                "Wait for it, stop it, or give another folder with --root_dir=DIR."
            ) from None
        if said and not re.match(_BEFORE_CONFIG[_LOCK], said):
            raise RunFolderError(f"{path} is not this program's lock. {_RENAME}")
        try:
            lock.seek(0)
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {platform.node()}\n")
            lock.flush()
        except OSError:
            if made:
                path.unlink()
            raise
        yield {entry.name for entry in folder.iterdir()} - ({_LOCK} if made else set())


def _check_names(folder: pathlib.Path, names: Sequence[str] = (*_FOLDERS, *_FILES)) -> None:
    """Raises RunFolderError if something else stands where a run has a file or a folder: it is not written to."""
    for name in names:
        expected = "a folder" if name in _FOLDERS else "a file"
        if not os.path.lexists(folder / name):
            continue
        try:
            # A link to a folder may be the way to another disk; through one to a file, that file would change.
            found = _kind(os.stat(folder / name, follow_symlinks=name in _FOLDERS).st_mode)
        except OSError:
            found = "a link to nothing"
        if found != expected:
            raise RunFolderError(
                f"{folder / name} is {found}, and a run has {expected} of that name. {_RENAME}"
            )


def _kind(mode: int) -> str:
    """What a path leads to, in words."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


@contextlib.contextmanager
def _explained(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = f"The run folder {folder} cannot be written: {error.strerror or error}."
        raise RunFolderError(f"{why} Give another one with --root_dir=DIR.") from error


def check_goes_on(folder: pathlib.Path) -> None:
    """Checks that a run with the parsed gin configuration may go on in a folder, which need not exist.

    Raises:
      RunFolderError: it is of another format or configuration, or something else has the name of one of its files.
    """
    _check_names(folder)
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


def _remove(folder: pathlib.Path, there: Set[str], made: Sequence[pathlib.Path]) -> None:
    """Removes a start's files and folders, but for what was `there` before, and the folders `made` for them."""
    # The lock last: whoever waits for it looks whether it is still there.
    for pattern in (*_LOGS, *_FILES[1:], _LOCK):
        for path in folder.glob(pattern):
            if path.relative_to(folder).parts[0] not in there and not path.is_dir():
                path.unlink()
    own = (folder / name for name in (*_FOLDERS, "replay") if name not in there)
    inside = (pathlib.Path(path) for top in own for path, *_ in os.walk(top, topdown=False))
    _remove_empty([*inside, *made])


def _remove_empty(folders: Iterable[pathlib.Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):  # something of somebody else's is in it
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
