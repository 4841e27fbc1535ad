"""The command line: flags become gin bindings, wrong names get the nearest right ones, then one call."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import json
import os
import re
import shlex
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gin

from agents.commands import configuration, settings
from agents.commands.configuration import parse, training_parameter
from agents.commands.flags import Parser, a_path, count, nearest
from agents.commands.sweep import finished
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
from agents.running.startup import VERBOSE, check_variables, in_environment, native_messages_in, verbose
from agents.storage import run_folder
from rbs_tf.errors import described, shown
from rbs_tf.settings import in_force

CONFIGS = run_folder.REPOSITORY / "configs"

EXAMPLES = """\
examples:
  python train.py
      learn MinAtar's Space Invaders, within minutes
  python train.py --config=atari_ten_heads --env=pong --updates=20
      the paper's ten-head network on real frames
  python train.py --config=atari --env=breakout --scaling=none --seed=1
      the paper's one-head setup, unscaled
  python train.py --collectors=4
      the same with four collecting processes beside learner, evaluator and replay
  python train.py --env=minatar/breakout --gin_bindings='train.num_envs = 8'
      another environment (any of gymnasium's, too), any gin parameter

The same command goes on where it was stopped. operative_config.gin in the run's folder has the values of all gin
parameters that it used.
"""


class Request(NamedTuple):
    """A run that may begin: gin is configured, and what can be known to be wrong has been looked for."""

    root_dir: str
    updates: int  # in total
    made: int | None  # updates, of a run that has no more to do
    wandb: bool
    run: Callable[..., Any]  # called with root_dir


def main(
    argv: Sequence[str] | None = None, run: Callable[..., Any] | None = None, configs: Path = CONFIGS
) -> int:
    """Does what the command line asks for: configures a run with gin and calls it.

    Args:
      argv: arguments without the program's name; None: those of this process.
      run, configs: see `request`.

    Returns:
      the exit code: 0; 1 if something failed under the run; 2 if what was asked for is refused; 128 + the
      signal that stopped the run, so 130 on Ctrl-C, and 138 on SIGUSR1, which asks to be queued again.

    Raises:
      SystemExit: after `--help`, and of a sweep that SIGTERM stops.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    started, this_call = False, contextlib.ExitStack()
    try:
        options = parsed(argv, configs)
        this_call.enter_context(variables(options))
        if options.list_envs:
            _list_environments()
            sys.stdout.flush()
            return 0
        if options.list_settings:
            _mode(options)  # imports all that has settings
            print(settings.listed(), flush=True)
            return 0
        if options.sweep:
            return _sweep(options, argv, configs)
        asked = request(options, run, configs)
        if asked.made:
            made = f"Already done: {asked.root_dir} has made {asked.made:,} updates"
            if asked.made < asked.updates:
                how = " in all its train.environment_steps. For more, give another --root_dir"
            else:
                how = f", and {asked.updates:,} are asked for. To go on, raise --updates"
            print(f"{made}{how}; to begin again, add --anew.")
            return 0
        with opened(asked, argv) as train:
            started = True
            stopped_by = train().stopped_by
    except Exception as error:
        return _failed(error, started)
    except KeyboardInterrupt:  # before the run minds signals, or again while it stops
        stopped_by = signal.SIGINT
    finally:
        this_call.close()
    if stopped_by is None:
        return 0
    name, code = signal.Signals(stopped_by).name, 128 + stopped_by
    words = f"Stopped by {name}, exit code {code}. The same command goes on from the last checkpoint."
    print(words, file=sys.stderr)
    return code


def variables(options: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Sets the environment's variables that flags stand for."""
    return in_environment({VERBOSE: "1"} if options.verbose else {})


def request(
    options: argparse.Namespace, run: Callable[..., Any] | None = None, configs: Path = CONFIGS
) -> Request:
    """Configures a run with gin and looks for what would stop it before anything is made.

    The configuration is what the command line says and nothing else: the config, then the scaling, the named
    flags and `--gin_bindings`, where later ones win. Includes are relative to the parent folder of `configs`.

    Args:
      options: from `parsed`.
      run: called with `root_dir`, when gin has been configured; returns an object with `updates`, those made in all,
        and `stopped_by`, the signal that ended the run early, or None. A gin configurable `train` takes env, updates
        and seed. None: `agents.running.embedded.train`, imported once the flags are known to be in order.
      configs: folder of the gin files, those of scalings with settings in its sub-folder `scaling`.

    Raises:
      UsageError, RunFolderError: what is asked for cannot be done.
    """
    if options.wandb:
        weights_and_biases.require_wandb()
    if options.env:
        _check_environment(options.env, only_name=True)  # its arguments may stand in the configuration
    run = run or _mode(options)
    scaling = _configure(options, configs)
    _check_environments(stores=not options.cluster)  # the flag is not the only place that can name them
    root_dir = options.root_dir or _default_root_dir(options.config.stem, scaling)
    if options.anew and (aside := run_folder.set_aside(root_dir)):
        print(f"What was in {root_dir} is now in {aside}", flush=True)
    updates = training_parameter("updates")
    return Request(root_dir, updates, _done(Path(root_dir), updates), options.wandb, run)


@contextlib.contextmanager
def opened(asked: Request, argv: Sequence[str]) -> Iterator[Callable[..., Any]]:
    """Opens the run's folder, which records `argv`; yields what trains in it."""
    command = ["python", "train.py", *argv]
    with run_folder.opened(asked.root_dir, command) as folder, contextlib.ExitStack() as this_run:
        tensorboard = os.path.relpath(Path(sys.prefix, "bin", "tensorboard"))
        print(
            f"Run folder: {folder}\nTo watch it: {shlex.join([tensorboard, '--logdir', str(folder)])}"
            "\nThen open:   http://localhost:6006/#custom_scalars",
            flush=True,
        )
        (folder / run_folder.FINISHED).unlink(missing_ok=True)
        if asked.wandb:
            this_run.enter_context(weights_and_biases.synced(folder))
        this_run.enter_context(native_messages_in(folder / run_folder.NATIVE))

        def train(**arguments: Any) -> Any:
            result = asked.run(root_dir=str(folder), **arguments)
            if result.stopped_by is None:  # environment steps end a run for good
                updates = asked.updates if result.updates >= asked.updates else sys.maxsize
                run_folder.write(
                    folder / run_folder.FINISHED, json.dumps({"updates": updates, "head": result.head})
                )
            return result

        yield train


def _failed(error: Exception, started: bool) -> int:
    """Says what went wrong, in a sentence if it is known to happen; returns the exit code."""
    if nobody_reads(error):
        return 128 + signal.SIGPIPE
    known = isinstance(error, KNOWN)
    if not known or verbose():
        traceback.print_exception(error)
    words = brief(error) if isinstance(error, OSError | MemoryError) else brief(without_gin_trail(error))
    if not known:
        words = (
            f"This is a bug of rbs_tf, not of yours: {type(error).__name__}: {words}\nPlease report it with the lines "
            "above and with what `python -m agents doctor` prints."
        )
    print(f"train.py: {words}", file=sys.stderr)
    return 1 if started and not isinstance(error, UsageError) else 2


def _mode(options: argparse.Namespace) -> Callable[..., Any]:
    """Chooses what trains: this process alone, or processes that Ray places."""
    if not is_distributed(options):
        from agents.running import embedded

        return embedded.train
    from agents.running import cluster, ray_connection

    ray_connection.require_ray()
    collectors = options.collectors or cluster.DEFAULT_COLLECTORS
    return functools.partial(cluster.train, collectors=collectors, cluster=options.cluster)


def is_distributed(options: argparse.Namespace) -> bool:
    """Says whether the run is one of several processes."""
    return options.collectors is not None or options.cluster is not None


def _sweep(options: argparse.Namespace, argv: Sequence[str], configs: Path) -> int:
    """Many runs; what they have in common stands in the file, too."""
    from agents.commands import sweep

    if options.wandb:
        weights_and_biases.require_wandb()
    flags = {argument.split("=")[0] for argument in argv if argument.startswith("--")}
    if others := sorted(flags - {"--sweep", "--root_dir", "--cluster", "--verbose", "--wandb"}):
        raise UsageError(
            f"{', '.join(others)} cannot be given beside --sweep: write it into the sweep's file."
        )
    file, folder = Path(options.sweep), configs / "sweeps"
    if not file.is_file():
        file = folder / f"{options.sweep}.sweep"
    if not file.is_file():
        answer = nearest(options.sweep, _names(folder, "sweep"))
        raise UsageError(f"There is no sweep {options.sweep!r}. {answer}")
    check = functools.partial(check_configuration, configs=configs, stores=not options.cluster)
    flags_of_all = ["--wandb"] if options.wandb else []
    return sweep.run(file, options.root_dir, options.cluster, check, flags=flags_of_all)


def check_configuration(
    commands: Sequence[Sequence[str]], folders: Sequence[Path], configs: Path = CONFIGS, stores: bool = True
) -> list[int]:
    """Looks for whatever would make `main` refuse one of these commands; returns the updates that each asks for.

    Args:
      commands: arguments as for `main`.
      folders: of their runs; one may exist, if it is of the same configuration.
      configs: as for `main`.
      stores: whether their replays are on this machine.

    Raises:
      UsageError: the first thing wrong.
    """
    # All of each kind, the quickest first: misspelt names are answered before TensorFlow is there.
    options = [parsed(command, configs) for command in commands]
    for name in {option.env for option in options} - {None}:
        _check_environment(name, only_name=True)
    _mode(options[0])
    updates, checked = [], set()
    for option, folder in zip(options, folders, strict=True):
        _configure(option, configs)
        alike = [each for each in configuration.bound() if each[0] not in ("train.seed", "train.updates")]
        if repr(alike) not in checked:
            checked.add(repr(alike))
            _check_environments(stores)
        try:
            run_folder.check_goes_on(folder)
        except RunFolderError as error:
            raise UsageError(str(error)) from error
        updates.append(training_parameter("updates"))
    return updates


def parsed(argv: Sequence[str], configs: Path = CONFIGS) -> argparse.Namespace:
    """The flags; `config` becomes a path, `scaling` its name and gin statement (None if it is not given).

    Raises:
      UsageError: they are wrong, or a variable in the environment is.
    """
    check_variables()
    scalings = configuration.scalings(configs)
    what, stray = "Trains a multi-head recurrent DQN with return-based scaling.", "Did you mean --config={}?"
    parser = Parser(prog="python train.py", description=what, epilog=EXAMPLES, stray=stray)
    flag = parser.add_argument
    configs_known = f"{_listed(configs)}, or a .gin file (%(default)s)"
    flag("--config", type=a_path, default="quickstart", metavar="NAME", help=configs_known)
    flag("--env", metavar="NAME", help="environment, see --list_envs (sets train.env)")
    arguments = (
        "arguments of a Gymnasium environment, as is_slippery=False (sets environments.make.env_kwargs)"
    )
    flag("--env_kwargs", type=_arguments, metavar="'NAME=VALUE, ...'", help=arguments)
    names = f"{' | '.join(scalings)}, or a .gin file (the config's own)"
    flag("--scaling", type=a_path, metavar="NAME", help=names)
    flag("--updates", type=count(1), metavar="N", help="learner updates in total (sets train.updates)")
    flag("--seed", type=count(0), metavar="N", help="of all that can be seeded (sets train.seed)")
    where = (
        "where updates are computed: default (one device), mirrored (all GPUs) or tpu (sets train.strategy)"
    )
    flag("--strategy", metavar="NAME", help=where)
    replay = (
        "local (in this process, with seeded draws); of --collectors: ray (in the learner's) or reverb (a server) "
        "(local, or what can be imported; sets Replay.backend)"
    )
    flag("--replay", metavar="NAME", help=replay)
    processes = "distributed: N processes collect, others learn, evaluate and hold the replay"
    flag("--collectors", type=count(1), metavar="N", help=processes)
    flag("--cluster", metavar="ADDRESS", help="distributed over this Ray cluster, not this machine alone")
    sweeps = (
        f"many runs, one after the other or on --cluster: {_listed(configs / 'sweeps', 'sweep')}, or a file"
    )
    flag("--sweep", type=a_path, metavar="NAME", help=sweeps)
    folder = "the run's folder (runs/CONFIG-ENV-SCALING-seedN)"
    flag("--root_dir", type=a_path, metavar="DIR", help=folder)
    binding, wins = "'NAME.PARAMETER = VALUE'", "any gin binding; may be repeated, wins over everything else"
    flag("--gin_bindings", action="append", default=[], metavar=binding, help=wins)
    for name, what in (
        ("anew", "start anew: what is in the run's folder gets another name, and nothing is deleted"),
        ("verbose", f"tracebacks and all messages of libraries (sets {VERBOSE}=1)"),
        ("wandb", "send what TensorBoard gets to Weights & Biases, too"),
        ("list_envs", "print the names of the environments and stop"),
        ("list_settings", "print every gin parameter: default, range, meaning; and stop"),
    ):
        flag(f"--{name}", action="store_true", help=what)
    options = parser.parse_args(argv)
    options.config = _config_file(options.config, configs)
    options.scaling = options.scaling and configuration.scaling(options.scaling, scalings)
    return options


def _arguments(text: str) -> dict[str, Any]:
    """is_slippery=False, map_name="8x8" -> a dictionary."""
    try:
        call = ast.parse(f"dict({text})", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError) as error:
        raise argparse.ArgumentTypeError(
            f"expected NAME=VALUE, ... with values as Python writes them, got {shown(text)}. Write for example: "
            "--env_kwargs='is_slippery=False, map_name=\"8x8\"'"
        ) from error


def _config_file(name: str, configs: Path) -> Path:
    path = Path(name) if name.endswith(".gin") else configs / f"{name}.gin"
    if not path.is_file():
        raise UsageError(f"There is no config {name!r}. {nearest(name, _names(configs))}")
    return path.absolute()


def _names(folder: Path, suffix: str = "gin") -> list[str]:
    return sorted(path.stem for path in folder.glob(f"*.{suffix}"))


def _listed(folder: Path, suffix: str = "gin") -> str:
    return " | ".join(_names(folder, suffix)).replace("%", "%%")


def _configure(options: argparse.Namespace, configs: Path) -> str | None:
    """Parses the gin configuration; returns the name of the scaling that will run, None if there is none."""
    scaling, *bindings = options.scaling or (None,)
    if scaling:
        parse([options.config], bindings, configs.parent)
        asked_for = configuration.bound_scaling()
    flags = {name: getattr(options, name) for name in ("env", "updates", "seed", "strategy")}
    bindings += [f"train.{name} = {value!r}" for name, value in flags.items() if value is not None]
    if options.replay:
        bindings.append(f"Replay.backend = {options.replay!r}")
    if options.env_kwargs is not None:
        bindings.append(f"environments.make.env_kwargs = {options.env_kwargs!r}")
    parse([options.config], bindings + options.gin_bindings, configs.parent)
    settings.check()
    backend = in_force("Replay.backend")
    if is_distributed(options) and backend == "local":
        raise UsageError(
            "The local replay is of one process alone: leave out --replay=local (Replay.backend = 'local'), or "
            "--collectors and --cluster"
        )
    if backend:  # known to be right before there is a run folder
        from agents.replay.backends import chosen_backend

        chosen_backend(backend, None, is_distributed(options))
    if is_distributed(options) and in_force("train.steps_per_update") is not None:
        raise UsageError(
            "train.steps_per_update paces a run in one process, --collectors and --cluster go by Replay.replay_ratio: "
            "leave out one of the two"
        )
    bound = configuration.bound_scaling()  # --gin_bindings may bind another one than --scaling
    return scaling if scaling and bound == asked_for else bound


def _done(folder: Path, asked: int) -> int | None:
    """The updates of a run that has no more to make or to evaluate; None of another one.

    Raises:
      RunFolderError: it is of another configuration.
    """
    try:
        run_folder.check_goes_on(folder)
    except OSError:  # opening it will say why it cannot be read
        return None
    if run_folder.is_locked(folder):
        return None
    made = run_folder.newest_step(folder)
    return made or asked if made > asked or finished(folder, asked) else None


def _list_environments() -> None:
    from rbs_tf import environments

    for family, names in environments.list_environments().items():
        print(f"{family}:")
        print(textwrap.fill(", ".join(names), 100, initial_indent="  ", subsequent_indent="  "))


def _check_environments(stores: bool) -> None:
    """Makes the environment, and as evaluation asks for it, once: before there is a run folder.

    Args:
      stores: whether the replay is on this machine.
    """
    name, asked = training_parameter("env"), "repeat_action_probability"
    _check_environment(name, stores=stores)
    if (sticky := in_force(f"train.eval_{asked}")) is not None:
        try:
            _check_environment(name, **{asked: sticky})
        except UsageError as error:
            raise UsageError(str(error).replace(asked, f"train.eval_{asked}")) from error


def _check_environment(name: str, only_name: bool = False, stores: bool = False, **options: Any) -> None:
    with gin.unlock_config():  # for TF-Agents, imported with the first environment, registers configurables
        import gymnasium

        from rbs_tf import environments

        try:
            if only_name:
                return environments.check_name(name)
            with contextlib.closing(environments.make(name, **options)) as environment:
                _ = environment.num_actions  # a ValueError for actions that cannot be counted
                if "train" in dict(configuration.ours()) and not options:
                    _check_sizes(environment, stores)
        except UsageError:
            raise
        except (ValueError, ImportError, EnvironmentFault, gymnasium.error.Error) as error:
            raise UsageError(str(error)) from error
        except (Exception, SystemExit) as error:
            bound = [f"{each} = {value!r}" for each, value in configuration.bound() if ".make." in each]
            why = described(error).split(" In call to configurable")[0]
            asked_for = f"\nWith {', '.join(bound)}" if bound else ""
            raise UsageError(f"{shown(name)} cannot be made: {why}{asked_for}") from error


def _check_sizes(environment: Any, stores: bool) -> None:
    """Builds what the configuration names, without memory: nothing of what may go wrong there leaves a run folder."""
    from agents.workers import sizes
    from agents.workers.settings import Settings

    try:
        settings = Settings.configured()
    except (Exception, SystemExit) as error:
        raise UsageError(without_gin_trail(UsageError(configuration.of_gin(error, "")))) from error
    sizes.check(settings, environment, stores=stores)


def _default_root_dir(config: str, scaling: str | None) -> str:
    """Names the folder after what the run is, so that the same command finds it again."""
    parts = [config, str(training_parameter("env")), scaling, f"seed{training_parameter('seed')}"]
    return "runs/" + "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts if part)
