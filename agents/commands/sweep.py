"""Many runs, one folder and one process of train.py each, from a file: `train.py --sweep=FILE`.

    config = "minatar"                                           # a flag of train.py
    env = ["minatar/breakout", "minatar/seaquest"]               # a list is an axis of the grid
    seed = [0, 1, 2]
    RecurrentMultiHeadAgent.learning_rate = [2e-4, 6e-4]         # any gin parameter
    gin_bindings = ["RecurrentQNetwork.torso = @networks.small_torso"]   # for all runs alike

How the runs are done, all of it optional:

    at_a_time = 2                     # each on a core of its own; one at a time may use all cores
    minutes = 4.5                     # and gigabytes: of one run, for the estimate at the start
    then = "benchmarks.atari57"       # python -m THEN RUN_DIR, once a run has finished
    keep_checkpoints = False          # they and the replay are removed after that
    begin_again = True                # a run that was interrupted starts from nothing
    report = "benchmarks.atari100k"   # python -m REPORT ROOT_DIR, at the end

Values are Python literals; nothing is executed. The run folders say which runs have finished.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agents.commands import configuration
from agents.commands.flags import nearest
from agents.errors import UsageError, local_path
from agents.running import processes
from agents.storage.run_folder import CONFIG, REPOSITORY, finished, is_locked

Check = Callable[[Sequence[Sequence[str]], Sequence[Path]], list[int]]
FLAGS = ("config", "env", "scaling", "seed", "updates", "strategy", "replay", "collectors")
MOST_RUNS = 10_000
RESOURCES = {"num_cpus": 1, "num_gpus": 0}  # of a run that Ray places
# How the runs are done: names and defaults.
HANDLING = {
    "at_a_time": 1,
    "minutes": 0.0,
    "gigabytes": 0.0,
    "then": "",
    "keep_checkpoints": True,
    "begin_again": False,
    "report": "",
}
_DONE = "then.done"  # in the folder of a run for which `then` has succeeded


class Sweep(NamedTuple):
    """What a sweep's file says."""

    axes: dict[str, list]  # of the grid
    bindings: list[str]  # for all runs
    resources: dict[str, float]  # of a run that Ray places
    handling: dict[str, Any]  # see `HANDLING`

    def runs(self, root_dir: Path) -> dict[Path, list[str]]:
        """The arguments of train.py by run folder below `root_dir`.

        Raises:
          UsageError: two runs are the same, there is none, or there are too many.
        """
        axes = self.axes
        if (number := math.prod(map(len, axes.values()))) > MOST_RUNS:
            raise UsageError(
                f"The sweep asks for {number:,} runs: expected at most {MOST_RUNS:,}. Shorten the lists of "
                f"{', '.join(sorted(axes, key=lambda name: -len(axes[name]))[:3])}."
            )
        runs = {}
        # Seeds change slowest: when a third has run, everything has run once.
        names = sorted(axes, key=lambda name: name != "seed")
        for values in itertools.product(*(axes[name] for name in names)):
            settings = dict(zip(names, values, strict=True))
            folder = root_dir / _name(settings, axes)
            if folder in runs:
                raise UsageError(f"The sweep has the same run more than once: {folder.name}.")
            flags = [_argument(*setting) for setting in settings.items()]
            bindings = [f"--gin_bindings={text}" for text in self.bindings]
            runs[folder] = [*flags, *bindings, f"--root_dir={folder}"]
        if not runs:
            raise UsageError("The sweep asks for no run: a list in it is empty.")
        return runs


def read(file: Path) -> Sweep:
    """Reads a sweep's file.

    Raises:
      UsageError: it is no such file, or names what there is not.
    """
    said: dict[str, Any] = {"config": "quickstart"}
    known = (*FLAGS, *RESOURCES, *HANDLING, "gin_bindings")
    for line, name, value in _assignments(file):
        if name not in known and "." not in name:
            raise UsageError(f"{file}, line {line}: a sweep has no {name!r}. {nearest(name, known)}")
        if name in RESOURCES and (type(value) not in (int, float) or not 0 <= value <= 1e6):
            raise UsageError(f"{file}, line {line}: {name} is a number from 0 to 1,000,000.")
        if name in HANDLING and not _fits(value, HANDLING[name]):
            kind = type(HANDLING[name]).__name__
            raise UsageError(
                f"{file}, line {line}: {name} = {value!r}: expected one {kind}, as {HANDLING[name]!r}."
            )
        said[name] = value
    resources = {name: said.pop(name, default) for name, default in RESOURCES.items()}
    handling = {name: said.pop(name, default) for name, default in HANDLING.items()}
    axes = {name: value if isinstance(value, list) else [value] for name, value in said.items()}
    return Sweep(axes, axes.pop("gin_bindings", []), resources, handling)


def _fits(value: Any, default: Any) -> bool:
    """Says whether a value is of the default's kind; numbers are not negative, and an integer is at least 1."""
    if isinstance(default, bool | str):
        return isinstance(value, type(default))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (value >= 0 if isinstance(default, float) else isinstance(value, int) and value >= 1)


