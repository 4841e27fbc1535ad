"""A run from its options to its end: configure, build, open the folder, train. All ways to start one come here."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gin

from agents import configuration
from agents.errors import EnvironmentFault, RunFolderError, UsageError, strip_gin_trail
from agents.monitoring import weights_and_biases
from agents.monitoring.tags import EVALUATION
from agents.options import CONFIGS, TrainOptions, config_file
from agents.running.startup import VERBOSE, redirect_native_messages, set_environment
from agents.storage import run_folder
from rbs_tf.errors import describe, shorten

if TYPE_CHECKING:
    from agents.settings import Settings
    from agents.workers.results import Result


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
    updates = asked.train.updates
    root_dir = _root_dir(options, asked)
    moved = _moved_aside(root_dir) if options.anew else contextlib.nullcontext()
    with (
        moved as aside,
        run_folder.opened(root_dir) as folder,
        set_environment({VERBOSE: "1"} if options.verbose else {}),
    ):
        if made := run_folder.find_made_updates(root_dir, updates):
            return _describe_done(folder.path, made, updates)
        with _built(options, asked, folder.path, on_evaluation) as training:
            starts_over = run_folder.first_start(folder.path) and not run_folder.checkpoints(folder.path)
            folder.begin(command)
            if begun is not None:
                begun.append(folder.path)
            if aside is not None:
                print(f"What was in {root_dir} is now in {aside}", flush=True)
            if starts_over:
                print(f"{root_dir} holds no checkpoint: the run starts from the beginning", flush=True)
            tensorboard = [
                os.path.relpath(Path(sys.prefix, "bin", "tensorboard")),
                "--logdir",
                str(folder.path),
            ]
            print(
                f"Run folder: {folder.path}\nTo watch it: {shlex.join(tensorboard)}"
                "\nThen open:   http://localhost:6006/#custom_scalars",
                flush=True,
            )
            with contextlib.ExitStack() as around:
                around.enter_context(redirect_native_messages(folder.path / run_folder.NATIVE))
                if options.wandb:
                    around.enter_context(weights_and_biases.synced(folder.path, asked))
                result = around.enter_context(training).run()
        if result.stopped_by is None:  # environment steps end a run for good
            folder.finish(updates if result.updates >= updates else sys.maxsize, result.head)
    return result._replace(root_dir=str(folder.path))


def configure(options: TrainOptions, configs: Path = CONFIGS) -> Settings:
    """Parses gin: the config, then the scaling, the named options and `gin_bindings`, where later ones win.

    Args:
      configs: included files are relative to its parent.

    Raises:
      UsageError: an unknown name, or a value that does not fit.
    """
    # The quickest first: misspelt names are answered before TensorFlow is there.
    file = config_file(options.config, configs)
    bindings = options.bindings()
    if options.scaling:
        _, statement = configuration.choose_scaling(options.scaling, configuration.list_scalings(configs))
        bindings = [statement, *bindings]
    if options.env:
        check_environment(options.env)
    if options.is_distributed:
        from agents.running import ray_connection

        ray_connection.require_ray()
    from agents.settings import Settings, refuse_constants

    configuration.parse([file], bindings, configs.parent)
    refuse_constants()
    try:
        configured = Settings.from_gin()
    except (Exception, SystemExit) as error:
        raise UsageError(strip_gin_trail(UsageError(configuration.explain(error)))) from error
    check_environment(configured.train.env)
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


@contextlib.contextmanager
def _moved_aside(root_dir: str | os.PathLike) -> Iterator[Path | None]:
    """Renames a run's folder, and renames it back if no new run takes its place."""
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
    """Builds all that needs no folder. Yields a context manager that builds the rest in the folder and gives the run.

    Raises:
      UsageError: something cannot be built.
      RunFolderError: the folder's newest checkpoint cannot be read.
    """
    from agents.storage.checkpoint import check_readable

    check_readable(folder)  # before anything in it is replaced
    if options.is_distributed:
        from agents.running import cluster, ray_connection

        ray_connection.check_cluster(options.cluster)
        check_built(options, asked, folder)
        collectors = options.collectors or cluster.DEFAULT_COLLECTORS
        yield cluster.started(asked, str(folder), collectors, options.cluster)
        return
    from agents.running.embedded import EmbeddedRun

    with _refusing(asked.train.env):
        embedded = EmbeddedRun(folder, asked, on_evaluation)
    with contextlib.closing(embedded):
        yield embedded


def check_built(options: TrainOptions, asked: Settings, folder: Path) -> None:
    """Raises UsageError for settings that the run's processes could not build."""
    from agents.workers import build

    with _refusing(asked.train.env):
        build.check_settings(asked, folder, stores=not options.cluster, distributed=options.is_distributed)


@contextlib.contextmanager
def _refusing(env: str) -> Iterator[None]:
    """Turns errors of building, those of other people's code too, into a UsageError."""
    try:
        yield
    except (UsageError, RunFolderError):
        raise
    except (ValueError, ImportError, EnvironmentFault) as error:
        raise UsageError(strip_gin_trail(error)) from error
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        bound = [
            f"environments.make.{name} = {of!r}" for name, of in gin.get_bindings("environments.make").items()
        ]
        if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's, which need not be imported here
            raise UsageError("There is not enough memory for the network: lower its sizes.") from error
        why = describe(error).split(" In call to configurable")[0]
        asked_for = f"\nWith {', '.join(bound)}" if bound else ""
        raise UsageError(f"The run in {shorten(env)} cannot be built: {why}{asked_for}") from error


def check_environment(env: str) -> None:
    """Raises UsageError for an environment that there is not, or whose package is missing."""
    import gymnasium

    from rbs_tf.environments.factory import check_name

    try:
        check_name(env)
    except (ValueError, ImportError, EnvironmentFault, gymnasium.error.Error) as error:
        raise UsageError(str(error)) from error


def _describe_done(folder: Path, made: int, asked: int) -> Result:
    """The result of a run that has nothing left to do."""
    from agents.storage.checkpoint import Counters, find_newest
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
    updates = made
    counters = Counters()
    with contextlib.suppress(RunFolderError):  # the newest checkpoint is damaged
        updates, counters = find_newest(folder) or (updates, counters)
    head = run_folder.acting_head(folder) or ""
    return Result(
        updates, counters.environment_steps, last_return(folder / EVALUATION), None, str(folder), head
    )


def _root_dir(options: TrainOptions, asked: Settings) -> str:
    """The folder that was given, or one named after the run's main settings: the same command finds it again."""
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
