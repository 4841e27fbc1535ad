"""The learner's loop: statistics, then an update where one is due, otherwise more experience."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agents.monitoring.progress import COMPILING
from agents.settings import TrainSettings
from agents.workers.learner import Learner


class Source(Protocol):
    """Where experience comes from, and at which pace."""

    def is_due(self) -> bool:
        """Whether another update keeps to the run's pace."""

    def gather(self) -> None:
        """Collects, or waits until others have."""


def learn(
    learner: Learner,
    source: Source,
    training: TrainSettings,
    stopped: Callable[[], bool],
    after_update: Callable[[int], None],
    save: Callable[[], None],
    show: Callable[[list[float], str], None],
) -> None:
    """Learns until the run has made its updates or collected its steps, or `stopped`.

    Args:
      after_update: called with the number of updates so far: evaluates, or publishes weights.
      save: writes a checkpoint, every `checkpoint_interval` updates.
      show: called with the returns of finished episodes, and with the name of slow work that begins, or "".
    """
    first = learner.updates
    while not stopped() and learner.updates < training.updates:
        # Before the first update, too: the first priorities should know the scale.
        show(learner.drain_statistics(), "")
        if not source.is_due():
            if training.is_over(learner.updates, learner.environment_steps):
                return
            source.gather()
            continue
        if learner.updates == first:
            show([], COMPILING)
        learner.update()
        after_update(learner.updates)
        if learner.updates % training.checkpoint_interval == 0:
            save()
