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
import ctypes
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from agents import UsageError
from agents.commands.flags import nearest
from agents.storage.run_folder import FINISHED, REPOSITORY

FLAGS = ("config", "env", "scaling", "seed", "updates", "strategy", "collectors")
RESOURCES = {"num_cpus": 1, "num_gpus": 0}  # of a run that Ray places
_POLL = 0.5  # seconds between two looks for signals
_ANSWER = 30.0  # seconds in which a process of Ray's that has begun answers
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


class Run(NamedTuple):
    """One point of the grid."""

    name: str
    folder: Path
    arguments: list[str]  # of train.py, the folder included


class Sweep(NamedTuple):
    """What a file asks for."""

    runs: list[Run]
    resources: dict[str, float]


def read(file: Path, root_dir: Path) -> Sweep:
    """Reads a sweep's file.

    Raises:
      UsageError: it is no such file, names what there is not, or has the same run twice.
    """
    axes: dict[str, list] = {"config": ["quickstart"]}
    bindings: list[str] = []
    resources = dict(RESOURCES)
    for line, name, value in _assignments(file):
        if name in resources:
            if not isinstance(value, int | float):
                raise UsageError(f"{file}, line {line}: {name} is a number.")
            resources[name] = value
        elif name == "gin_bindings":
            bindings = [value] if isinstance(value, str) else value
            if not isinstance(bindings, list) or not all(isinstance(text, str) for text in bindings):
                raise UsageError(f"{file}, line {line}: gin_bindings is a list of strings.")
        elif name not in FLAGS and "." not in name:
            raise UsageError(
                f"{file}, line {line}: a sweep has no {name!r}. {nearest(name, (*FLAGS, 'gin_bindings', *resources))}"
            )
        elif value == []:
            raise UsageError(f"{file}, line {line}: {name} has no values.")
        else:
            axes[name] = value if isinstance(value, list) else [value]
    # Seeds change slowest: when a third has run, everything has run once.
    slowest_first = sorted(axes, key=lambda name: name != "seed")
    runs = []
    for values in itertools.product(*(axes[name] for name in slowest_first)):
        settings = dict(zip(slowest_first, values, strict=True))
        name = _name({axis: settings[axis] for axis in axes}, axes)
        flags = [_argument(axis, settings[axis]) for axis in axes] + [
            f"--gin_bindings={text}" for text in bindings
        ]
        runs.append(Run(name, root_dir / name, [*flags, f"--root_dir={root_dir / name}"]))
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{file} has the same run more than once: {', '.join(twice[:3])}.")
    return Sweep(runs, resources)


def _assignments(file: Path) -> Iterable[tuple[int, str, Any]]:
    """Yields (line, name, value)."""
    try:
        statements = ast.parse(file.read_text()).body
    except (SyntaxError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UsageError(f"{file}, line {line}: expected lines of the form NAME = VALUE.") from error
    for statement in statements:
        where = f"{file}, line {statement.lineno}"
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise UsageError(f"{where}: expected NAME = VALUE.")
        try:
            value = ast.literal_eval(statement.value)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{where}: expected a number, a string, or a list of these.") from error
        yield statement.lineno, ast.unparse(statement.targets[0]), value


def _argument(name: str, value: Any) -> str:
    if "." in name:
        return f"--gin_bindings={name} = {value!r}"
    if str(value).endswith(".gin"):
        value = os.path.abspath(value)  # Ray's workers are elsewhere
    return f"--{name}={value}"


def _name(settings: dict[str, Any], axes: dict[str, list]) -> str:
    """Of the folder: values, in the order of `train.py`'s own names, and parameters that vary."""
    parts = [
        str(settings[name]).removesuffix(".gin") for name in ("config", "env", "scaling") if name in settings
    ]
    parts[0] = Path(parts[0]).name
    others = [name for name in settings if name not in ("config", "env", "scaling", "seed")]
    parts += [f"{name.split('.')[-1]}_{settings[name]}" for name in others if len(axes[name]) > 1]
    parts += [f"seed{settings['seed']}"] if "seed" in settings else []
    return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)


