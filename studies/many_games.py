"""One network learns sixteen Atari games at once: what scale does where tasks share all weights, the last layer too.

A DQN plays every game at the same time, from the console's memory and with the games' own rewards; which game it is
stands in its input. Each game has statistics of its own, `ReturnScaling(num_heads=16)` with `head=game`. Arms:

    none        squared errors as they are
    clip        rewards clipped to [-1, 1]
    return      errors divided by sigma of their game
    return_out  the same, and values in units of the game's return: Q = unit[game] q. The last layer is shared by all
                games, so no weights can be rewritten when a unit changes.

    python -m studies.many_games --arm=return --seed=0            # all games
    python -m studies.many_games --arm=none --seed=0 --game=pong  # one game by a network of its own

Each run adds its rows to the table, one a game, and is skipped if they are there.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import tensorflow as tf

import rbs_tf
from rbs_tf import scores

ARMS = ("none", "clip", "return", "return_out")
GAMMA = 0.99
OF_EACH_GAME = 16  # transitions of a batch
UPDATE_EVERY = 2  # steps of each game
COPY_EVERY = 500  # updates, online to target network
FIELDS = ("arm", "seed", "rate", "steps", "own_network", "game", "score", "episodes", "sigma", "unit")

gymnasium.register_envs(ale_py)


def make_games(games: Sequence[str]) -> gymnasium.vector.VectorEnv:
    """The games side by side: memory uint8 [N, 128], all 18 actions, four frames a step, sticky actions."""

    def make(game: str) -> gymnasium.Env:
        name = "".join(map(str.capitalize, game.split("_")))
        return gymnasium.make(f"ALE/{name}-v5", obs_type="ram", full_action_space=True)

    return gymnasium.vector.SyncVectorEnv([lambda game=game: make(game) for game in games])


def make_network() -> tf.keras.Model:
    """Memory / 255 and one of 16 games, float32 [B, 144] -> q [B, 18]."""
    inputs = tf.keras.layers.Input((128 + 16,))
    hidden = tf.keras.layers.Dense(512, "relu")(inputs)
    hidden = tf.keras.layers.Dense(512, "relu")(hidden)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(18)(hidden))


class Learner:
    """A double DQN of N games.

    Args:
      num_games: N, at most 16.
      arm: one of `ARMS`.
      rate: Adam's.
    """

    def __init__(self, num_games: int, arm: str, rate: float):
        self.arm, self.num_games = arm, num_games
        self.scaling = rbs_tf.ReturnScaling(num_games, floor_in_units=arm == "return_out")
        self.online, self.target = make_network(), make_network()
        self.target.set_weights(self.online.get_weights())
        self.optimizer = tf.keras.optimizers.Adam(rate)
        self.optimizer.build(self.online.trainable_variables)

    def _q(self, network: tf.keras.Model, memory: tf.Tensor, game: tf.Tensor) -> tf.Tensor:
        which = tf.one_hot(game, 16)
        return network(tf.concat([tf.cast(memory, tf.float32) / 255.0, which], axis=-1))

    @tf.function(jit_compile=True)
    def act(self, memory: tf.Tensor) -> tf.Tensor:
        """Greedy actions int64 [N], one a game; a game's unit orders none of its actions."""
        return tf.argmax(self._q(self.online, memory, tf.range(self.num_games)), axis=-1)

    @tf.function(jit_compile=True)
    def update(
        self, memory: Any, action: Any, reward: Any, discount: Any, following: Any, counts: Any
    ) -> None:
        """One step of Adam on a batch of transitions: uint8 [B, 128], int32 [B], float32 [B] twice, uint8 [B, 128],
        and bool [B], False for those that are none; B is as many of each game, the first game's first."""
        game = tf.repeat(tf.range(self.num_games), OF_EACH_GAME)
        unit = tf.ones_like(reward)
        if self.arm == "return_out":
            unit = tf.gather(tf.cast(self.scaling.unit, tf.float32), game)
        if self.arm == "clip":
            reward = tf.clip_by_value(reward, -1.0, 1.0)
        best = tf.argmax(self._q(self.online, following, game), axis=-1, output_type=tf.int32)
        bootstrap = unit * tf.gather(self._q(self.target, following, game), best, batch_dims=1)
        with tf.GradientTape() as tape:
            value = unit * tf.gather(self._q(self.online, memory, game), action, batch_dims=1)
            errors = reward + discount * bootstrap - value
            if self.arm in ("return", "return_out"):
                errors = self.scaling(errors, head=game)
            loss = 0.5 * tf.reduce_mean(tf.where(counts, tf.square(errors), 0.0))
        gradients = tape.gradient(loss, self.online.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.online.trainable_variables, strict=True))


