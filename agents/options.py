"""`TrainOptions`, filled by train.py's flags or by the arguments of `agents.train`."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.errors import UsageError, local_path, suggest
from agents.storage.run_folder import REPOSITORY
from rbs_tf.errors import shorten

CONFIGS = REPOSITORY / "configs"


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The options of a run; None leaves the choice to the configuration.

    Args:
      config: name of a file in `configs`, or a .gin file.
      env, updates, seed, strategy: set `train.env` and so on.
      env_kwargs: arguments of a Gymnasium environment; sets `environments.make.env_kwargs`.
      scaling: a name that `configuration.list_scalings` knows, or a .gin file.
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
                f"collectors must be a whole number of at least 1, or None; got {shorten(repr(collectors))}."
            )
        if self.root_dir is not None:
            local_path(self.root_dir)

    @classmethod
    def from_flags(cls, flags: argparse.Namespace) -> TrainOptions:
        """From the flags that `parse_flags` returns."""
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


def config_file(name: str | os.PathLike, configs: Path) -> Path:
    """The gin file of this name, absolute.

    Raises:
      UsageError: there is none.
    """
    name = os.fspath(name)
    path = Path(name) if name.endswith(".gin") else configs / f"{name}.gin"
    if not path.is_file():
        raise UsageError(f"There is no config {name!r}. {suggest(name, list_names(configs))}")
    return path.absolute()


def list_names(folder: Path, suffix: str = "gin") -> list[str]:
    """Names of a folder's files with this suffix."""
    return sorted(path.stem for path in folder.glob(f"*.{suffix}"))
