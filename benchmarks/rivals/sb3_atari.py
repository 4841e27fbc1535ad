"""A user's alternative: Stable-Baselines3's DQN and sb3-contrib's QR-DQN on an Atari game, on one core.

    make rivals-venv
    .venv-rivals/bin/python -m benchmarks.rivals.sb3_atari --algorithm=dqn --game=pong --core=0

Settings are RL-Zoo's for Atari, run as they stand: exploration is planned over 1e7 steps, of which an hour on one core
makes a small part. The one exception is QR-DQN's replay: RL-Zoo leaves it at the library's million transitions, 56 GB,
so it gets the 100,000 that RL-Zoo gives DQN (5.6 GB).

When the run ends, docs/results/atari_rivals.csv gets a line for each quarter of an hour: minutes and CPU minutes of
training so far, environment steps (the agent's decisions, 4 frames each), gradient updates, and the mean greedy return
of 20 episodes. Evaluation does not count as training time. Returns are undiscounted and unclipped, of whole games, and
every evaluation of a run meets the same 20 seeded starts. An episode is cut at 18,000 frames, because a greedy player
that never serves would play Breakout for ever; a cut one counts with what it has scored.

RL-Zoo trains with a wrapper that serves (FIRE) at the start of every life. In `mean_return` it serves at the start of a
game only: the player has to serve its other lives itself, which training never asked of it. In `mean_return_served` it
serves every life, as in training and as in RL-Zoo's own evaluation.

A run whose lines are in the table is not repeated. One that was stopped has none there and starts again.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).parents[2] / "docs/results/atari_rivals.csv"
GAMES = {"pong": "PongNoFrameskip-v4", "breakout": "BreakoutNoFrameskip-v4"}
PLANNED_STEPS = 10_000_000  # what schedules refer to; the clock stops a run long before
EPISODES = 20  # in an evaluation
MOST_FRAMES = 18_000  # in an episode of an evaluation
EVALUATION_SEED = 1_000_000  # added to the run's
# hyperparams/dqn.yml and qrdqn.yml of DLR-RM/rl-baselines3-zoo, "atari"
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "buffer_size": 100_000,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "learning_starts": 100_000,
        "target_update_interval": 1000,
        "train_freq": 4,
        "gradient_steps": 1,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.01,
        "optimize_memory_usage": False,
    },
    "qrdqn": {
        "buffer_size": 100_000,  # not RL-Zoo's: see above
        "learning_starts": 50_000,
        "exploration_fraction": 0.025,
        "optimize_memory_usage": False,
    },
}
Line = dict[str, str]


def environments(game: str, seed: int, copies: int = 1, **options: Any) -> Any:
    """Games as RL-Zoo makes them: uint8 [copies, 4, 84, 84], scores counted beneath everything that alters them."""
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

    made = make_vec_env(GAMES[game], copies, seed=seed, wrapper_class=AtariWrapper, **options)
    return VecTransposeImage(VecFrameStack(made, 4))


def evaluate(model: Any, game: str, seed: int, serve_every_life: bool) -> tuple[str, int]:
    """Mean return of `EPISODES` greedy games from the same starts every time, and how many of them were cut."""
    from stable_baselines3.common.evaluation import evaluate_policy

    wrapper = {"clip_reward": False, "terminal_on_life_loss": serve_every_life}
    cut = {"max_episode_steps": MOST_FRAMES}
    games = environments(game, EVALUATION_SEED + seed, EPISODES, wrapper_kwargs=wrapper, env_kwargs=cut)
    options = {"n_eval_episodes": EPISODES, "deterministic": True, "return_episode_rewards": True}
    returns, frames = evaluate_policy(model, games, **options)
    games.close()
    return f"{sum(returns) / EPISODES:.2f}", sum(length >= MOST_FRAMES for length in frames)


def clocks() -> np.ndarray:
    """Seconds of wall and of CPU."""
    return np.array([time.perf_counter(), time.process_time()])


def train(algorithm: str, game: str, seed: int, minutes: float) -> list[Line]:
    """Trains on one thread for so many minutes; returns a line for each quarter of them."""
    import ale_py
    import cv2
    import gymnasium
    import torch
    from sb3_contrib import QRDQN
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback

    from benchmarks.performance import processor

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # it recommends other versions of these games
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    lines: list[Line] = []

    class Quarters(BaseCallback):
        def _on_training_start(self) -> None:
            self.start = clocks()

        def _on_step(self) -> bool:
            now, mark = clocks(), minutes * (len(lines) + 1) / 4
            wall, cpu = (now - self.start) / 60
            if wall >= mark:
                of_games = evaluate(self.model, game, seed, serve_every_life=False)
                served = evaluate(self.model, game, seed, serve_every_life=True)
                line = {
                    "algorithm": algorithm,
                    "game": game,
                    "seed": seed,
                    "minutes": f"{mark:g}",
                    "cpu_minutes": f"{cpu:.2f}",
                    "environment_steps": self.model.num_timesteps,
                    "updates": self.model._n_updates,
                    **dict(zip(("mean_return", "cut_episodes"), of_games, strict=True)),
                    **dict(zip(("mean_return_served", "cut_episodes_served"), served, strict=True)),
                    "eval_episodes": EPISODES,
                    "machine": processor(),
                }
                lines.append({name: str(value) for name, value in line.items()})
                print(*lines[-1].values(), flush=True)
                self.start += clocks() - now
            return len(lines) < 4

    model = {"dqn": DQN, "qrdqn": QRDQN}[algorithm](
        "CnnPolicy", environments(game, seed), seed=seed, device="cpu", **SETTINGS[algorithm]
    )
    model.learn(PLANNED_STEPS, callback=Quarters())
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", required=True, choices=list(SETTINGS))
    parser.add_argument("--game", required=True, choices=list(GAMES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="of training, wall clock (default: 60)")
    parser.add_argument("--core", type=int, help="the only core to work on; without it, one thread on any")
    options = parser.parse_args()
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(file)
        known = {(row["algorithm"], row["game"], row["seed"]) for row in rows}
    if (options.algorithm, options.game, str(options.seed)) in known:
        print(f"{options.algorithm} {options.game} {options.seed}: already in {TABLE}")
        return
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})  # before anything counts cores
    lines = train(options.algorithm, options.game, options.seed, options.minutes)
    with TABLE.open("a", newline="") as file:
        csv.DictWriter(file, lines[0], lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
