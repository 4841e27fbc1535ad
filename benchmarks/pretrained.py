"""Puts what a run has learned into the repository, small enough for it, and measures what is left of it.

    .venv/bin/python -m benchmarks.pretrained runs/atari_small-pong-return-seed0 pong

Takes the weights of the best evaluation, rounds them to the 8 significant bits of bfloat16, which compress to less than
half, and plays 100 new episodes with them: theirs is the mean return that `play --pretrained` names, and unlike
that of the best of many evaluations it is not biased upward. Writes pretrained/NAME.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from agents.running.startup import quiet
from agents.storage.run_folder import BEST, CONFIG

quiet()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from agents import Agent  # noqa: E402
from agents.commands.loading import PRETRAINED  # noqa: E402
from agents.commands.play import SIDE_BY_SIDE, interval, moments  # noqa: E402
from agents.errors import UsageError  # noqa: E402
from agents.storage import best  # noqa: E402
from agents.storage.weights import pack  # noqa: E402
from rbs_tf.environments.batched import GymnasiumVectorEnvironment  # noqa: E402

EPISODES = 100


def round_weights(agent: Agent) -> None:
    """Gives the network weights that bfloat16 can hold."""
    for variable in agent.tf_agent.network.variables:
        variable.assign(tf.cast(tf.cast(variable, tf.bfloat16), variable.dtype))


def played(agent: Agent, environment: GymnasiumVectorEnvironment) -> np.ndarray:
    """Returns of new episodes, float64 [EPISODES]."""
    return np.array([m.episode_return for m in moments(agent, environment, EPISODES) if m.ended])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("name", metavar="NAME")
    options = parser.parse_args(argv)
    try:
        agent = Agent.load(options.run_dir)
        environment = agent.make_environment(SIDE_BY_SIDE, seed=1)
    except UsageError as error:
        parser.exit(2, f"{error}\n")
    before = played(agent, environment)
    round_weights(agent)
    after = played(agent, environment)
    for what, returns in (("as learned", before), ("rounded", after)):
        low, high = interval(returns)
        print(f"{what}: {returns.mean():.4g} per episode, 95% interval [{low:.4g}, {high:.4g}]")
    folder = PRETRAINED / options.name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(options.run_dir / CONFIG, folder)
    found = best.Found(agent.update, float(after.mean()), len(after))
    weights = pack([tf.identity(variable) for variable in agent.tf_agent.acting_variables])
    np.savez_compressed(folder / BEST, weights=weights, **found._asdict())
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(f"{folder}: {size:.2f} MB, weights of update {agent.update:,}")


if __name__ == "__main__":
    main()
