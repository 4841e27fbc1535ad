"""Steps of an environment: how long the present one takes, and where one went wrong."""

from __future__ import annotations

import time

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from agents.errors import EnvironmentFault
from rbs_tf.errors import describe


class Stepper:
    """Steps an environment for somebody who is named in messages.

    Args:
      environment: of other people, so that anything may go wrong in it.
      name: who acts in it.
    """

    def __init__(self, environment: py_environment.PyEnvironment, name: str):
        self._environment, self._name = environment, name
        self._since: float | None = None  # monotonic time at which the present step began

    @property
    def seconds(self) -> float:
        """How long the present step has taken, for supervision from another thread; 0 between steps."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def step(self, number: int, actions: np.ndarray | None = None) -> ts.TimeStep:
        """Steps the environment, or resets it without actions; `number` is the step's.

        Raises:
          EnvironmentFault: the environment raised something.
        """
        self._since = time.monotonic()
        try:
            return self._environment.reset() if actions is None else self._environment.step(actions)
        except (Exception, SystemExit) as error:
            why = error if isinstance(error, EnvironmentFault) else describe(error)
            raise EnvironmentFault(f"{self._name}, environments' step {number}: {why}") from error
        finally:
            self._since = None
