"""train.py: configures a run, builds it, opens its folder, trains."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gin

from agents.commands import configuration
from agents.commands.flags import nearest
from agents.commands.options import CONFIGS, TrainOptions, config_file, names, parsed
from agents.errors import (
    KNOWN,
    EnvironmentFault,
    RunFolderError,
    UsageError,
    brief,
    without_gin_trail,
)
from agents.monitoring import weights_and_biases
from agents.monitoring.progress import nobody_reads
from agents.monitoring.tags import EVALUATION
from agents.running.startup import VERBOSE, check_variables, in_environment, native_messages_in, verbose
from agents.storage import run_folder
from rbs_tf.errors import described, shown

if TYPE_CHECKING:
    from agents.settings import Settings
    from agents.workers.results import Result


def main(argv: Sequence[str] | None = None, configs: Path = CONFIGS) -> int:
    """Does what the command line asks for.

    Args:
      argv: arguments without the program's name; None: those of this process.
      configs: folder of the gin files, those of scalings with settings in its sub-folder `scaling`.

    Returns:
      the exit code: 0; 1 if something failed under the run; 2 if what was asked for is refused; 128 + the
      signal that stopped the run, so 130 on Ctrl-C, and 138 on SIGUSR1, which asks to be queued again.

    Raises:
      SystemExit: after `--help`, and of a sweep that SIGTERM stops.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    begun: list[Path] = []
    this_call = contextlib.ExitStack()
    try:
        check_variables()
        flags = parsed(argv, configs)
        options = TrainOptions.of_flags(flags)
        this_call.enter_context(_as_verbose_as(options))
        if flags.list_envs:
            return _list_environments()
        if flags.list_settings:
            return _list_settings(options)
        if flags.sweep:
            return _sweep(flags.sweep, options, argv, configs)
        command = ["python", "train.py", *argv]
        stopped_by = run(options, command, configs=configs, begun=begun).stopped_by
    except Exception as error:
        return _failed(error, bool(begun))
    except KeyboardInterrupt:  # before the run handles signals, or again while it stops
        stopped_by = signal.SIGINT
    finally:
        this_call.close()
    if stopped_by is None:
        return 0
    name, code = signal.Signals(stopped_by).name, 128 + stopped_by
    then = f" {run_folder.describe_next_start(begun[0])}." if begun else ""
    words = f"Stopped by {name}, exit code {code}.{then}"
    print(words, file=sys.stderr)
    return code


def run(
    options: TrainOptions,
    command: Sequence[str],
    on_evaluation: Callable[..., Any] | None = None,
    configs: Path = CONFIGS,
    begun: list[Path] | None = None,
) -> Result:
    """Trains one run: configures gin, builds, opens the run's folder, trains.

    Args:
      command: what the folder records as its command line.
      on_evaluation: of a run in one process, see `agents.running.embedded.EmbeddedRun`.
      begun: gets the run folder when something is about to be written into it.

    Raises:
      UsageError, RunFolderError: what is asked for cannot be done; or, once it has begun, what ended the run, as
        EnvironmentFault and FloatingPointError do.
    """
    if options.wandb:
        weights_and_biases.require_wandb()
    asked = configure(options, configs)
    updates, root_dir = asked.train.updates, _root_dir(options, asked)
    moved = _moved_aside(root_dir) if options.anew else contextlib.nullcontext()
    with moved as aside, run_folder.opened(root_dir) as folder, _as_verbose_as(options):
        if made := run_folder.made(root_dir, updates):
            return _done_before(folder.path, made, updates)
        with _built(options, asked, folder.path, on_evaluation) as training:
            folder.begin(command)
            if begun is not None:
                begun.append(folder.path)
            if aside is not None:
                print(f"What was in {root_dir} is now in {aside}", flush=True)
            _say_where(folder.path)
            native = native_messages_in(folder.path / run_folder.NATIVE)
            with native, _synced(options, asked, folder.path), training as training_run:
                result = training_run.run()
        if result.stopped_by is None:  # environment steps end a run for good
            folder.finish(updates if result.updates >= updates else sys.maxsize, result.head)
    return result._replace(root_dir=str(folder.path))


def configure(options: TrainOptions, configs: Path = CONFIGS) -> Settings:
    """Parses gin: the config, then the scaling, the named options and `gin_bindings`, where later ones win.

    Args:
      configs: included files are relative to its parent.

    Raises:
      UsageError: a name that there is not, or a value that does not fit.
    """
    # The quickest first: misspelt names are answered before TensorFlow is there.
    file, bindings = config_file(options.config, configs), options.bindings()
    if options.scaling:
        _, statement = configuration.scaling(options.scaling, configuration.scalings(configs))
        bindings = [statement, *bindings]
    if options.env:
        _check_name(options.env)
    _import(options)
    from agents.settings import Settings, refuse_constants

    configuration.parse([file], bindings, configs.parent)
    refuse_constants()
    try:
        configured = Settings.configured()
    except (Exception, SystemExit) as error:
        raise UsageError(without_gin_trail(UsageError(configuration.explained(error)))) from error
    _check_name(configured.train.env)
    if options.is_distributed and configured.replay.backend == "local":
        raise UsageError(
            "The local replay is of one process: leave out --replay=local (Replay.backend = 'local'), or "
            "--collectors and --cluster"
        )
    if options.is_distributed and configured.train.steps_per_update is not None:
        raise UsageError(
            "train.steps_per_update paces a run in one process, --collectors and --cluster go by Replay.replay_ratio: "
            "leave out one of the two"
        )
    return configured


