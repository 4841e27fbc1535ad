"""One network learns sixteen Atari games at once: what scale does where tasks share all weights, the last layer too.

A DQN plays every game at the same time, from the console's memory and with the games' own rewards; which game it is
stands in its input. Each game has statistics of its own, `ReturnScaling(num_heads=16)` with `head=game`. Arms:

    none        squared errors as they are
    clip        rewards clipped to [-1, 1]
    return      errors divided by sigma of their game
    return_out  the same, and values in units of the game's return: Q = unit[game] q. The last layer is shared by all
                games, so no weights can be rewritten when a unit changes.

    python -m studies.many_games            # plays what the table lacks: 10 hours of one core of a Xeon in all
    python -m studies.many_games --report   # once all runs are in: readings, and the figure beside the table

Named before the first run:

* Games: the 26 of Atari 100k without the six that pilots played (Bank Heist, Gopher, Hero, Kung Fu Master, Ms Pacman,
  Up'n Down), without Freeway and Private Eye, where random play hardly finds a reward, and without the last two.
* Length: 40,000 steps of each game. Own networks of the pilots' games got there, at rate 5e-4, 2.8 (Gopher), 37 (Kung
  Fu Master), 2.0 (Hero), 1.6 (Bank Heist, Ms Pacman), 1.2 (Up'n Down) and 0.9 times (Star Gunner) as much as a random
  player.
* Runs: each arm at rates 2e-4, 5e-4 and 1e-3 with five seeds; each game by a network of its own, arm none, 5e-4, three
  seeds. Every run counts.
* Score: the mean return of the episodes that end in the last fifth of a run, in the game's own rewards.
* Rate: for each game and arm that with the best mean rank over the other 15 games (ranks of the arm's three rates by
  their mean scores).
* Readings, with eight games of small sigma and eight of large ones apart (sigma as own networks end with): in how many
  games an arm's mean is above none's; and how far it falls short of the own network, (own - arm) / (own - random),
  median over the games in which own is above random. An arm *helps* if it is above none in at least six of eight
  games of both halves, and *shifts* if only in those of small sigma.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ale_py
import gymnasium
import numpy as np
import pandas as pd
import tensorflow as tf
from scipy import stats

import rbs_tf
from rbs_tf import scores

ARMS = ("none", "clip", "return", "return_out")
GAMMA = 0.99
OF_EACH_GAME = 16  # transitions of a batch
UPDATE_EVERY = 2  # steps of each game
COPY_EVERY = 500  # updates, online to target network
GAMES = (
    "alien",
    "amidar",
    "assault",
    "asterix",
    "battle_zone",
    "boxing",
    "breakout",
    "chopper_command",
    "crazy_climber",
    "demon_attack",
    "frostbite",
    "jamesbond",
    "kangaroo",
    "krull",
    "pong",
    "qbert",
)
RATES, SEEDS, OWN_SEEDS, OWN_RATE = (2e-4, 5e-4, 1e-3), range(5), range(3), 5e-4
STEPS = 40_000  # of each game
HALVES = ("small sigma", "large sigma")  # of the games
TABLE = Path("docs/results/many_games.csv")
FIELDS = ("arm", "seed", "rate", "own_network", "game", "score", "episodes", "sigma", "unit")

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
    envs = rbs_tf.collect_returns(make_games(games), learner.scaling, GAMMA, head=range(num_games))
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


class Run(NamedTuple):
    """One run: of all games, or of one by a network of its own."""

    arm: str
    seed: int
    rate: float
    own_network: bool
    games: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """How the table names it, but for the game."""
        return tuple(map(str, self[:4]))


def all_runs() -> list[Run]:
    """Every run of the study, seed by seed."""
    joint = [Run(arm, seed, rate, False, GAMES) for seed in SEEDS for rate in RATES for arm in ARMS]
    return joint + [Run("none", seed, OWN_RATE, True, (game,)) for seed in OWN_SEEDS for game in GAMES]


def read(table: Path) -> pd.DataFrame:
    """The table's rows; none if there is no file."""
    return pd.read_csv(table) if table.exists() else pd.DataFrame(columns=FIELDS)


def missing(rows: pd.DataFrame) -> list[Run]:
    """The runs that have no row yet."""
    done = {(*map(str, row[:4]), row[4]) for row in rows[list(FIELDS)].itertuples(index=False)}
    return [run for run in all_runs() if (*run.key, run.games[0]) not in done]


def play_missing(table: Path, steps: int = STEPS) -> None:
    """Plays what the table lacks, and adds a row a game as each run ends."""
    for number, run in enumerate(runs := missing(read(table)), start=1):
        whose = run.games[0] if run.own_network else f"{len(GAMES)} games"
        print(
            f"Run {number} of {len(runs)}: {run.arm}, {whose}, rate {run.rate:g}, seed {run.seed}",
            file=sys.stderr,
        )
        found = play(run.games, run.arm, run.rate, steps, run.seed)
        new = pd.DataFrame([run._asdict() | row for row in found])[list(FIELDS)]
        new.to_csv(table, mode="a", header=not table.exists(), index=False)


