"""What train.py takes and prints: flags, lists, messages, exit codes."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import inspect
import signal
import sys
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin

from agents import configuration
from agents.commands.flags import Parser, a_path, count
from agents.errors import KNOWN, RunFolderError, UsageError, shorten_error, strip_gin_trail, suggest
from agents.monitoring import weights_and_biases
from agents.monitoring.progress import nobody_reads
from agents.options import CONFIGS, TrainOptions, list_names
from agents.run import check_built, check_environment, configure, run
from agents.running.startup import VERBOSE, is_verbose, set_environment
from agents.storage import run_folder
from rbs_tf.errors import shorten

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
        flags = parse_flags(argv, configs)
        options = TrainOptions.from_flags(flags)
        this_call.enter_context(set_environment({VERBOSE: "1"} if options.verbose else {}))
        if flags.list_envs:
            return _list_environments()
        if flags.list_settings:
            return _list_settings()
        if flags.sweep:
            return _sweep(flags.sweep, options, argv, configs)
        command = ["python", "train.py", *argv]
        stopped_by = run(options, command, configs=configs, begun=begun).stopped_by
    except Exception as error:
        return _report_failure(error, bool(begun))
    except KeyboardInterrupt:  # before the run handles signals, or again while it stops
        stopped_by = signal.SIGINT
    finally:
        this_call.close()
    if stopped_by is None:
        return 0
    name = signal.Signals(stopped_by).name
    code = 128 + stopped_by
    then = f" {run_folder.describe_next_start(begun[0])}." if begun else ""
    words = f"Stopped by {name}, exit code {code}.{then}"
    print(words, file=sys.stderr)
    return code


def parse_flags(argv: Sequence[str], configs: Path = CONFIGS) -> argparse.Namespace:
    """The flags of train.py: those of `TrainOptions`, and `sweep`, `list_envs`, `list_settings`.

    Args:
      configs: folder of the gin files, which `--help` lists.

    Raises:
      UsageError: they are wrong.
    """
    what = "Trains a multi-head recurrent DQN with return-based scaling."
    stray = "Did you mean --config={}?"
    parser = Parser(prog="python train.py", description=what, epilog=EXAMPLES, stray=stray)
    flag = parser.add_argument
    configs_known = f"{_list_names(configs)}, or a .gin file (%(default)s)"
    flag("--config", type=a_path, default="quickstart", metavar="NAME", help=configs_known)
    flag("--env", metavar="NAME", help="environment, see --list_envs (sets train.env)")
    arguments = (
        "arguments of a Gymnasium environment, as is_slippery=False (sets environments.make.env_kwargs)"
    )
    flag("--env_kwargs", type=_arguments, metavar="'NAME=VALUE, ...'", help=arguments)
    scalings = f"{' | '.join(configuration.list_scalings(configs))}, or a .gin file (the config's own)"
    flag("--scaling", type=a_path, metavar="NAME", help=scalings)
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
    flag("--cluster", metavar="ADDRESS", help="distributed over this Ray cluster, not this machine only")
    sweeps = f"many runs, one after the other: {_list_names(configs / 'sweeps', 'sweep')}, or a file"
    flag("--sweep", type=a_path, metavar="NAME", help=sweeps)
    folder = "the run's folder (runs/CONFIG-ENV-SCALING-seedN)"
    flag("--root_dir", type=a_path, metavar="DIR", help=folder)
    binding = "'NAME.PARAMETER = VALUE'"
    wins = "any gin binding; may be repeated, wins over everything else"
    flag("--gin_bindings", action="append", default=[], metavar=binding, help=wins)
    for name, meaning in (
        ("anew", "start again: what is in the run's folder gets another name, and nothing is deleted"),
        ("verbose", f"tracebacks and all messages of libraries (sets {VERBOSE}=1)"),
        ("wandb", "send what TensorBoard gets to Weights & Biases, too"),
        ("list_envs", "print the names of the environments and stop"),
        ("list_settings", "print every gin parameter: default, range, meaning; and stop"),
    ):
        flag(f"--{name}", action="store_true", help=meaning)
    return parser.parse_args(argv)


def _list_names(folder: Path, suffix: str = "gin") -> str:
    return " | ".join(list_names(folder, suffix)).replace("%", "%%")


def _arguments(text: str) -> dict[str, Any]:
    """is_slippery=False, map_name="8x8" -> a dictionary."""
    try:
        call = ast.parse(f"dict({text})", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError) as error:
        raise argparse.ArgumentTypeError(
            f"expected NAME=VALUE, ... with values as Python writes them, got {shorten(text)}. Write for example: "
            "--env_kwargs='is_slippery=False, map_name=\"8x8\"'"
        ) from error


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
    options = [TrainOptions.from_flags(parse_flags(command, configs)) for command in commands]
    for name in {option.env for option in options if option.env}:  # misspelt names before TensorFlow is there
        check_environment(name)
    updates = []
    checked = set()
    for option, folder in zip(options, folders, strict=True):
        asked = configure(option, configs)
        lines = gin.config_str().splitlines()
        alike = "\n".join(line for line in lines if not line.startswith(("train.seed =", "train.updates =")))
        if alike not in checked:
            checked.add(alike)
            check_built(option, asked, folder)
        try:
            run_folder.check_goes_on(folder)
        except RunFolderError as error:
            raise UsageError(str(error)) from error
        updates.append(asked.train.updates)
    return updates


def _report_failure(error: Exception, begun: bool) -> int:
    """Prints what went wrong, in a sentence if it is a known kind; returns the exit code."""
    if nobody_reads(error):
        return 128 + signal.SIGPIPE
    known = isinstance(error, KNOWN)
    if not known or is_verbose():
        traceback.print_exception(error)
    of_system = isinstance(error, OSError | MemoryError)
    words = shorten_error(error if of_system else strip_gin_trail(error))
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
    file = Path(name)
    folder = configs / "sweeps"
    if not file.is_file():
        file = folder / f"{name}.sweep"
    if not file.is_file():
        raise UsageError(f"There is no sweep {name!r}. {suggest(name, list_names(folder, 'sweep'))}")
    check = functools.partial(check_commands, configs=configs)
    return sweep.run(file, options.root_dir, check, flags=["--wandb"] if options.wandb else [])


def _list_settings() -> int:
    from agents.scalings.making import named_scalings
    from agents.settings import list_settings
    from networks.torsos import ConvTorso, MlpTorso

    for name, field, meaning in list_settings():
        kind = field.metadata["kind"]
        default = getattr(field.default, "__name__", repr(field.default))
        print(f"{name} = {default}" if kind.fits(field.default) else name)
        print(textwrap.fill(f"    {kind.words}. {meaning}", 100, subsequent_indent="    "))
    print("Scalings and torsos, whose arguments docs/api.md and networks/torsos.py explain:")
    for scaling in named_scalings().values():
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
