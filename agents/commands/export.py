"""Exports a trained policy as a SavedModel that needs only TensorFlow: `python -m agents export RUN_DIR OUT_DIR`."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.commands.flags import Parser, a_path, check_output
from agents.commands.loading import add_arguments, find_folder
from agents.errors import UsageError, is_pattern

if TYPE_CHECKING:
    from agents import Agent

DESCRIPTION = "policy.json"


def save(agent: Agent, out_dir: str | os.PathLike) -> None:
    """Writes the policy of a run's evaluations by TF-Agents' `PolicySaver`, and `policy.json`, which describes it.

    What `tf.saved_model.load` gives has `get_initial_state(batch_size)` and `action(time_step, policy_state)`, which
    returns a `PolicyStep`: `action` [B], counted from 0, the `state` for the next step, and in `info` what the policy
    says, `greedy_values` float32 [B, H] among it: each head's highest value in the network's units.

    Args:
      agent: its weights are copied.
      out_dir: a folder that does not exist yet.
    """
    from tf_agents.policies import policy_saver

    def no_distribution(*_: Any, **__: Any) -> None:
        raise NotImplementedError("an exported policy acts: call action()")

    final = Path(out_dir)
    policy = agent.tf_agent.policy
    policy.distribution = no_distribution  # it would need TensorFlow Probability to load
    logging.disable(logging.WARNING)  # about the missing distribution, and about Keras layers
    try:
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".exported.") as unfinished:
            new = Path(unfinished, final.name)
            policy_saver.PolicySaver(policy).save(str(new))
            (new / DESCRIPTION).write_text(json.dumps(_description(agent), indent=2) + "\n")
            new.rename(final)
    finally:
        logging.disable(logging.NOTSET)
        del policy.distribution


def _description(agent: Agent) -> dict[str, Any]:
    heads = agent.heads
    return {
        "environment": agent.name,
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
    what = "Writes what a run has learned as a SavedModel, which needs only TensorFlow: it acts as the evaluations did."
    parser = Parser(prog="python -m agents export", description=what)
    add_arguments(parser)
    parser.add_argument("out_dir", type=a_path, metavar="OUT_DIR", help="folder to make")
    options = parser.parse_args(argv)
    folder = find_folder(options)
    out_dir = Path(options.out_dir).absolute()
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
