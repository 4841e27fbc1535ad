"""A grid of runs: games x scalings x seeds, one folder and one process of train.py each; `train.py --sweep=FILE`.

    config = "minatar"                                           # a flag of train.py
    env = ["minatar/breakout", "minatar/seaquest"]               # a list is an axis of the grid
    seed = [0, 1, 2]
    RecurrentMultiHeadAgent.learning_rate = [2e-4, 6e-4]         # any gin parameter
    gin_bindings = ["RecurrentQNetwork.torso = @networks.small_torso"]   # for all runs alike

Each line gives a name a Python literal; nothing is executed. What has finished, the run folders say.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agents.commands.flags import nearest
from agents.errors import UsageError, local_path
from agents.running import processes
from agents.storage.run_folder import FINISHED, REPOSITORY

FLAGS = ("config", "env", "scaling", "seed", "updates", "strategy", "replay", "collectors")
RESOURCES = {"num_cpus": 1, "num_gpus": 0}  # of a run that Ray places


def read(file: Path, root_dir: Path) -> tuple[dict[Path, list[str]], dict[str, float]]:
    """Reads a sweep's file: the arguments of train.py by run folder, and what Ray sets aside for each run.

    Raises:
      UsageError: it is no such file, names what there is not, or has the same run twice.
    """
    axes: dict[str, list] = {"config": ["quickstart"]}
    known = (*FLAGS, *RESOURCES, "gin_bindings")
    for line, name, value in _assignments(file):
        if name not in known and "." not in name:
            raise UsageError(f"{file}, line {line}: a sweep has no {name!r}. {nearest(name, known)}")
        if name in RESOURCES and not isinstance(value, int | float):
            raise UsageError(f"{file}, line {line}: {name} is a number.")
        axes[name] = value if isinstance(value, list) else [value]
    resources = {name: axes.pop(name, [default])[0] for name, default in RESOURCES.items()}
    bindings = [f"--gin_bindings={text}" for text in axes.pop("gin_bindings", [])]
    runs = {}
    # Seeds change slowest: when a third has run, everything has run once.
    names = sorted(axes, key=lambda name: name != "seed")
    for values in itertools.product(*(axes[name] for name in names)):
        settings = dict(zip(names, values, strict=True))
        folder = root_dir / _name(settings, axes)
        if folder in runs:
            raise UsageError(f"{file} has the same run more than once: {folder.name}.")
        flags = [_argument(*setting) for setting in settings.items()]
        runs[folder] = [*flags, *bindings, f"--root_dir={folder}"]
    if not runs:
        raise UsageError(f"{file} asks for no run: a list in it is empty.")
    return runs, resources


def _assignments(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Yields line, name and value."""
    line = 1
    try:
        for statement in ast.parse(file.read_text()).body:
            line = statement.lineno
            if not isinstance(statement, ast.Assign):
                raise ValueError
            (target,) = statement.targets
            yield line, ast.unparse(target), ast.literal_eval(statement.value)
    except (SyntaxError, TypeError, ValueError) as error:
        wanted = "expected NAME = VALUE, where VALUE is a number, a string or a list of these."
        raise UsageError(f"{file}, line {getattr(error, 'lineno', None) or line}: {wanted}") from error


def _argument(name: str, value: Any) -> str:
    if "." in name:
        return f"--gin_bindings={name} = {value!r}"
    # Ray's workers are elsewhere.
    return f"--{name}={os.path.abspath(local_path(value)) if str(value).endswith('.gin') else value}"


def _name(settings: dict[str, Any], axes: dict[str, list]) -> str:
    """The folder's name: values, in the order of `train.py`'s own names, and parameters that vary."""
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
    check: Callable[[Sequence[Sequence[str]], Sequence[Path]], list[int]],
    train: Sequence[str] = (sys.executable, str(REPOSITORY / "train.py")),
    flags: Sequence[str] = (),
) -> int:
    """Works through a sweep: what has finished is left out, what has not goes on.

    Args:
      file: the grid.
      root_dir: parent of the runs' folders; None: runs/ and the file's name.
      cluster: address of a Ray cluster that runs as many at a time as it has room for; None: one at a time, here.
      check: looks at all commands and their folders before anything starts, see `commands.train.check_configuration`.
      train: the command that trains.
      flags: of every run, beside those of the file.

    Returns:
      the exit code: 0 if all runs have finished, 1 if some failed.

    Raises:
      UsageError: something that is asked for cannot be done; no run has started.
      KeyboardInterrupt, SystemExit: SIGINT or SIGTERM; what ran has ended in order.
    """
    root = Path(root_dir or Path("runs") / file.stem).absolute()
    runs, resources = read(file, root)
    updates = dict(zip(runs, check(list(runs.values()), list(runs)), strict=True))
    waiting = {
        folder: [*train, *runs[folder], *flags] for folder in runs if not finished(folder, updates[folder])
    }
    done, failed = len(runs) - len(waiting), {}
    print(f"{len(runs)} runs in {root}, {done} of them finished before", flush=True)
    tensorboard = [os.path.relpath(Path(sys.prefix, "bin", "tensorboard")), "--logdir", os.path.relpath(root)]
    print(f"To watch them: {shlex.join(tensorboard)}", flush=True)
    ended = processes.work_through(waiting, lambda folder: processes.start(waiting[folder]))
    if cluster:
        ended = processes.work_through_on_ray(waiting, cluster, resources)
    with contextlib.closing(ended):
        for number, (folder, code) in enumerate(ended, 1):
            if code:
                failed[folder.name] = code
            how = f"failed with exit code {code}" if code else "finished"
            print(f"{done + number} of {len(runs)}: {folder.name} {how}.", flush=True)
    print(f"{len(runs) - len(failed)} of {len(runs)} runs have finished, {len(failed)} failed.")
    for name, code in failed.items():
        print(f"  {name}: exit code {code}")
    report = [os.path.relpath(sys.executable), "-m", "agents", "report", os.path.relpath(root)]
    print(f"To compare them: {shlex.join(report)}")
    return 1 if failed else 0


def finished(folder: Path, updates: int) -> bool:
    """Says whether a run of so many updates has come to its own end, its last evaluation included."""
    try:
        return json.loads((folder / FINISHED).read_text())["updates"] >= updates
    except (OSError, ValueError, KeyError, TypeError):
        return False
