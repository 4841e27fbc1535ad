"""Which head should act at the end: the bandit's, or the best of a trial? `python -m benchmarks.head_choice RUN_DIR...`

For each run its newest checkpoint: the head that the bandit is surest of, and the one that successive halving (Karnin
et al. 2013) finds with as many greedy episodes as the run's last evaluation has. Both then play as many new episodes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from agents import Agent
from agents.commands import play
from rbs_tf.environments.batched import GymnasiumVectorEnvironment


def successive_halving(returns_of: Callable[[int, int], Sequence[float]], heads: int, episodes: int) -> int:
    """The head of the highest mean; each round gives what is left an equal share and drops the worse half.

    Args:
      returns_of: returns of a head in so many more episodes.
      heads: H.
      episodes: in all; every head plays at least one a round.
    """
    left, found = list(range(heads)), [[] for _ in range(heads)]
    rounds = max(1, math.ceil(math.log2(heads)))
    for _ in range(rounds):
        for head in left:
            found[head] += returns_of(head, max(1, episodes // (rounds * len(left))))
        left = sorted(left, key=lambda head: -np.mean(found[head]))[: math.ceil(len(left) / 2)]
    return left[0]


def returns_of(
    agent: Agent, environment: GymnasiumVectorEnvironment, head: int, episodes: int
) -> list[float]:
    """Returns of greedy episodes."""
    agent.let_act(head)
    return [moment.episode_return for moment in play.moments(agent, environment, episodes) if moment.ended]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    options = parser.parse_args()
    differences = []
    for run in options.runs:
        agent = Agent.load(run, "latest")
        names, chosen = agent.heads.names, agent.head
        with agent.configured() as settings:
            episodes = settings.train.eval_envs * settings.train.final_eval_rounds
        with contextlib.closing(agent.make_environment(8, seed=1)) as environment:
            tried = successive_halving(
                functools.partial(returns_of, agent, environment), len(names), episodes
            )
        with contextlib.closing(agent.make_environment(8, seed=2)) as environment:
            means = {
                head: np.mean(returns_of(agent, environment, head, episodes)) for head in {chosen, tried}
            }
        differences.append(means[tried] - means[chosen])
        print(
            f"{run.name}: bandit {names[chosen]} {means[chosen]:.4g}, trial {names[tried]} {means[tried]:.4g}",
            flush=True,
        )
    half = (
        1.96 * np.std(differences, ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    )
    print(f"trial minus bandit: {np.mean(differences):.3g} +- {half:.2g}, {len(differences)} runs")


if __name__ == "__main__":
    main()
