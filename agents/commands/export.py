"""Exports a trained policy as a SavedModel that needs only TensorFlow: `python -m agents export RUN_DIR OUT_DIR`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.commands.flags import Parser, a_path, check_output
from agents.commands.loading import add_arguments, find_folder
from agents.errors import UsageError, is_pattern

if TYPE_CHECKING:
    from tf_agents.policies import tf_policy

    from agents import Agent

DESCRIPTION = "policy.json"


def save(agent: Agent, out_dir: str | os.PathLike) -> None:
    """Writes the greedy policy by TF-Agents' `PolicySaver`, and `policy.json`, which describes it.

    What `tf.saved_model.load` gives has `get_initial_state(batch_size)` and `action(time_step, policy_state)`, which
    returns a `PolicyStep`: `action` [B] of the environment's own space, the `state` for the next step, and in `info`
    "values", float32 [B, H], each head's highest, see `Agent.reward_values`. Rewards are the environment's own. On a
    first step everything but the observation is forgotten.

    Args:
      agent: its weights are copied.
      out_dir: a folder that does not exist yet.
    """
    from tf_agents.policies import policy_saver

    final = Path(out_dir)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".exported.") as unfinished, _no_advice():
        new = Path(unfinished, final.name)
        policy_saver.PolicySaver(_policy(agent)).save(str(new))
        (new / DESCRIPTION).write_text(json.dumps(_description(agent), indent=2) + "\n")
        new.rename(final)


def _policy(agent: Agent) -> tf_policy.TFPolicy:
    """The agent's greedy policy; `info` holds only the values, in reward units."""
    import tensorflow as tf
    from tf_agents.policies import greedy_policy, tf_policy
    from tf_agents.specs import tensor_spec

    class Exported(tf_policy.TFPolicy):
        def __init__(self) -> None:
            acting = agent.tf_agent.policy
            values = tf.TensorSpec((len(agent.heads),), tf.float32)
            first, counted = agent.first_action, acting.action_spec
            limits = first, first + agent.num_actions - 1
            own = tensor_spec.BoundedTensorSpec(counted.shape, counted.dtype, *limits, counted.name)
            specs = acting.time_step_spec, own, acting.policy_state_spec, {"values": values}
            super().__init__(*specs, clip=False, automatic_state_reset=False)
            self._greedy, self._units = greedy_policy.GreedyPolicy(acting), agent.tf_agent.scaling

        def _action(self, time_step: Any, policy_state: Any, seed: Any) -> Any:
            first = time_step.is_first()
            time_step = time_step._replace(reward=tf.where(first, 0.0, time_step.reward))
            step = self._greedy.action(time_step, policy_state)
            action = step.action + tf.cast(agent.first_action, step.action.dtype)
            return step._replace(action=action, info={"values": agent.reward_values(step.info.greedy_values)})

        def _distribution(self, time_step: Any, policy_state: Any) -> Any:
            # It would need TensorFlow Probability to load.
            raise NotImplementedError("an exported policy acts greedily: call action()")

    return Exported()


@contextlib.contextmanager
def _no_advice() -> Iterator[None]:
    """Silences warnings about the missing distribution and about Keras layers."""
    # Not by their levels, which saving changes.
    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _description(agent: Agent) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    from agents.commands import configuration

    heads, spec, make = agent.heads, agent.observation_spec, "environments.make."
    with agent.configured():
        bound = list(configuration.bound())
    settings = {name.removeprefix(make): value for name, value in bound if name.startswith(make)}

    def described(spec: Any) -> dict[str, Any]:
        return {"shape": list(spec.shape), "dtype": np.dtype(spec.dtype).name}

    return {
        "environment": agent.name,
        "environment_settings": settings,
        "observation": tf.nest.map_structure(described, spec),
        "num_actions": agent.num_actions,
        "first_action": agent.first_action,
        "heads": list(heads.names),
        "acting_head": heads.names[agent.head],
        "reward_multiplier": heads.reward_multiplier,
        "update": agent.update,
        "weights": agent.weights,
    }


def main(argv: Sequence[str]) -> int:
    """Exports what the arguments name; returns the exit code 0.

    Raises:
      UsageError: it cannot be done.
    """
    what = "Writes what a run has learned as a SavedModel: it acts greedily and needs only TensorFlow."
    parser = Parser(prog="python -m agents export", description=what)
    add_arguments(parser)
    parser.add_argument("out_dir", type=a_path, metavar="OUT_DIR", help="folder to make")
    options = parser.parse_args(argv)
    folder, out_dir = find_folder(options), Path(options.out_dir).absolute()
    if os.path.lexists(out_dir):
        raise UsageError(f"{out_dir} exists already: give a folder that is to be made.")
    if not out_dir.parent.is_dir():
        raise UsageError(f"{out_dir} cannot be made: give one in a folder that exists and is yours.")
    if is_pattern(out_dir):
        why = "TensorFlow loads no model from a path with brackets or backslashes"
        raise UsageError(f"{out_dir} would be of no use: {why}. Give another folder.")
    check_output("OUT_DIR", out_dir)
    from agents import Agent

    agent = Agent.load(folder, options.checkpoint, options.head)
    save(agent, out_dir)
    print(f"{agent.name}. {agent.weights} {agent.chosen}")
    print(f"SavedModel: {options.out_dir}, described in its {DESCRIPTION}.")
    return 0
