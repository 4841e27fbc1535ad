"""Many runs, one folder and one process of train.py each, from a file: `train.py --sweep=FILE`.

    config = "minatar"                                           # a flag of train.py
    env = ["minatar/breakout", "minatar/seaquest"]               # a list is an axis of the grid
    seed = [0, 1, 2]
    RecurrentMultiHeadAgent.learning_rate = [2e-4, 6e-4]         # any gin parameter
    gin_bindings = ["RecurrentQNetwork.torso = @networks.small_torso"]   # for all runs alike

Each line gives a name a Python literal; nothing is executed. What has finished, the run folders say. With ranges among
the values (`agents.commands.search`) each trial runs the whole grid, and its value is the mean over it.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import math
import os
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agents.commands import configuration, search
from agents.commands.flags import nearest
from agents.errors import UsageError, local_path
from agents.running import processes
from agents.storage.run_folder import FINISHED, REPOSITORY

Check = Callable[[Sequence[Sequence[str]], Sequence[Path]], list[int]]
FLAGS = ("config", "env", "scaling", "seed", "updates", "strategy", "replay", "collectors")
MOST_RUNS = 10_000
RESOURCES = {"num_cpus": 1, "num_gpus": 0}  # of a run that Ray places
SEARCH: dict[str, tuple[str, Callable[[Any], bool]]] = {  # what each is, in words and as a rule
    "search": (f"one of {', '.join(map(repr, search.SAMPLERS))}", search.SAMPLERS.__contains__),
    "trials": (
        f"a whole number from 1 to {MOST_RUNS:,}",
        lambda value: type(value) is int and 0 < value <= MOST_RUNS,
    ),
    "maximise": (f"one of {', '.join(map(repr, search.OUTCOMES))}", search.OUTCOMES.__contains__),
}


class Sweep(NamedTuple):
    """What a sweep's file says."""

    axes: dict[str, list]  # of the grid
    ranges: dict[str, search.Range]  # that a trial draws from
    bindings: list[str]  # for all runs
    resources: dict[str, float]  # of a run that Ray places
    sampler: str
    trials: int
    maximise: str

    def runs(
        self, root_dir: Path, trial: str = "", drawn: Mapping[str, Any] | None = None
    ) -> dict[Path, list[str]]:
        """The arguments of train.py by run folder below `root_dir`: of the grid, or of a trial and what it has `drawn`.

        Raises:
          UsageError: two runs are the same, there is none, or there are too many.
        """
        axes = self.axes | {name: [value] for name, value in (drawn or {}).items()}
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
            folder = root_dir / _name(settings, axes, trial)
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
    known = (*FLAGS, *RESOURCES, *SEARCH, "gin_bindings")
    for line, name, value in _assignments(file):
        if name not in known and "." not in name:
            raise UsageError(f"{file}, line {line}: a sweep has no {name!r}. {nearest(name, known)}")
        if name in RESOURCES and (type(value) not in (int, float) or not 0 <= value <= 1e6):
            raise UsageError(f"{file}, line {line}: {name} is a number from 0 to 1,000,000.")
        if name in SEARCH and not SEARCH[name][1](value):
            raise UsageError(f"{file}, line {line}: {name} is {SEARCH[name][0]}.")
        said[name] = value
    ranges = {name: value for name, value in said.items() if isinstance(value, search.Range)}
    asked = {name: said.pop(name, None) for name in SEARCH}
    if any((ranges, *asked.values())) and not all((ranges, asked["search"], asked["trials"])):
        raise UsageError(
            f"{file}: a search takes search = 'tpe' or 'random', trials = N, and a range, for example "
            "RecurrentMultiHeadAgent.learning_rate = log_uniform(1e-4, 1e-2); a grid takes none of these."
        )
    resources = {name: said.pop(name, default) for name, default in RESOURCES.items()}
    axes = {n: value if isinstance(value, list) else [value] for n, value in said.items() if n not in ranges}
    bindings = axes.pop("gin_bindings", [])
    maximise = asked["maximise"] or search.OUTCOMES[0]
    return Sweep(axes, ranges, bindings, resources, asked["search"], asked["trials"], maximise)


