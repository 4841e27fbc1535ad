"""`TrainOptions`, filled by train.py's flags or by the arguments of `agents.train`."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.commands import configuration
from agents.commands.flags import Parser, a_path, count, nearest
from agents.errors import UsageError, local_path
from agents.running.startup import VERBOSE
from agents.storage.run_folder import REPOSITORY
from rbs_tf.errors import shown

CONFIGS = REPOSITORY / "configs"

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


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The options of a run; None leaves the choice to the configuration.

    Args:
      config: name of a file in `configs`, or a .gin file.
      env, updates, seed, strategy: set `train.env` and so on.
      env_kwargs: arguments of a Gymnasium environment; sets `environments.make.env_kwargs`.
      scaling: a name that `configuration.scalings` knows, or a .gin file.
      replay: sets `Replay.backend`.
      collectors: collecting processes; None: one process does everything, unless there is a `cluster`.
      cluster: address of a Ray cluster.
      root_dir: the run's folder; None: named after what the run is.
      gin_bindings: statements that win over everything else.
      anew: renames the run's folder first, if there is one.
      verbose: leaves tracebacks and all messages of libraries on the terminal.
      wandb: sends TensorBoard's events to Weights & Biases.
    """

    config: str | os.PathLike = "quickstart"
    env: str | None = None
    env_kwargs: Mapping[str, Any] | None = None
    scaling: str | None = None
    updates: int | None = None
    seed: int | None = None
    strategy: str | None = None
    replay: str | None = None
    collectors: int | None = None
    cluster: str | None = None
    root_dir: str | os.PathLike | None = None
    gin_bindings: Sequence[str] = ()
    anew: bool = False
    verbose: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        collectors = self.collectors
        if collectors is not None and (not isinstance(collectors, int) or collectors < 1):
            raise UsageError(
                f"collectors must be a whole number of at least 1, or None; got {shown(repr(collectors))}."
            )
        if self.root_dir is not None:
            local_path(self.root_dir)

    @classmethod
    def of_flags(cls, flags: argparse.Namespace) -> TrainOptions:
        """From `parsed` flags."""
        return cls(**{field.name: getattr(flags, field.name) for field in dataclasses.fields(cls)})

    @property
    def is_distributed(self) -> bool:
        """Whether the run is one of several processes."""
        return self.collectors is not None or self.cluster is not None

    def bindings(self) -> list[str]:
        """The gin statements of the named options; `gin_bindings` last."""
        named = {f"train.{name}": getattr(self, name) for name in ("env", "updates", "seed", "strategy")}
        named |= {"Replay.backend": self.replay, "environments.make.env_kwargs": self.env_kwargs}
        return [
            *(f"{name} = {value!r}" for name, value in named.items() if value is not None),
            *self.gin_bindings,
        ]


def parsed(argv: Sequence[str], configs: Path = CONFIGS) -> argparse.Namespace:
    """The flags of train.py: those of `TrainOptions`, and `sweep`, `list_envs`, `list_settings`.

    Args:
      configs: folder of the gin files, which `--help` lists.

    Raises:
      UsageError: they are wrong.
    """
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
    scalings = f"{' | '.join(configuration.scalings(configs))}, or a .gin file (the config's own)"
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
    sweeps = f"many runs, one after the other: {_listed(configs / 'sweeps', 'sweep')}, or a file"
    flag("--sweep", type=a_path, metavar="NAME", help=sweeps)
    folder = "the run's folder (runs/CONFIG-ENV-SCALING-seedN)"
    flag("--root_dir", type=a_path, metavar="DIR", help=folder)
    binding, wins = "'NAME.PARAMETER = VALUE'", "any gin binding; may be repeated, wins over everything else"
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


def config_file(name: str | os.PathLike, configs: Path) -> Path:
    """The gin file of this name, absolute.

    Raises:
      UsageError: there is none.
    """
    name = os.fspath(name)
    path = Path(name) if name.endswith(".gin") else configs / f"{name}.gin"
    if not path.is_file():
        raise UsageError(f"There is no config {name!r}. {nearest(name, names(configs))}")
    return path.absolute()


def names(folder: Path, suffix: str = "gin") -> list[str]:
    """Names of a folder's files with this suffix."""
    return sorted(path.stem for path in folder.glob(f"*.{suffix}"))


def _listed(folder: Path, suffix: str = "gin") -> str:
    return " | ".join(names(folder, suffix)).replace("%", "%%")


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
