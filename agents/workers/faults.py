"""What environments give, checked: whatever is wrong with it becomes an `EnvironmentFault` that says where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from agents.errors import EnvironmentFault
from rbs_tf.errors import described


def time_step_of(
    environment: py_environment.PyEnvironment, where: str, call: Callable, *args: np.ndarray
) -> ts.TimeStep:
    """Calls the environment's `reset` or `step`; what it raises, and observations that do not fit its spec, are faults.

    Rewards and observations may still be NaN or infinite.
    """
    try:
        time_step = call(*args)
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{where}: {error}") from error
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"{where}: {described(error)}") from error
    observation, spec = np.asarray(time_step.observation), environment.observation_spec()
    expected = (environment.batch_size, *spec.shape)
    if observation.shape != expected or observation.dtype != spec.dtype:
        raise EnvironmentFault(
            f"{where}: observations are {observation.dtype} {observation.shape}, and the environment's spec says "
            f"{np.dtype(spec.dtype)} {expected}"
        )
    return time_step


def check_finite(reward: np.ndarray, observation: np.ndarray, who: str, first_step: int) -> None:
    """Checks rewards [K, N] and observations [K, N, ...] of K steps: it is a fault if one is NaN or infinite."""
    for what, values in (("reward", reward), ("observation", observation)):
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            row, index, *rest = np.argwhere(~np.isfinite(values))[0]
            raise EnvironmentFault(
                f"{who}, environment {index}: {what} {values[(row, index, *rest)]} at its step {first_step + row}; "
                "it must be finite. Repair the environment, or clip there what it gives"
            )
