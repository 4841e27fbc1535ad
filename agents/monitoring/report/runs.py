"""Run folders as train.py leaves them: what was asked for, by which versions, how far it came, what it logged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.monitoring.report import events, settings
from rbs_tf import scores
from rbs_tf.environments.names import ATARI_IDS

CONFIG, OPERATIVE = "config.gin", "operative_config.gin"
_LOSS = "loss/"


class Run(NamedTuple):
    """One run.

    Attributes:
      folder: where it is.
      settings: of its operative configuration, see `agents.monitoring.report.settings`.
      environment: its name; Atari games by their plain ones.
      seed: of its configuration.
      planned: learner updates that were asked for, or None.
      updates, steps: learner updates and environment steps so far, as far as logged or in a checkpoint.
      state: "finished", "running" (a process holds the folder's lock) or "stopped".
      starts: how often it was started; after the first it went on from a checkpoint.
      versions: package -> version, and "commit", of the last start.
      train, evaluation: what it wrote for TensorBoard.
    """

    folder: Path
    settings: Mapping[str, Any]
    environment: str
    seed: int
    planned: int | None
    updates: int
    steps: int | None
    state: str
    starts: int
    versions: Mapping[str, str]
    train: events.Events
    evaluation: events.Events

    @property
    def game(self) -> str | None:
        """The game's plain name if it has human-normalised scores."""
        return self.environment if scores.has_score(self.environment) else None

    @property
    def heads(self) -> list[str]:
        """Names of the heads in the order of the network's outputs; empty without any summary of the loss."""
        return [tag.removeprefix(_LOSS) for tag in self.train.scalars if tag.startswith(_LOSS)]

    @property
    def steps_of_updates(self) -> np.ndarray:
        """Environment steps at updates: float64 [N, 2]; empty if they were not logged."""
        return self.train.scalars.get("environment_steps", np.empty((0, 2)))


class Unreadable(Exception):
    """A run folder whose configuration does not say what it is."""


def find(folders: Iterable[str | os.PathLike]) -> list[Path]:
    """Run folders among and below the given ones, each once, in alphabetical order; links below are not followed."""
    found = set()
    for folder in folders:
        for path, below, files in os.walk(folder):
            if CONFIG in files or OPERATIVE in files:
                found.add(Path(path).resolve())
                below.clear()  # a run holds no other
    return sorted(found, key=_natural)


def read(folder: Path) -> Run:
    """Reads a run folder.

    Raises:
      Unreadable: no (whole) operative configuration, or one without an environment.
    """
    try:
        configured = settings.read(folder / OPERATIVE)
    except FileNotFoundError:
        raise Unreadable(
            f"no {OPERATIVE}: the run has not got as far as building what it configures"
        ) from None
    except (SyntaxError, ValueError, OSError) as error:
        raise Unreadable(f"{OPERATIVE} cannot be read ({str(error).splitlines()[0]})") from None
    if "train.env" not in configured:
        raise Unreadable(f"{OPERATIVE} does not say train.env")
    train, evaluation = events.read(folder / "train"), events.read(folder / "eval")
    logged = [values[-1, 0] for of in (train, evaluation) for values in of.scalars.values()]
    updates = int(max([0, *logged, *_checkpoints(folder)]))
    taken = train.scalars.get("environment_steps")
    steps = None if taken is None else int(taken[-1, 1])
    planned, limit = configured.get("train.updates"), configured.get("train.environment_steps")
    finished = (planned is not None and updates >= planned) or (
        limit is not None and steps is not None and steps >= limit
    )
    environment = configured["train.env"]
    return Run(
        folder=folder,
        settings=configured,
        environment=ATARI_IDS.get(environment, environment),
        seed=configured.get("train.seed", 0),
        planned=planned,
        updates=updates,
        steps=steps,
        state="running" if _locked(folder / "lock") else "finished" if finished else "stopped",
        starts=len(_lines(folder / "command.txt")),
        versions=_versions(folder / "versions.txt"),
        train=train,
        evaluation=evaluation,
    )


def _natural(path: Path) -> list:
    """seed2 before seed10."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", str(path))]


def _checkpoints(folder: Path) -> Iterator[int]:
    return (int(path.name) for path in (folder / "checkpoints").glob("*") if path.name.isdigit())


def _versions(path: Path) -> dict[str, str]:
    """The file's lines, "name version"."""
    return {name: version for name, _, version in (line.partition(" ") for line in _lines(path)) if version}


def _lines(path: Path) -> list[str]:
    """A file's lines; none without the file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _locked(path: Path) -> bool:
    """Whether a process of this machine holds the lock, found out without taking it from a run that starts now."""
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any("FLOCK" in line and f":{inode} " in line and "->" not in line for line in locks)
