"""What environments give, checked: whatever is wrong with it becomes an `EnvironmentFault` that says where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    specs = environment.observation_spec()
    for name, spec in specs.items() if isinstance(specs, dict) else [(None, specs)]:
        observation = np.asarray(time_step.observation if name is None else time_step.observation[name])
        expected = (environment.batch_size, *spec.shape)
        if observation.shape != expected or observation.dtype != spec.dtype:
            which = "" if name is None else f" {name!r}"
            raise EnvironmentFault(
                f"{where}: observations{which} are {observation.dtype} {observation.shape}, and the environment's spec "
                f"says {np.dtype(spec.dtype)} {expected}"
            )
    return time_step


def check_finite(reward: np.ndarray, observation: Any, who: str, first_step: int) -> None:
    """Checks rewards [K, N] and observations of K steps: it is a fault if one is NaN or infinite.

    Observations are [K, N, ...], or of one step arrays [N, ...] by name.
    """
    parts = {"reward": reward, "observation": observation}
    if isinstance(observation, dict):
        parts = {"reward": reward} | {
            f"observation {name!r}": part[None] for name, part in observation.items()
        }
    for what, values in parts.items():
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            row, index, *rest = np.argwhere(~np.isfinite(values))[0]
            raise EnvironmentFault(
                f"{who}, environment {index}: {what} {values[(row, index, *rest)]} at its step {first_step + row}; "
                "it must be finite. Repair the environment, or clip there what it gives"
            )
