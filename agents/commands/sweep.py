"""Many runs, one folder and one process of train.py each, from a file: `train.py --sweep=FILE`.

    config = "minatar"                                           # a flag of train.py
    env = ["minatar/breakout", "minatar/seaquest"]               # a list is an axis of the grid
    seed = [0, 1, 2]
    RecurrentMultiHeadAgent.learning_rate = [2e-4, 6e-4]         # any gin parameter
    gin_bindings = ["RecurrentQNetwork.torso = @networks.small_torso"]   # for all runs alike

    at_a_time = 2                     # each on a core of its own; one at a time may use all cores

Values are Python literals; nothing is executed. The run folders say which runs have finished, and which are in work on
another machine that shares them.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agents import configuration
from agents.errors import UsageError, local_path, suggest
from agents.running import processes
from agents.storage.run_folder import REPOSITORY, is_finished, is_locked

Check = Callable[[Sequence[Sequence[str]], Sequence[Path]], list[int]]
FLAGS = ("config", "env", "scaling", "seed", "updates", "strategy", "replay", "collectors")


class Sweep(NamedTuple):
    """What a sweep's file says."""

    axes: dict[str, list]  # of the grid
    bindings: list[str]  # for all runs
    at_a_time: int  # how many run side by side

    def runs(self, root_dir: Path) -> dict[Path, list[str]]:
        """The arguments of train.py by run folder below `root_dir`.

        Raises:
          UsageError: two runs are the same, or there is none.
        """
        axes = self.axes
        runs = {}
        # Seeds change slowest: when a third has run, everything has run once.
        names = sorted(axes, key=lambda name: name != "seed")
        for values in itertools.product(*(axes[name] for name in names)):
            settings = dict(zip(names, values, strict=True))
            folder = root_dir / _name_folder(settings, axes)
            if folder in runs:
                raise UsageError(f"The sweep has the same run more than once: {folder.name}.")
            flags = []
            for name, value in settings.items():
                if "." in name:
                    flags.append(f"--gin_bindings={name} = {configuration.format_gin(value)}")
                else:
                    is_file = str(value).endswith(".gin")
                    flags.append(f"--{name}={os.path.abspath(local_path(value)) if is_file else value}")
            bindings = [f"--gin_bindings={text}" for text in self.bindings]
            runs[folder] = [*flags, *bindings, f"--root_dir={folder}"]
        if not runs:
            raise UsageError("The sweep asks for no run: a list in it is empty.")
        return runs


def read_sweep(file: Path) -> Sweep:
    """Reads a sweep's file.

    Raises:
      UsageError: it is no such file, names what there is not, or sets a name twice.
    """
    said: dict[str, Any] = {}
    known = (*FLAGS, "at_a_time", "gin_bindings")
    for line, name, value in _read_assignments(file):
        if name not in known and "." not in name:
            raise UsageError(f"{file}, line {line}: a sweep has no {name!r}. {suggest(name, known)}")
        if name in said:
            raise UsageError(
                f"{file}, line {line}: {name} is set before; write all its values into one list."
            )
        if name == "at_a_time" and (type(value) is not int or value < 1):
            raise UsageError(f"{file}, line {line}: at_a_time is a whole number of at least 1.")
        said[name] = value
    said = {"config": "quickstart"} | said
    at_a_time = said.pop("at_a_time", 1)
    axes = {name: value if isinstance(value, list) else [value] for name, value in said.items()}
    return Sweep(axes, axes.pop("gin_bindings", []), at_a_time)


def _read_assignments(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Yields line, name and value."""
    line = 1
    try:
        for statement in ast.parse(file.read_text()).body:
            line = statement.lineno
            match statement:
                case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                    yield line, ast.unparse(target), ast.literal_eval(value)
                case _:
                    raise ValueError
    except (SyntaxError, TypeError, ValueError) as error:
        raise UsageError(
            f"{file}, line {getattr(error, 'lineno', None) or line}: expected NAME = VALUE, where VALUE is a number, a "
            "string or a list of these."
        ) from error


def _name_folder(settings: dict[str, Any], axes: dict[str, list]) -> str:
    """The folder's name: values, in the order of `train.py`'s own names, parameters that vary."""
    first = [name for name in ("config", "env", "scaling") if name in settings]
    parts = [str(settings[name]).removesuffix(".gin") for name in first]
    parts[0] = Path(parts[0]).name
    varying = [name for name in settings if name not in (*first, "seed") and len(axes[name]) > 1]
    parts += [f"{name.split('.')[-1]}_{settings[name]}" for name in varying]
    parts += [f"seed{settings['seed']}"] if "seed" in settings else []
    return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)


def run(
    file: Path,
    root_dir: str | os.PathLike | None,
    check: Check,
    train: Sequence[str] = (sys.executable, str(REPOSITORY / "train.py")),
    flags: Sequence[str] = (),
) -> int:
    """Works through a sweep: what has finished is left out, what has not goes on.

    Args:
      file: the sweep's.
      root_dir: parent of the runs' folders; None: runs/ and the file's name.
      check: what looks for mistakes in all commands before anything starts.
      train: the command that trains.
      flags: of every run, beside those of the file.

    Returns:
      the exit code: 0 if all runs have finished, 1 if some failed.

    Raises:
      UsageError: something that is asked for cannot be done; no run has started.
      KeyboardInterrupt, SystemExit: SIGINT or SIGTERM; what ran has ended in order.
    """
    sweep = read_sweep(file)
    root = Path(root_dir or Path("runs") / file.stem).absolute()
    runs = sweep.runs(root)
    updates = dict(zip(runs, check(list(runs.values()), list(runs)), strict=True))

    def count_done() -> int:
        """Counts the runs that have finished, on other machines, too."""
        return sum(is_finished(folder, asked) for folder, asked in updates.items())

    print(f"{len(runs)} runs in {root}, {count_done()} of them finished before", flush=True)
    tensorboard = [os.path.relpath(Path(sys.prefix, "bin", "tensorboard")), "--logdir", os.path.relpath(root)]
    print(f"To watch them: {shlex.join(tensorboard)}", flush=True)
    cores = sorted(os.sched_getaffinity(0))

    def is_due(folder: Path) -> bool:
        """Whether a run is to be started now; another machine with the same sweep may have it, or have finished it."""
        if locked := is_locked(folder):
            print(f"{folder.name} is in work elsewhere and is left alone.", flush=True)
        return not locked and not is_finished(folder, updates[folder])

    def begin(folder: Path, place: int) -> subprocess.Popen:
        core = cores[place % len(cores)] if sweep.at_a_time > 1 else None
        return processes.start([*train, *runs[folder], *flags], core)

    # Each is looked at when its turn comes.
    ended = processes.work_through(filter(is_due, runs), begin, sweep.at_a_time)
    failed: dict[str, int] = {}
    with contextlib.closing(ended):
        for folder, code in ended:
            how = f"failed with exit code {code}" if code else "finished"
            print(f"{folder.name} {how}; {count_done()} of {len(runs)} have finished.", flush=True)
            if code and not is_locked(folder):  # another machine was quicker
                failed[folder.name] = code
    print(f"{count_done()} of {len(runs)} runs have finished, {len(failed)} failed.")
    for name, code in failed.items():
        print(f"  {name}: exit code {code}")
    report = [os.path.relpath(sys.executable), "-m", "agents", "report", os.path.relpath(root)]
    print(f"To compare them: {shlex.join(report)}", flush=True)
    return 1 if failed else 0
