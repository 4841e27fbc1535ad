"""Exports a trained policy as a SavedModel that needs TensorFlow alone: `python -m agents export RUN_DIR OUT_DIR`."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.commands.flags import Parser, a_path, check_output
from agents.commands.loading import add_arguments, find_folder
from agents.errors import UsageError, is_pattern

if TYPE_CHECKING:
    import tensorflow as tf

    from agents import Agent

DESCRIPTION = "policy.json"


def save(agent: Agent, out_dir: str | os.PathLike) -> None:
    """Writes the SavedModel of a greedy policy, and `policy.json`, which describes it.

    It has two functions, which are its signatures, too (`act` is "serving_default"):

        initial_state(batch_size: int32 scalar) -> hidden, cell, previous_action
        act(observation, reward, discount, step_type, hidden, cell, previous_action)
            -> action int32 [B], values float32 [B, H], hidden, cell, previous_action

    reward, discount float32 [B] and step_type int32 [B] (0 first, 1 mid, 2 last) are those of the time step that the
    observation belongs to; rewards are the environment's own. On a first step everything but the observation is
    forgotten. Actions are of the environment's own space, `previous_action` counts from 0. values are each head's
    highest, see `Agent.reward_values`.

    Args:
      agent: its weights are copied.
      out_dir: a folder that does not exist yet.
    """
    import tensorflow as tf

    final, module = Path(out_dir), _module(agent)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".exported.") as unfinished:
        new = Path(unfinished, final.name)
        signatures = {"serving_default": module.act, "initial_state": module.initial_state}
        tf.saved_model.save(module, str(new), signatures=signatures)
        (new / DESCRIPTION).write_text(json.dumps(_description(agent), indent=2) + "\n")
        new.rename(final)


def _module(agent: Agent) -> tf.Module:
    """Tracks variables alone: with a network come all of its layers' call functions and their classes."""
    import tensorflow as tf

    network, spec = agent.tf_agent.network, agent.observation_spec
    units = [part.shape[0] for part in network.state_spec]

    def act(
        observation: Any,
        reward: Any,
        discount: Any,
        step_type: Any,
        hidden: Any,
        cell: Any,
        previous_action: Any,
    ) -> dict[str, tf.Tensor]:
        del discount  # part of a time step, and of no use for acting
        first = tf.equal(step_type, 0)
        reward = tf.where(first, 0.0, reward)
        previous_action = tf.where(first, -1, previous_action)
        outputs, (hidden, cell) = network((observation, previous_action, reward), step_type, (hidden, cell))
        outputs = agent.tf_agent.scaling.decode(outputs)
        action = tf.argmax(outputs[:, agent.head], axis=-1, output_type=tf.int32)
        values = agent.reward_values(tf.reduce_max(outputs, axis=-1))
        own, state = action + agent.first_action, {"hidden": hidden, "cell": cell, "previous_action": action}
        return {"action": own, "values": values, **state}

    def initial_state(batch_size: tf.Tensor) -> dict[str, tf.Tensor]:
        hidden, cell = (tf.zeros((batch_size, size)) for size in units)
        return {"hidden": hidden, "cell": cell, "previous_action": tf.fill((batch_size,), -1)}

    def column(name: str, dtype: Any = tf.float32, shape: Sequence[int] = ()) -> tf.TensorSpec:
        return tf.TensorSpec((None, *shape), dtype, name)

    def seen(spec: Any, name: str) -> tf.TensorSpec:
        return column(re.sub(r"\W", "_", name), spec.dtype, spec.shape)

    parts = spec.items() if isinstance(spec, dict) else ()
    observation = {part: seen(each, f"observation_{part}") for part, each in parts} or seen(
        spec, "observation"
    )
    signature = [observation, column("reward"), column("discount"), column("step_type", tf.int32)]
    signature += [column("hidden", shape=units[:1]), column("cell", shape=units[1:])]
    signature += [column("previous_action", tf.int32)]
    module = tf.Module()
    module.act = tf.function(act, input_signature=signature, autograph=False)
    batch_size = [tf.TensorSpec((), tf.int32, "batch_size")]
    module.initial_state = tf.function(initial_state, input_signature=batch_size, autograph=False)
    module.weights = [*network.variables, *agent.tf_agent.scaling.variables]
    return module


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
