"""Which Atari games have rewards worth scaling?

    python -m benchmarks.random_rewards --output=docs/results/random_rewards.csv

Plays every game of `rbs_tf.scores` with uniformly random actions, under the settings of configs/atari_small.gin. A row
per game, over its rewarded steps: their number; `size`, log10 of the root mean square reward; `variety`, the standard
deviation of log10 |reward|; and the sum of its ranks in both, the largest first. It prints the games with the lowest
sums, without those of `LEFT_OUT` and those with fewer than `REWARDED` rewarded steps, which 130,000 steps teach little.
A quarter of an hour of one core.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from scipy import stats

from rbs_tf import environments, scores

STEPS, NUM_ENVS, REWARDED, CHOSEN = 2000, 16, 100, 12
LEFT_OUT = {
    "pong": "settings were tuned on it",
    "breakout": "settings were tuned on it",
    "road_runner": "looked at",
    "crazy_climber": "looked at",
    "assault": "looked at",
    "demon_attack": "looked at",
    "video_pinball": "random play scores nearly what a human does",
}


def rewards_of(game: str) -> np.ndarray:
    """Rewards other than 0 of a uniformly random player, float64 [N]."""
    env = environments.make(
        game,
        num_envs=NUM_ENVS,
        seed=0,
        full_action_set=False,
        fire_on_new_life=True,
        max_episode_steps=4500,
        img_height=84,
        img_width=84,
        grayscale=True,
    )
    actions = np.random.default_rng(0).integers(env.num_actions, size=(STEPS, NUM_ENVS))
    env.reset()
    rewards = np.array([env.step(action).reward for action in actions], np.float64)
    env.close()
    return rewards[rewards != 0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    rows = []
    for game in scores.GAMES:
        rewards = np.abs(rewards_of(game))
        size, variety = -np.inf, 0.0
        if len(rewards):
            size, variety = 0.5 * np.log10(np.mean(rewards**2)), np.std(np.log10(rewards))
        rows.append({"game": game, "rewarded": len(rewards), "size": size, "variety": variety})
        print(*rows[-1].values(), flush=True)
    ranks = sum(stats.rankdata([-row[column] for row in rows]) for column in ("size", "variety"))
    rows = [row | {"ranks": rank} for row, rank in zip(rows, ranks, strict=True)]
    rows.sort(key=lambda row: (row["ranks"], row["game"]))
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {key: f"{row[key]:.3g}" for key in ("size", "variety")} for row in rows)
    fit = [row["game"] for row in rows if row["game"] not in LEFT_OUT and row["rewarded"] >= REWARDED]
    print("chosen:", *fit[:CHOSEN])


if __name__ == "__main__":
    main()