def _assignments(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Yields line, name, and value or range."""
    line, expected = 1, "expected NAME = VALUE, where VALUE is a number, a string or a list of these."
    try:
        for statement in ast.parse(file.read_text()).body:
            line = statement.lineno
            if not isinstance(statement, ast.Assign):
                raise ValueError
            (target,) = statement.targets
            call = isinstance(statement.value, ast.Call)
            value = (search.Range.parse if call else ast.literal_eval)(statement.value)  # type: ignore[arg-type]
            if not isinstance(target, ast.Name | ast.Attribute):
                raise ValueError
            yield line, ast.unparse(target), value
    except search.RangeError as error:
        raise UsageError(f"{file}, line {line}: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{file}: something is nested too deep; {expected}") from error
    except (SyntaxError, TypeError, ValueError) as error:
        raise UsageError(f"{file}, line {getattr(error, 'lineno', None) or line}: {expected}") from error


def _argument(name: str, value: Any) -> str:
    if "." in name:
        return f"--gin_bindings={name} = {configuration.as_gin(value)}"
    # Ray's workers are elsewhere.
    return f"--{name}={os.path.abspath(local_path(value)) if str(value).endswith('.gin') else value}"


def _name(settings: dict[str, Any], axes: dict[str, list], trial: str) -> str:
    """The folder's name: values, in the order of `train.py`'s own names, parameters that vary, and the trial's."""
    first = [name for name in ("config", "env", "scaling") if name in settings]
    parts = [str(settings[name]).removesuffix(".gin") for name in first]
    parts[0] = Path(parts[0]).name
    varying = [name for name in settings if name not in (*first, "seed") and len(axes[name]) > 1]
    parts += [f"{name.split('.')[-1]}_{settings[name]}" for name in varying]
    parts += [trial] if trial else []
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
      check: `commands.train.check_configuration`, for all commands before anything starts.
      train: the command that trains.
      flags: of every run, beside those of the file.

    Returns:
      the exit code: 0 if all runs have finished, 1 if some failed.

    Raises:
      UsageError: something that is asked for cannot be done; no run has started.
      KeyboardInterrupt, SystemExit: SIGINT or SIGTERM; what ran has ended in order.
    """
    sweep = read(file)
    root = Path(root_dir or Path("runs") / file.stem).absolute()
    jobs = (Search if sweep.ranges else Grid)(sweep, root, check)
    failed: dict[str, int] = {}
    commands: dict[Path, list[str]] = {}
    print(f"{jobs.total} runs in {root}, {jobs.done} of them finished before", flush=True)
    tensorboard = [os.path.relpath(Path(sys.prefix, "bin", "tensorboard")), "--logdir", os.path.relpath(root)]
    print(f"To watch them: {shlex.join(tensorboard)}", flush=True)

    def waiting() -> Iterator[Path]:
        for folder, arguments in jobs.waiting():
            commands[folder] = [*train, *arguments, *flags]
            yield folder

    ended = processes.work_through(waiting(), lambda folder: processes.start(commands[folder]))
    if cluster:
        pairs = ((folder, commands[folder]) for folder in waiting())
        ended = processes.work_through_on_ray(pairs, cluster, sweep.resources, queued=not sweep.ranges)
    with contextlib.closing(ended):
        for folder, code in ended:
            jobs.done += 1
            how = f"failed with exit code {code}" if code else "finished"
            print(f"{jobs.done} of {jobs.total}: {folder.name} {how}.", flush=True)
            if code:
                failed[folder.name] = code
            else:
                jobs.finished(folder)
    print(f"{jobs.total - len(failed)} of {jobs.total} runs have finished, {len(failed)} failed.")
    for name, code in failed.items():
        print(f"  {name}: exit code {code}")
    print(jobs.words, end="")
    report = [os.path.relpath(sys.executable), "-m", "agents", "report", os.path.relpath(root)]
    print(f"To compare them: {shlex.join(report)}")
    return 1 if failed else 0


class Grid:
    """The runs of a grid, all known before the first one begins."""

    words = ""  # what has come of it, beside the runs

    def __init__(self, sweep: Sweep, root: Path, check: Check):
        runs = sweep.runs(root)
        updates = zip(runs, check(list(runs.values()), list(runs)), strict=True)
        self._left = {folder: runs[folder] for folder, asked in updates if not finished(folder, asked)}
        self.total, self.done = len(runs), len(runs) - len(self._left)

    def waiting(self) -> Iterator[tuple[Path, list[str]]]:
        """Yields folder and arguments of each run that has not finished, when there is room for it."""
        yield from self._left.items()

    def finished(self, folder: Path) -> None:
        """Notes that a run has come to its own end."""


class Search(Grid):
    """The runs of a search, each trial's drawn when there is room for it.

    A trial is over when all of its runs have finished; one that has a failed run is tried again at the next start.
    """

    def __init__(self, sweep: Sweep, root: Path, check: Check):
        search.optuna()  # before TensorFlow is imported
        self._sweep, self._root, self._check = sweep, root, check
        self._left_of: dict[int, set[Path]] = {}
        self._trial: dict[Path, int] = {}
        ends = [sweep.runs(root, "ends", drawn) for drawn in search.ends(sweep.ranges)]
        check([each for runs in ends for each in runs.values()], [each for runs in ends for each in runs])
        if configuration.training_parameter("final_eval_rounds") == 0:  # of the last one that was checked
            raise UsageError("A search goes by evaluations: train.final_eval_rounds has to be at least 1.")
        fixed = sweep.axes | {"gin_bindings": sweep.bindings, "maximise": sweep.maximise}
        self._study = search.Study(root, sweep.ranges, sweep.sampler, fixed)
        self.total, self.done = sweep.trials * len(ends[0]), len(list(root.glob(f"*/{FINISHED}")))

    def waiting(self) -> Iterator[tuple[Path, list[str]]]:
        for number, drawn in self._study.draw(self._sweep.trials):
            runs = self._sweep.runs(self._root, f"trial{number:03}", drawn)
            self._left_of[number] = set(runs)
            self._trial |= dict.fromkeys(runs, number)
            updates = self._check(list(runs.values()), list(runs))
            for (folder, arguments), asked in zip(runs.items(), updates, strict=True):
                if finished(folder, asked):
                    self.finished(folder)
                else:
                    yield folder, arguments

    def finished(self, folder: Path) -> None:
        number = self._trial[folder]
        self._left_of[number].remove(folder)
        if not self._left_of[number]:
            folders = [each for each, trial in self._trial.items() if trial == number]
            value = statistics.fmean(search.outcome(each, self._sweep.maximise) for each in folders)
            self._study.tell(number, value)
            print(f"Trial {number}: {self._sweep.maximise} {value:.6g}.", flush=True)

    @property
    def words(self) -> str:  # type: ignore[override]
        if (best := self._study.best) is None:
            return ""
        number, value, drawn = best
        lines = [f"  {name} = {configuration.as_gin(each)}" for name, each in drawn.items()]
        return "\n".join([f"Best: trial {number}, {self._sweep.maximise} {value:.6g}, with", *lines, ""])


def finished(folder: Path, updates: int) -> bool:
    """Says whether a run of so many updates has come to its own end, its last evaluation included."""
    try:
        return json.loads((folder / FINISHED).read_text())["updates"] >= updates
    except (OSError, ValueError, KeyError, TypeError):
        return False
