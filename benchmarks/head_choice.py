"""Which head should act at the end: the bandit's, or the best of a trial? `python -m benchmarks.head_choice RUN_DIR...`

For each run its newest checkpoint: the head that the bandit is surest of, and the one that successive halving (Karnin
et al. 2013) finds with as many greedy episodes as the run's last evaluation has. Both then play as many new episodes,
and docs/results/head_choice.csv gets a row of human-normalised means.

Named before the first: the runs with ten heads at the rate 5e-4, in each game of large_rewards.sweep that is complete.
The trial wins if the 95% interval of the mean difference (Student's t) lies above 0.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import stats

from agents import Agent
from agents.bandit import successive_halving
from agents.commands import play
from benchmarks.performance import ROOT
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.scores import human_normalised_score

TABLE = ROOT / "docs/results/head_choice.csv"
COLUMNS = ("run", "bandit", "bandits", "trial", "trials")  # heads, and what they score


def returns_of(
    agent: Agent, environment: GymnasiumVectorEnvironment, head: int, episodes: int
) -> list[float]:
    """Returns of greedy episodes."""
    agent.let_act(head)
    return [moment.episode_return for moment in play.moments(agent, environment, episodes) if moment.ended]


def row(run: Path) -> dict[str, str]:
    """The line of a run."""
    agent = Agent.load(run, "latest")
    names, chosen = agent.heads.names, agent.head
    with agent.configured() as settings:
        episodes = settings.train.eval_envs * settings.train.final_eval_rounds
    with contextlib.closing(agent.make_environment(8, seed=1)) as environment:

        def play(acting: list[int]) -> Iterator[tuple[int, float]]:
            for head, times in collections.Counter(acting).items():
                yield from ((head, each) for each in returns_of(agent, environment, head, times))

        tried, _ = successive_halving(play, len(names), episodes)
    with contextlib.closing(agent.make_environment(8, seed=2)) as environment:
        returns = {head: returns_of(agent, environment, head, episodes) for head in {chosen, tried}}
        means = {head: human_normalised_score(environment.game, np.mean(returns[head])) for head in returns}
    found = (run.name, names[chosen], f"{means[chosen]:.4g}", names[tried], f"{means[tried]:.4g}")
    return dict(zip(COLUMNS, found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIR")
    rows = []
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            rows = list(csv.DictReader(file))
    for run in parser.parse_args().runs:
        if run.name not in {each["run"] for each in rows}:
            rows.append(row(run))
            print(rows[-1], flush=True)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    differences = [float(each["trials"]) - float(each["bandits"]) for each in rows]
    low, high = stats.ttest_1samp(differences, 0.0).confidence_interval()
    print(f"trial minus bandit: {np.mean(differences):.3g} [{low:.3g}, {high:.3g}], {len(rows)} runs")


if __name__ == "__main__":
    main()
