"""Run folders as train.py leaves them: what was asked for, by which versions, how far it came, what it logged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.errors import RunFolderError
from agents.monitoring.report import recorded
from agents.monitoring.tags import DEAD, EVALUATION, OVER_STEPS, RETURN, STEPS, TRAIN
from agents.storage import run_folder
from agents.storage.run_folder import CONFIG, OPERATIVE
from rbs_tf.environments.names import ATARI_IDS

Scalars = Mapping[str, np.ndarray]  # tag -> float64 [N, 2], step and value, in the order of steps


class Run(NamedTuple):
    """One run, as its folder tells it."""

    folder: Path
    settings: recorded.Settings  # of its operative configuration
    environment: str  # Atari games by their plain names
    seed: int
    planned: int | None  # learner updates that were asked for
    updates: int  # learner updates so far, as far as logged or in a checkpoint
    steps: int | None  # environment steps so far, as far as logged
    state: str  # "finished", "running" (a process holds the folder's lock) or "stopped"
    versions: Mapping[str, str]  # package -> version, and "commit", of the last start
    train: Scalars  # over updates, as are evaluations
    evaluation: Scalars

    @property
    def dead_units(self) -> float:
        """Share of dead units in the torso's layer that has most of them, at the last look; NaN without one."""
        return max(
            (of[-1, 1] for tag, of in self.train.items() if tag.startswith(f"{DEAD}/")), default=np.nan
        )

    def returns(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Updates and mean returns per episode, of "training" or "evaluation": float64 [N] each."""
        logged = self.train if kind == "training" else self.evaluation
        updates, values = logged.get(RETURN, np.empty((0, 2))).T
        return updates, values


def find_runs(folders: Iterable[str | os.PathLike]) -> list[Path]:
    """Run folders among and below the given ones, each once, in alphabetical order; links below are not followed."""
    found = set()
    for folder in folders:
        for path, below, files in os.walk(os.fspath(folder)):
            if CONFIG in files or OPERATIVE in files:
                found.add(Path(path).resolve())
                below.clear()  # a run holds no other
    return sorted(found)


def read_run(folder: Path) -> Run:
    """Reads a run folder.

    Raises:
      RunFolderError: no (whole) operative configuration, or one without an environment.
    """
    path = folder / OPERATIVE
    if not path.is_file():
        raise RunFolderError(f"no {path.name}: the run has not got as far as building what it configures")
    try:
        configured = recorded.parse(path.read_text(encoding="utf-8"))
        environment = configured["train.env"]
    except (SyntaxError, ValueError, KeyError) as error:
        raise RunFolderError(f"{path.name} cannot be read ({str(error).splitlines()[0]})") from None
    train, evaluation = scalars(folder / TRAIN), scalars(folder / EVALUATION)
    logged = [values[-1, 0] for of in (train, evaluation) for values in of.values()]
    updates = int(max([run_folder.newest_step(folder), *logged]))
    steps = int(train[STEPS][-1, 1]) if STEPS in train else None
    planned = configured.get("train.updates")
    limit = configured.get("train.environment_steps")
    made_updates = planned is not None and updates >= planned
    made_steps = limit is not None and (steps or 0) >= limit
    state = "finished" if made_updates or made_steps else "stopped"
    if run_folder.is_locked(folder):
        state = "running"
    return Run(
        folder=folder,
        settings=configured,
        environment=ATARI_IDS.get(environment, environment),
        seed=configured.get("train.seed", 0),
        planned=planned,
        updates=updates,
        steps=steps,
        state=state,
        versions={"commit": "unknown"} | run_folder.recorded_versions(folder),
        train=train,
        evaluation=evaluation,
    )


def scalars(folder: Path) -> Scalars:
    """Scalars over updates in the TensorBoard files of a folder, not of its sub-folders.

    Of a run that was resumed, the later file wins: from its first entry of a tag on, earlier files' are of updates that
    were made again. Of a file that breaks off inside a record, what stands before is used.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    series: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.tfevents.*")):  # names contain the time
        file = EventAccumulator(str(path), size_guidance={"tensors": 0}).Reload()
        for tag in file.Tags()["tensors"]:
            if file.SummaryMetadata(tag).plugin_data.plugin_name != "scalars" or tag.endswith(OVER_STEPS):
                continue
            new = np.array(
                [(event.step, make_ndarray(event.tensor_proto)) for event in file.Tensors(tag)], np.float64
            )
            new = new[np.argsort(new[:, 0], kind="stable")]
            earlier = series.get(tag, new[:0])
            series[tag] = np.concatenate([earlier[earlier[:, 0] < new[0, 0]], new])
    return series