def scores_at_chosen_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean score of each game (rows) under each arm (columns), at the rate that ranks best over the other games."""
    joint = rows[~rows.own_network].groupby(["arm", "rate", "game"]).score.mean().unstack("game")
    found = {}
    for arm, of_rates in joint.groupby("arm"):
        ranks = of_rates.rank(ascending=False)
        best = {game: ranks.drop(columns=game).mean(axis=1).idxmin() for game in ranks}
        found[arm] = pd.Series({game: of_rates.loc[rate, game] for game, rate in best.items()})
    return pd.DataFrame(found)


def readings(rows: pd.DataFrame) -> pd.DataFrame:
    """For each arm and half of the games: games above none, of how many, and how far below own networks."""
    found, own = scores_at_chosen_rates(rows), rows[rows.own_network].groupby("game")
    best, sigma = own.score.mean(), own.sigma.mean()
    random = pd.Series(scores.RANDOM)[best.index]
    shortfall = found.rsub(best, axis=0).div(best - random, axis=0)[best > random]
    order = sigma.sort_values().index
    halves = dict(zip(HALVES, (order[: len(order) // 2], order[len(order) // 2 :]), strict=True))
    return pd.DataFrame(
        [
            {
                "arm": arm,
                "games": name,
                "above none": int((found[arm] > found["none"])[half].sum()),
                "of": len(half),
                "short of own network": shortfall[arm].reindex(half).median(),
            }
            for arm in found
            for name, half in halves.items()
        ]
    )


def table(found: pd.DataFrame) -> list[str]:
    """The readings as lines of Markdown, a line an arm: with exact binomial intervals, and the verdict on it."""
    columns = [f"above `none`, {half}" for half in HALVES] + ["of all games"]
    columns += [f"short of own, {half}" for half in HALVES] + ["verdict"]
    lines = [f"| arm | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for arm in ARMS:
        halves = [found[(found.arm == arm) & (found.games == half)].iloc[0] for half in HALVES]
        above, games = [int(half["above none"]) for half in halves], sum(half["of"] for half in halves)
        low, high = stats.binomtest(sum(above), games).proportion_ci()
        counts = [f"{count} of {half['of']}" for count, half in zip(above, halves, strict=True)]
        counts.append(f"{sum(above) / games:.2f} [{low:.2f}, {high:.2f}]")
        often = tuple(count >= 6 for count in above)
        verdict = {(True, True): "helps", (True, False): "shifts"}.get(often, "neither")
        if arm == "none":
            counts, verdict = [""] * 3, ""
        short = [f"{half['short of own network']:.2f}" for half in halves]
        lines.append(f"| {' | '.join((f'`{arm}`', *counts, *short, verdict))} |")
    return lines


def draw(rows: pd.DataFrame, path: Path) -> None:
    """A point a game: how far each arm is above none, in shares of what the own network is above random."""
    from matplotlib import pyplot

    found, own = scores_at_chosen_rates(rows), rows[rows.own_network].groupby("game")
    best, sigma = own.score.mean(), own.sigma.mean()
    span = (best - pd.Series(scores.RANDOM)[best.index]).where(lambda above: above > 0.0)
    arms = [arm for arm in ARMS if arm != "none"]
    _, axes = pyplot.subplots(1, len(arms), figsize=(10, 3.2), sharey=True, layout="constrained")
    for axis, arm in zip(axes, arms, strict=True):
        axis.axhline(0.0, color="0.7", linewidth=1)
        axis.scatter(sigma, (found[arm] - found["none"]) / span, s=18)
        axis.set(xscale="log", title=arm, xlabel="sigma of the game")
        axis.set_yscale("symlog", linthresh=1.0, subs=(2, 5))
        axis.set_yticks([-2, -1, 0, 1, 2, 5, 10, 20], ["-2", "-1", "0", "1", "2", "5", "10", "20"])
    axes[0].set_ylabel("above none, of (own - random)")
    pyplot.savefig(path, dpi=150)
    pyplot.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", action="store_true", help="print the readings and draw the figure")
    parser.add_argument("--table", type=Path, default=TABLE)
    given = parser.parse_args()
    if not (folder := given.table.parent).is_dir():
        parser.error(f"--table={given.table}: no folder {folder} here; type this in the repository's root")
    if not given.report:
        return play_missing(given.table)
    if left := missing(rows := read(given.table)):
        sys.exit(
            f"{len(left)} of {len(all_runs())} runs are missing: python -m studies.many_games plays them"
        )
    print(*table(readings(rows)), sep="\n")
    draw(rows, given.table.with_suffix(".png"))


if __name__ == "__main__":
    main()