def play(games: Sequence[str], arm: str, rate: float, steps: int, seed: int) -> list[dict[str, Any]]:
    """Trains on so many steps of each game; returns a row a game, whose score is that of the last fifth's episodes."""
    tf.keras.utils.set_random_seed(seed)
    rng, learner, num_games = np.random.default_rng(seed), Learner(len(games), arm, rate), len(games)
    envs = rbs_tf.CollectReturns(make_games(games), learner.scaling, GAMMA, head=range(num_games))
    memory = np.zeros((steps + 1, num_games, 128), np.uint8)
    action = np.zeros((steps, num_games), np.int32)
    reward, discount = np.zeros((2, steps, num_games), np.float32)
    counts, ended = np.zeros((steps, num_games), bool), np.zeros(num_games, bool)
    finished: list[list[float]] = [[] for _ in games]  # returns of the last fifth
    returns, every = np.zeros(num_games), np.arange(num_games)
    memory[0], _ = envs.reset(seed=seed)
    started = time.time()
    for step in range(steps):
        exploring = rng.random(num_games) < max(0.05, 1.0 - step / (0.25 * steps))
        chosen = np.where(exploring, rng.integers(18, size=num_games), learner.act(memory[step]))
        memory[step + 1], rewards, terminated, truncated, _ = envs.step(chosen)
        # After an episode's end, a step only resets.
        action[step], reward[step], counts[step] = chosen, rewards, ~ended
        discount[step] = GAMMA * ~terminated
        returns = np.where(ended, 0.0, returns + rewards)
        ended = terminated | truncated
        for index in np.flatnonzero(ended) if step >= 0.8 * steps else ():
            finished[index].append(float(returns[index]))
        if step >= 1000 and step % UPDATE_EVERY == 0:
            rows = rng.integers(step + 1, size=(num_games, OF_EACH_GAME))
            at, after = (rows, every[:, None]), (rows + 1, every[:, None])
            drawn = memory[at], action[at], reward[at], discount[at], memory[after], counts[at]
            learner.update(*(tf.constant(column.reshape(-1, *column.shape[2:])) for column in drawn))
            if step % (UPDATE_EVERY * COPY_EVERY) == 0:
                learner.target.set_weights(learner.online.get_weights())
        if step % 2000 == 0 or step + 1 == steps:
            left = (time.time() - started) * (steps / (step + 1) - 1.0)
            print(
                f"\r{arm} seed {seed}: step {step:,} of {steps:,}, {left / 60:.1f} minutes left",
                end="",
                file=sys.stderr,
            )
    print(file=sys.stderr)
    moments = learner.scaling.moments
    return [
        {
            "game": game,
            "score": np.mean(finished[index]) if finished[index] else returns[index],
            "episodes": len(finished[index]),
            "sigma": float(moments.sigma[index]),
            "unit": float(moments.unit[index]),
        }
        for index, game in enumerate(games)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--steps", type=int, default=40_000, help="of each game")
    parser.add_argument("--games", nargs="+", default=["pong"], choices=scores.GAMES)
    parser.add_argument("--table", type=Path, default=Path("figures/many_games.csv"))
    given = parser.parse_args()
    own = len(given.games) == 1
    run = {"arm": given.arm, "seed": given.seed, "rate": given.rate, "steps": given.steps, "own_network": own}
    rows = list(csv.DictReader(given.table.open())) if given.table.exists() else []
    if any(row["game"] in given.games and all(row[k] == str(v) for k, v in run.items()) for row in rows):
        return
    found = play(given.games, given.arm, given.rate, given.steps, given.seed)
    given.table.parent.mkdir(parents=True, exist_ok=True)
    with given.table.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        writer.writerows([run | row for row in found])


if __name__ == "__main__":
    main()
