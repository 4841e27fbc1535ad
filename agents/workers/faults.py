"""Whatever goes wrong in an environment becomes an `EnvironmentFault` that says where."""

from __future__ import annotations

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from agents.errors import EnvironmentFault
from rbs_tf.errors import described


def time_step_of(
    environment: py_environment.PyEnvironment, who: str, step: int, actions: np.ndarray | None = None
) -> ts.TimeStep:
    """Steps the environment, or resets it without actions.

    Args:
      who: acts in it, for messages.
      step: number of the environments' step.

    Raises:
      EnvironmentFault: it raised something.
    """
    try:
        return environment.reset() if actions is None else environment.step(actions)
    except (Exception, SystemExit) as error:
        why = error if isinstance(error, EnvironmentFault) else described(error)
        raise EnvironmentFault(f"{who}, environments' step {step}: {why}") from error
