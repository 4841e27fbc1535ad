"""What environments give, checked: whatever is wrong with it becomes an `EnvironmentFault` that says where."""

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
      EnvironmentFault: it raised something, or a reward or an observation is NaN or infinite.
    """
    try:
        time_step = environment.reset() if actions is None else environment.step(actions)
    except (Exception, SystemExit) as error:
        why = error if isinstance(error, EnvironmentFault) else described(error)
        raise EnvironmentFault(f"{who}, environments' step {step}: {why}") from error
    parts, observation = {"reward": time_step.reward}, time_step.observation
    if isinstance(observation, dict):
        parts |= {f"observation {name!r}": part for name, part in observation.items()}
    else:
        parts["observation"] = observation
    for what, values in parts.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            index, *rest = np.argwhere(~np.isfinite(values))[0]
            raise EnvironmentFault(
                f"{who}, environment {index}: {what} {values[(index, *rest)]} at its step {step}; "
                "it must be finite. Repair the environment, or clip there what it gives"
            )
    return time_step
