"""The seeds of a run's parts."""

from __future__ import annotations

import numpy as np


class Seeds:
    """A seed of its own for every part of a run, all from `train.seed`: no two parts see the same random numbers.

    Those of a run's separate collectors also depend on when it was started.

    Attributes:
      of_run: the weights', and of the agent that learns.
      draws: of the replay.
    """

    def __init__(self, seed: int):
        self.of_run = seed
        self.draws = self._derive(1, 1)

    def evaluation_seed(self, step: int) -> int:
        """The seed of the evaluations of a run that starts or goes on at update `step`."""
        return self._derive(1, 0, step)

    def collection_seed(self, step: int) -> int:
        """The seed of the environments of a run in one process that starts or goes on at update `step`."""
        return self._derive(0, step)

    def collector_seed(self, index: int, start: int, seconds: int) -> int:
        """The seed of a collector process.

        Args:
          index: of the collector.
          start: how often it was started before.
          seconds: when the process was started, in seconds since 1970.
        """
        return self._derive(2 + index, start, seconds)

    def _derive(self, *purpose: int) -> int:
        return int(np.random.SeedSequence([self.of_run, *purpose]).generate_state(1)[0] >> 1)