def check_commands(
    commands: Sequence[Sequence[str]], folders: Sequence[Path], configs: Path = CONFIGS
) -> list[int]:
    """Checks that `main` would accept these commands; returns the updates that each asks for.

    Args:
      commands: arguments as for `main`.
      folders: of their runs; a folder that exists must be of the same configuration.

    Raises:
      UsageError: the first thing wrong.
    """
    options = [TrainOptions.of_flags(parsed(command, configs)) for command in commands]
    for name in {option.env for option in options if option.env}:  # misspelt names before TensorFlow is there
        _check_name(name)
    updates, checked = [], set()
    for option, folder in zip(options, folders, strict=True):
        asked = configure(option, configs)
        lines = gin.config_str().splitlines()
        alike = "\n".join(line for line in lines if not line.startswith(("train.seed =", "train.updates =")))
        if alike not in checked:
            checked.add(alike)
            _check(option, asked, folder)
        try:
            run_folder.check_goes_on(folder)
        except RunFolderError as error:
            raise UsageError(str(error)) from error
        updates.append(asked.train.updates)
    return updates


def _import(options: TrainOptions) -> None:
    """Imports everything that has settings."""
    import agents.running.embedded  # noqa: F401

    if options.is_distributed:
        from agents.running import ray_connection

        ray_connection.require_ray()


@contextlib.contextmanager
def _moved_aside(root_dir: str | os.PathLike) -> Iterator[Path | None]:
    """Gives a run's folder another name, and its own again if no new run takes its place."""
    aside = run_folder.set_aside(root_dir)
    try:
        yield aside
    finally:
        if aside is not None and not os.path.lexists(root_dir):
            aside.rename(Path(root_dir))


@contextlib.contextmanager
def _built(
    options: TrainOptions, asked: Settings, folder: Path, on_evaluation: Callable[..., Any] | None
) -> Iterator[contextlib.AbstractContextManager[Any]]:
    """Builds what needs no folder; yields what to enter once there is one, for something to `run`.

    Raises:
      UsageError: something cannot be built.
      RunFolderError: the folder's newest checkpoint cannot be read.
    """
    from agents.storage.checkpoint import check

    check(folder)  # before anything in it is replaced
    if options.is_distributed:
        from agents.running import cluster, ray_connection

        ray_connection.check(options.cluster)
        _check(options, asked, folder)
        collectors = options.collectors or cluster.DEFAULT_COLLECTORS
        yield cluster.started(asked, str(folder), collectors, options.cluster)
        return
    from agents.running.embedded import EmbeddedRun

    with _refusing(asked.train.env):
        embedded = EmbeddedRun(folder, asked, on_evaluation)
    with contextlib.closing(embedded):
        yield embedded


def _check(options: TrainOptions, asked: Settings, folder: Path) -> None:
    """Raises UsageError for settings that the run's processes could not build."""
    from agents.workers import build

    with _refusing(asked.train.env):
        build.check(asked, folder, stores=not options.cluster, distributed=options.is_distributed)


@contextlib.contextmanager
def _refusing(env: str) -> Iterator[None]:
    """Turns errors of building, those of other people's code too, into a UsageError."""
    try:
        yield
    except (UsageError, RunFolderError):
        raise
    except (ValueError, ImportError, EnvironmentFault) as error:
        raise UsageError(without_gin_trail(error)) from error
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        bound = [
            f"environments.make.{name} = {of!r}" for name, of in gin.get_bindings("environments.make").items()
        ]
        if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's, which need not be imported here
            raise UsageError("There is not enough memory for the network: lower its sizes.") from error
        why = described(error).split(" In call to configurable")[0]
        asked_for = f"\nWith {', '.join(bound)}" if bound else ""
        raise UsageError(f"The run in {shown(env)} cannot be built: {why}{asked_for}") from error


def _check_name(env: str) -> None:
    """Raises UsageError for an environment that there is not, or whose package is missing."""
    import gymnasium

    from rbs_tf.environments.factory import check_name

    try:
        check_name(env)
    except (ValueError, ImportError, EnvironmentFault, gymnasium.error.Error) as error:
        raise UsageError(str(error)) from error


def _done_before(folder: Path, made: int, asked: int) -> Result:
    """The result of a run that has nothing left to do."""
    from agents.storage.checkpoint import Counters, newest
    from agents.storage.episodes import last_return
    from agents.workers.results import Result

    how = (
        " in all its train.environment_steps. For more, give another --root_dir"
        if made < asked
        else f", and {asked:,} are asked for. To go on, raise --updates"
    )
    print(
        f"Already done: {os.path.relpath(folder)} has made {made:,} updates{how}; to begin again, add --anew."
    )
    updates, counters = made, Counters()
    with contextlib.suppress(RunFolderError):  # the newest checkpoint is damaged
        updates, counters = newest(folder) or (updates, counters)
    head = run_folder.acting_head(folder) or ""
    return Result(
        updates, counters.environment_steps, last_return(folder / EVALUATION), None, str(folder), head
    )


