"""A user's alternative: Stable-Baselines3's DQN and sb3-contrib's QR-DQN on an Atari game, on one core.

    make rivals-venv
    .venv-rivals/bin/python -m benchmarks.rivals.sb3_atari --algorithm=dqn --game=pong --core=0

Settings are RL-Zoo's for Atari, run as they stand: exploration is planned over 1e7 steps, of which an hour on one core
makes a small part. The one exception is QR-DQN's replay: RL-Zoo leaves it at the library's million transitions, 56 GB
that a machine of 24 GB refuses at the start, so it gets the 100,000 that RL-Zoo gives DQN (5.6 GB).

When the run ends, --out gets a line for each quarter of --minutes: wall and CPU minutes of training so far, environment
steps (the agent's decisions, 4 frames each), gradient updates, and the mean greedy return of 20 episodes. Evaluation
does not count as training time. Returns are undiscounted and unclipped, of whole games from the first life to the last,
and every evaluation of a run meets the same 20 seeded starts. An episode is cut at 18,000 frames (4,500 decisions, the
no-ops at its start included), well before the game's own 108,000, because a greedy player that never serves would play
Breakout for ever; a cut one counts with what it has scored.

There are two means because RL-Zoo trains with a wrapper that serves (FIRE) at the start of every life. In `mean_return`
it serves at the start of a game only: the player has to serve its other lives itself, which training never asked of it.
In `mean_return_served` it serves every life, as in training and as in RL-Zoo's own evaluation. Pong has no lives, so
there the two are one.

A run whose lines are in --out is not repeated. One that was stopped has none there and starts again: its replay would
be gigabytes to save.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
GAMES = {"pong": "PongNoFrameskip-v4", "breakout": "BreakoutNoFrameskip-v4"}
WITH_LIVES = {"breakout"}
PLANNED_STEPS = 10_000_000  # what schedules refer to; the clock stops a run long before
FRAME_STACK = 4
EPISODES = 20  # in an evaluation
MOST_FRAMES = 18_000  # in an episode of an evaluation
EVALUATION_SEED = 1_000_000  # added to the run's
REPLAY = 100_000  # transitions
# hyperparams/dqn.yml and qrdqn.yml of DLR-RM/rl-baselines3-zoo, "atari"
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "buffer_size": REPLAY,
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
        "buffer_size": REPLAY,  # not RL-Zoo's: see above
        "learning_starts": 50_000,
        "exploration_fraction": 0.025,
        "optimize_memory_usage": False,
    },
}


FIELDS = (
    *("algorithm", "game", "seed"),
    *("minutes", "cpu_minutes"),  # of training, the first by the clock
    *("environment_steps", "updates"),  # decisions, 4 frames each
    *("mean_return", "cut_episodes", "mean_return_served", "cut_episodes_served", "eval_episodes"),
    "machine",
)
Line = dict[str, str]


def read(table: Path) -> list[Line]:
    """The table's lines; none if there is no such file."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def write(table: Path, lines: list[Line]) -> None:
    """Adds lines to the table."""
    new = not table.exists()
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(lines)


def environments(
    game: str, seed: int, copies: int = 1, most_frames: int | None = None, **wrapper: bool
) -> Any:
    """Games as RL-Zoo makes them: uint8 [copies, 4, 84, 84], scores counted beneath everything that alters them.

    The first copy has `seed` for its no-ops at the start of a game, each other one more.
    """
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

    made = make_vec_env(
        GAMES[game],
        n_envs=copies,
        seed=seed,
        wrapper_class=AtariWrapper,
        wrapper_kwargs=wrapper,
        env_kwargs={"max_episode_steps": most_frames},
    )
    return VecTransposeImage(VecFrameStack(made, FRAME_STACK))


def evaluate(model: Any, game: str, seed: int, serve_every_life: bool) -> tuple[str, int]:
    """Mean return of `EPISODES` greedy games from the same starts every time, and how many of them were cut."""
    from stable_baselines3.common.evaluation import evaluate_policy

    wrapper = {"clip_reward": False, "terminal_on_life_loss": serve_every_life}
    games = environments(game, EVALUATION_SEED + seed, EPISODES, MOST_FRAMES, **wrapper)
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

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # it recommends other versions of these games
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    lines: list[Line] = []
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(": ", 1)[1] for line in cpuinfo if "model name" in line), "unknown")

    class Quarters(BaseCallback):
        def _on_training_start(self) -> None:
            self.start = clocks()

        def _on_step(self) -> bool:
            now, mark = clocks(), minutes * (len(lines) + 1) / 4
            wall, cpu = (now - self.start) / 60
            if wall >= mark:
                self._report(mark, cpu)
                self.start += clocks() - now
            return len(lines) < 4

        def _report(self, mark: float, cpu: float) -> None:
            plain = evaluate(self.model, game, seed, serve_every_life=False)
            served = evaluate(self.model, game, seed, serve_every_life=True) if game in WITH_LIVES else plain
            counts = self.model.num_timesteps, self.model._n_updates
            figures = f"{mark:g}", f"{cpu:.2f}", *counts, *plain, *served, EPISODES
            values = algorithm, game, seed, *figures, processor
            lines.append(dict(zip(FIELDS, map(str, values), strict=True)))
            print(*(f"{name} {value}" for name, value in lines[-1].items()), sep=", ", flush=True)

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
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/atari_rivals.csv", metavar="CSV")
    options = parser.parse_args()
    key = options.algorithm, options.game, str(options.seed)
    if any((line["algorithm"], line["game"], line["seed"]) == key for line in read(options.out)):
        print(f"{' '.join(key)}: already in {options.out}")
        return
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})  # before anything counts cores
    write(options.out, train(options.algorithm, options.game, options.seed, options.minutes))


if __name__ == "__main__":
    main()