def _assignments(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Yields line, name and value."""
    line, expected = 1, "expected NAME = VALUE, where VALUE is a number, a string or a list of these."
    try:
        for statement in ast.parse(file.read_text()).body:
            line = statement.lineno
            if not isinstance(statement, ast.Assign):
                raise ValueError
            (target,) = statement.targets
            if not isinstance(target, ast.Name | ast.Attribute):
                raise ValueError
            yield line, ast.unparse(target), ast.literal_eval(statement.value)
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{file}: something is nested too deep; {expected}") from error
    except (SyntaxError, TypeError, ValueError) as error:
        raise UsageError(f"{file}, line {getattr(error, 'lineno', None) or line}: {expected}") from error


def _argument(name: str, value: Any) -> str:
    if "." in name:
        return f"--gin_bindings={name} = {configuration.as_gin(value)}"
    # Ray's workers are elsewhere.
    return f"--{name}={os.path.abspath(local_path(value)) if str(value).endswith('.gin') else value}"


def _name(settings: dict[str, Any], axes: dict[str, list]) -> str:
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
    root_dir: str | None,
    cluster: str | None,
    check: Check,
    train: Sequence[str] = (sys.executable, str(REPOSITORY / "train.py")),
    flags: Sequence[str] = (),
) -> int:
    """Works through a sweep: what has finished is left out, what has not goes on.

    Args:
      file: the sweep's.
      root_dir: parent of the runs' folders; None: runs/ and the file's name.
      cluster: address of a Ray cluster that runs as many at a time as it has room for; None: one at a time, here.
      check: what looks for mistakes in all commands before anything starts.
      train: the command that trains.
      flags: of every run, beside those of the file.

    Returns:
      the exit code: 0 if all runs have finished, 1 if some failed.

    Raises:
      UsageError: something that is asked for cannot be done; no run has started.
      KeyboardInterrupt, SystemExit: SIGINT or SIGTERM; what ran has ended in order.
    """
    sweep = read(file)
    for name in [sweep.handling[each] for each in ("then", "report") if sweep.handling[each]]:
        found = None
        with contextlib.suppress(ImportError):  # of the package that it is in
            found = importlib.util.find_spec(name)
        if found is None:
            raise UsageError(f"{file}: there is no module {name} for python -m.")
    at_a_time, then, handling = sweep.handling["at_a_time"], sweep.handling["then"], sweep.handling
    root = Path(root_dir or Path("runs") / file.stem).absolute()
    runs = sweep.runs(root)
    updates = zip(runs, check(list(runs.values()), list(runs)), strict=True)
    commands = {
        folder: [*train, *runs[folder], *flags] for folder, asked in updates if not finished(folder, asked)
    }
    before = len(runs) - len(commands)
    print(f"{len(runs)} runs in {root}, {before} of them finished before", flush=True)
    tensorboard = [os.path.relpath(Path(sys.prefix, "bin", "tensorboard")), "--logdir", os.path.relpath(root)]
    print(f"To watch them: {shlex.join(tensorboard)}", flush=True)
    if takes := _takes(len(commands), handling):
        print(takes, flush=True)
    failed: dict[str, int] = {}

    def look_after(folder: Path) -> int:
        """Does with a run that has finished what the file asks for; returns the exit code of `then`."""
        done = folder / _DONE
        if then and not done.exists():
            if code := subprocess.run(
                [sys.executable, "-m", then, str(folder)], cwd=REPOSITORY, check=False
            ).returncode:
                return code
            done.touch()
        if not handling["keep_checkpoints"]:
            for name in ("checkpoints", "replay"):
                shutil.rmtree(folder / name, ignore_errors=True)
        return 0

    def begin(folder: Path, place: int) -> subprocess.Popen:
        if handling["begin_again"] and (folder / CONFIG).exists() and not is_locked(folder):
            shutil.rmtree(folder)
        cores = sorted(os.sched_getaffinity(0))
        return processes.start(commands[folder], cores[place % len(cores)] if at_a_time > 1 else None)

    for folder in runs:
        if folder not in commands and (code := look_after(folder)):
            failed[folder.name] = code
    if cluster:
        ended = processes.work_through_on_ray(commands, cluster, sweep.resources)
    else:
        ended = processes.work_through(commands, begin, at_a_time)
    with contextlib.closing(ended):
        for done, (folder, code) in enumerate(ended, before + 1):
            code = code or look_after(folder)
            how = f"failed with exit code {code}" if code else "finished"
            print(f"{done} of {len(runs)}: {folder.name} {how}.{_room(folder, len(runs) - done)}", flush=True)
            if code:
                failed[folder.name] = code
    print(f"{len(runs) - len(failed)} of {len(runs)} runs have finished, {len(failed)} failed.")
    for name, code in failed.items():
        print(f"  {name}: exit code {code}")
    report = [os.path.relpath(sys.executable), "-m", "agents", "report", os.path.relpath(root)]
    print(f"To compare them: {shlex.join(report)}", flush=True)
    if handling["report"]:
        subprocess.run([sys.executable, "-m", handling["report"], str(root)], cwd=REPOSITORY, check=False)
    return 1 if failed else 0


def _takes(number: int, handling: dict[str, Any]) -> str:
    """How long so many runs take, and how much room, by what the file says of one; empty if it says nothing."""
    hours = number * handling["minutes"] / 60 / handling["at_a_time"]
    words = f"about {hours:.3g} hours, {handling['at_a_time']} at a time" if hours else ""
    size = number * handling["gigabytes"]
    words += f"{', ' if hours and size else ''}{size:.3g} GB" if size else ""
    return f"{number} runs to go: {words}." if words else ""


def _room(folder: Path, left: int) -> str:
    """Says so if the disk has no room for so many more runs as large as this one."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if not size or size * left <= (free := shutil.disk_usage(folder).free):
        return ""
    return (
        f" It takes {size / 1e9:.3g} GB, {left} more as large {size * left / 1e9:.3g} GB, and {free / 1e9:.3g} GB are "
        f"free. Make room: a run that need not train on does without {folder}/checkpoints/*/replay"
    )