def _say_where(folder: Path) -> None:
    tensorboard = os.path.relpath(Path(sys.prefix, "bin", "tensorboard"))
    print(
        f"Run folder: {folder}\nTo watch it: {shlex.join([tensorboard, '--logdir', str(folder)])}"
        "\nThen open:   http://localhost:6006/#custom_scalars",
        flush=True,
    )


def _failed(error: Exception, begun: bool) -> int:
    """Prints what went wrong, in a sentence if it is a known kind; returns the exit code."""
    if nobody_reads(error):
        return 128 + signal.SIGPIPE
    known = isinstance(error, KNOWN)
    if not known or verbose():
        traceback.print_exception(error)
    words = brief(error) if isinstance(error, OSError | MemoryError) else brief(without_gin_trail(error))
    if not known:
        words = (
            f"{type(error).__name__}: {words}\nUnless it is in code that you brought, this is a bug of rbs_tf: please "
            "report it with the lines above and with what `python -m agents doctor` prints."
        )
    print(f"train.py: {words}", file=sys.stderr)
    return 1 if begun and not isinstance(error, UsageError) else 2


def _sweep(name: str, options: TrainOptions, argv: Sequence[str], configs: Path) -> int:
    """Runs a sweep."""
    from agents.commands import sweep

    if options.wandb:
        weights_and_biases.require_wandb()
    flags = {argument.split("=")[0] for argument in argv if argument.startswith("--")}
    if others := sorted(flags - {"--sweep", "--root_dir", "--verbose", "--wandb"}):
        raise UsageError(
            f"{', '.join(others)} cannot be given beside --sweep: write it into the sweep's file."
        )
    file, folder = Path(name), configs / "sweeps"
    if not file.is_file():
        file = folder / f"{name}.sweep"
    if not file.is_file():
        raise UsageError(f"There is no sweep {name!r}. {nearest(name, names(folder, 'sweep'))}")

    def check(commands: Sequence[Sequence[str]], folders: Sequence[Path]) -> list[int]:
        return check_commands(commands, folders, configs)

    flags_of_all = ["--wandb"] if options.wandb else []
    root_dir = None if options.root_dir is None else os.fspath(options.root_dir)
    return sweep.run(file, root_dir, check, flags=flags_of_all)


def _as_verbose_as(options: TrainOptions) -> contextlib.AbstractContextManager[None]:
    return in_environment({VERBOSE: "1"} if options.verbose else {})


def _synced(options: TrainOptions, asked: Settings, folder: Path) -> contextlib.AbstractContextManager[None]:
    return weights_and_biases.synced(folder, asked) if options.wandb else contextlib.nullcontext()


def _list_settings(options: TrainOptions) -> int:
    _import(options)
    from agents.scalings.making import known
    from agents.settings import declared
    from networks.torsos import ConvTorso, MlpTorso

    for name, field, meaning in declared():
        kind, default = field.metadata["kind"], getattr(field.default, "__name__", repr(field.default))
        print(f"{name} = {default}" if kind.fits(field.default) else name)
        print(textwrap.fill(f"    {kind.words}. {meaning}", 100, subsequent_indent="    "))
    print("Scalings and torsos, whose arguments docs/scaling.md and networks/torsos.py explain:")
    for scaling in known().values():
        print(f"@scalings.{scaling.known_as}{_signature(scaling)}")
    for torso in (ConvTorso, MlpTorso):
        print(f"@networks.{torso.__name__}{_signature(torso)}")
    sys.stdout.flush()
    return 0


def _signature(factory: type) -> str:
    """The arguments that a configuration may set, with their defaults."""
    parameters = inspect.signature(factory).parameters.items()
    given = ("num_heads", "layer", "seed", "name")  # by the program
    shown = (str(of.replace(annotation=of.empty)) for name, of in parameters if name not in given)
    return f"({', '.join(shown)})"


def _list_environments() -> int:
    from rbs_tf import environments

    for family, known in environments.list_environments().items():
        print(f"{family}:")
        print(textwrap.fill(", ".join(known), 100, initial_indent="  ", subsequent_indent="  "))
    sys.stdout.flush()
    return 0


def _root_dir(options: TrainOptions, asked: Settings) -> str:
    """As given, or a name made of the run's main settings, so that the same command finds the folder again."""
    if options.root_dir is not None:
        return os.fspath(options.root_dir)
    from agents.scalings.making import scaling_name

    scaling = scaling_name(asked.train.scaling)
    if options.scaling and not any("train.scaling" in binding for binding in options.gin_bindings):
        scaling = Path(options.scaling).stem  # maybe of a file, with settings of its scaling
    parts = (
        Path(options.config).stem,
        asked.train.env,
        scaling.removesuffix("_based"),
        f"seed{asked.train.seed}",
    )
    return "runs/" + "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)