def run(
    file: Path,
    root_dir: str | None = None,
    cluster: str | None = None,
    check: Callable[[Sequence[Sequence[str]], Sequence[Path]], list[int]] = lambda commands, folders: [],
    train: Sequence[str] | None = None,
) -> int:
    """Works through a sweep: what has finished is left out, what has not goes on.

    Args:
      file: the grid.
      root_dir: parent of the runs' folders; None: runs/ and the file's name.
      cluster: address of a Ray cluster that runs as many at a time as it has room for; None: one at a time, here.
      check: looks at all commands and their folders before anything starts, see `commands.train.check_configuration`.
      train: the command that trains; None: this clone's train.py.

    Returns:
      the exit code: 0 if all runs have finished, 1 if some failed, 128 + the signal that stopped it.

    Raises:
      UsageError: something that is asked for cannot be done; no run has started.
    """
    root = Path(root_dir or Path("runs") / file.stem).absolute()
    sweep = read(file, root)
    updates = check([run.arguments for run in sweep.runs], [run.folder for run in sweep.runs])
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{root} cannot be made: {error.strerror}. Give another folder with --root_dir."
        ) from error
    open_runs = [
        run for run, wanted in zip(sweep.runs, updates, strict=True) if not finished(run.folder, wanted)
    ]
    done = len(sweep.runs) - len(open_runs)
    left_out = f", {done} of them finished before" if done else ""
    print(f"{len(sweep.runs)} runs in {root}{left_out}", flush=True)
    begun = time.monotonic()

    def say_end(run: Run, code: int, ended: int, places: int) -> None:
        left = (time.monotonic() - begun) / ended * (len(open_runs) - ended)
        how = {0: "finished", 130: "stopped", 143: "stopped"}.get(code, f"failed with exit code {code}")
        print(
            f"{done + ended} of {len(sweep.runs)}: {run.name} {how}. "
            f"Left about {timedelta(seconds=round(left))}, {places} at a time.",
            flush=True,
        )

    if cluster is None:
        codes, stopped_by = _one_by_one(open_runs, train, say_end)
    else:
        codes, stopped_by = _on_ray(open_runs, sweep.resources, root, cluster, train, say_end)
    return _closing(sweep.runs, open_runs, codes, stopped_by, root)


def finished(folder: Path, updates: int) -> bool:
    """Whether a run of so many updates has come to its own end, its last evaluation included."""
    try:
        return json.loads((folder / FINISHED).read_text())["updates"] >= updates
    except (OSError, ValueError, KeyError):
        return False


def _closing(
    runs: list[Run], open_runs: list[Run], codes: dict[str, int], stopped_by: int | None, root: Path
) -> int:
    """Says what has become of all runs; returns the exit code."""
    failed = [run for run in open_runs if codes.get(run.name, 0) not in (0, 128 + (stopped_by or 0))]
    complete = len(runs) - len(open_runs) + sum(code == 0 for code in codes.values())
    print(f"{complete} of {len(runs)} runs have finished, {len(failed)} failed. Folder: {root}")
    for run in failed:
        log = root / f"{run.name}.log"
        print(f"  {run.name}: exit code {codes[run.name]}" + (f", see {log}" if log.exists() else ""))
    print(f"To compare them: {os.path.relpath(sys.executable)} -m agents report {os.path.relpath(root)}")
    if stopped_by is not None:
        print("Stopped. The same command goes on with what has not finished.", file=sys.stderr)
        return 128 + stopped_by
    return 1 if failed else 0


class _Signals:
    """Notes SIGINT and SIGTERM; whoever waits has to look."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __enter__(self) -> list[int]:
        def note(number: int, _: Any) -> None:
            self.received.append(number)

        self._previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self.received

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


class _Process:
    """One run of train.py, which gets every signal that is handed on, and SIGTERM when this process is gone."""

    def __init__(self, run: Run, train: Sequence[str] | None, **options: Any):
        command = train or (sys.executable, str(REPOSITORY / "train.py"))
        prctl = ctypes.CDLL(None).prctl

        def before() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray's workers block SIGINT, and it is inherited

        self._process = subprocess.Popen(
            [*command, *run.arguments],
            # In a session of its own: the terminal's Ctrl-C would reach it beside what is handed on.
            start_new_session=True,
            preexec_fn=before,
            **options,
        )

    def wait(self, signals: Sequence[int]) -> int:
        """Returns the exit code, 128 + the signal for one that a signal has killed."""
        handed_on = 0
        while True:
            for number in signals[handed_on:]:
                self._process.send_signal(number)
                handed_on += 1
            try:
                code = self._process.wait(_POLL)
            except subprocess.TimeoutExpired:
                continue
            return code if code >= 0 else 128 - code


def _one_by_one(
    runs: list[Run], train: Sequence[str] | None, say_end: Callable[..., None]
) -> tuple[dict[str, int], int | None]:
    """Returns exit codes by name, and the signal that ended it."""
    codes: dict[str, int] = {}
    with _Signals() as signals:
        for run in runs:
            if signals:
                break
            codes[run.name] = _Process(run, train).wait(signals)
            say_end(run, codes[run.name], len(codes), 1)
    return codes, signals[0] if signals else None


class _Place:
    """The Ray actor: a process that starts one run and waits for it."""

    def __init__(self) -> None:
        self._signals: list[int] = []

    def work(self, run: Run, log: str, train: Sequence[str] | None) -> int:
        """Returns the exit code; what the run says goes to a file."""
        with open(log, "a") as said:
            return _Process(run, train, stdout=said, stderr=subprocess.STDOUT).wait(self._signals)

    def stop(self, number: int) -> None:
        self._signals.append(number)


def _on_ray(
    runs: list[Run],
    resources: dict[str, float],
    root: Path,
    cluster: str,
    train: Sequence[str] | None,
    say_end: Callable[..., None],
) -> tuple[dict[str, int], int | None]:
    """As `_one_by_one`, with as many at a time as there is room for."""
    from agents.running.cluster import connected

    ray = connected(0, cluster)
    there = ray.cluster_resources()
    wanted = {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}
    places = min(
        [int(there.get(kind, 0) / amount) for kind, amount in wanted.items() if amount] or [len(runs)]
    )
    if runs and not places:
        ray.shutdown()
        raise UsageError(f"No machine of the cluster has room for a run with {resources}.")
    codes: dict[str, int] = {}
    waiting, working, handed_on = list(reversed(runs)), {}, 0
    try:
        with _Signals() as signals:
            while working or (waiting and not signals):
                # One actor per run: it goes, with its process, when the run has ended.
                while waiting and len(working) < places and not signals:
                    run = waiting.pop()
                    place = ray.remote(_Place).options(max_concurrency=2, **resources).remote()
                    working[place.work.remote(run, str(root / f"{run.name}.log"), train)] = run, place
                for number in signals[handed_on:]:
                    _hand_on(ray, number, working)
                    handed_on += 1
                for task in ray.wait(list(working), timeout=_POLL)[0] if working else ():
                    run, place = working.pop(task)
                    try:
                        codes[run.name] = ray.get(task)
                    except ray.exceptions.RayError:  # its machine is gone, for one
                        codes[run.name] = 1
                    ray.kill(place)
                    say_end(run, codes[run.name], len(codes), places)
    finally:
        ray.shutdown()
    return codes, signals[0] if signals else None


def _hand_on(ray: Any, number: int, working: dict[Any, tuple[Run, Any]]) -> None:
    """Tells all; who does not answer has not begun, because others occupy the cluster, and need not."""
    answers = {place.stop.remote(number): task for task, (_, place) in working.items()}
    _, missing = ray.wait(list(answers), num_returns=len(answers), timeout=_ANSWER) if answers else ([], [])
    for answer in missing:
        _, place = working.pop(answers[answer])
        ray.kill(place)
