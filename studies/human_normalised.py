"""Scales of the 57 Atari games under a random policy: rewards, returns and losses (as the paper's figure 1).

Real episodes, round after round until the time is up: in each round every game plays one batch of episodes. A batch
that the end of the time interrupts does not count, for the episodes that it has finished would be the short ones.
Losses are 1/2 E[delta^2] for values as early in learning: returns that belong to other steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from agents.running.startup import quiet
from rbs_tf.scores import GAMES
from studies import figure
from studies.episodes import Episode, Stream, random_episodes

GAMMAS = (0.0, 0.9, 0.99, 0.999, 1.0)  # the paper's heads
BATCH = 4  # episodes of a game in one round
SIGMA_V = 1e-2  # the paper's floor for sigma
DRAWS = 16  # value functions to average a loss over
COLUMNS = (
    "episodes",
    "steps_per_episode",
    "score_in_points",
    "points_per_non_zero_reward",
    "rewards_per_step",
    *(
        f"{quantity}_gamma_{gamma:g}"
        for quantity in ("root_mean_square_return", "sigma", "loss", "scaled_loss")
        for gamma in GAMMAS
    ),
)


def play(games: Sequence[str], seconds: float, seed: int = 0) -> dict[str, list[Episode]]:
    """Episodes of a random policy, as many as the time allows and about equally many of each game.

    Args:
      games: plain names.
      seconds: of wall clock.
      seed: of games and actions.
    """
    deadline = time.monotonic() + seconds
    episodes: dict[str, list[Episode]] = {game: [] for game in games}
    batch_seed = seed
    while True:
        for game in games:
            batch = random_episodes(game, BATCH, batch_seed, deadline)
            if not batch:
                return episodes
            episodes[game] += batch
        batch_seed += 1


def scales(episodes: Sequence[Episode]) -> dict[str, float]:
    """Values of `COLUMNS` for the episodes of one game; points per reward is NaN without rewards."""
    rewards = np.concatenate([episode.rewards for episode in episodes])
    sizes = np.abs(rewards[rewards != 0])
    numbers = [
        len(episodes),
        len(rewards) / len(episodes),
        rewards.sum() / len(episodes),
        sizes.mean() if len(sizes) else np.nan,
        len(sizes) / len(rewards),
    ]
    streams = [Stream.of(episodes, gamma) for gamma in GAMMAS]
    moments = [stream.moments for stream in streams]
    sigmas = np.array([m.sigma[0] for m in moments])
    losses = [np.square(stream.errors(stream.early_values(DRAWS))).mean() / 2 for stream in streams]
    numbers += [m.return_mean_square[0] ** 0.5 for m in moments]
    numbers += [*sigmas, *losses, *(losses / np.maximum(sigmas, SIGMA_V) ** 2)]
    return dict(zip(COLUMNS, numbers, strict=True))


def draw(table: dict[str, dict[str, float]]) -> figure.Figure:
    """One point per game and quantity, games sorted; losses per discount, unscaled and scaled."""
    drawing, axes = figure.new_figure(2, 3, panel=(3.8, 3.2))
    sizes = (
        ("points_per_non_zero_reward", "size of a reward (points)"),
        ("rewards_per_step", "rewards per step"),
        ("steps_per_episode", "length of an episode (steps of 4 frames)"),
        ("score_in_points", "abs(score) of an episode (points)"),
    )
    for panel, (column, title) in zip(axes.flat, sizes, strict=False):
        named = {game: abs(row[column]) for game, row in table.items()}
        named = {game: size for game, size in named.items() if size > 0}
        order = sorted(named, key=named.get)
        panel.plot([named[game] for game in order], ".", color=figure.COLOURS["unscaled"])
        if order:
            ends = f"least: {order[0]}\nmost: {order[-1]}"
            panel.text(0.03, 0.97, ends, transform=panel.transAxes, va="top")
        panel.set_title(title)
        panel.set_xlabel(f"game, sorted ({len(order)} of {len(table)} are not 0)")
    spread = np.random.default_rng(0).uniform(-0.3, 0.3, size=len(table))

    def per_discount(panel, quantity: str, colour: str, label: str | None = None) -> None:
        for place, gamma in enumerate(GAMMAS):
            numbers = np.array([row[f"{quantity}_gamma_{gamma:g}"] for row in table.values()])
            numbers = np.where(numbers > 0, numbers, np.nan)  # nothing to learn: not on a log axis
            panel.plot(place + spread, numbers, ".", color=colour, label=label if place == 0 else None)
        panel.set_xticks(range(len(GAMMAS)), [f"{gamma:g}" for gamma in GAMMAS])
        panel.set_xlabel("discount gamma")

    returns, losses = axes[1, 1:]
    per_discount(returns, "root_mean_square_return", figure.COLOURS["unscaled"])
    returns.set_title("root mean square return (points)")
    per_discount(losses, "loss", figure.COLOURS["unscaled"], "unscaled (points^2)")
    per_discount(losses, "scaled_loss", figure.COLOURS["scaled"], "return-based scaling (no unit)")
    losses.set_title("loss 1/2 E[delta^2], early values")
    losses.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    for panel in axes.flat:
        panel.set_yscale("log")
        low, high = np.log10(panel.get_ylim())
        panel.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))  # whole decades
    drawing.suptitle(
        f"Scales of {len(table)} Atari games under a random policy, one point per game (zeros are left out)"
    )
    return drawing


def conclusion(table: dict[str, dict[str, float]], asked: int) -> str:
    """One line: how far loss scales lie apart, and what the numbers rest on."""

    def decades(quantity: str) -> str:
        """Over all pairs of game and discount, and over the middle nine tenths of them."""
        numbers = np.array([row[f"{quantity}_gamma_{gamma:g}"] for row in table.values() for gamma in GAMMAS])
        logs = np.log10(numbers[numbers > 0])
        if not len(logs):
            return "no"
        return f"{np.ptp(logs):.1f} (nine tenths of them {np.ptp(np.quantile(logs, [0.05, 0.95])):.1f})"

    silent = [game for game, row in table.items() if row["rewards_per_step"] == 0]
    episodes = [row["episodes"] for row in table.values()]
    return (
        f"losses of early values span {decades('loss')} decades over games and discounts, with return-based "
        f"scaling {decades('scaled_loss')}; {len(table)} of {asked} games reached in the time, "
        f"{min(episodes)} to {max(episodes)} episodes each; no reward at all in {len(silent)}"
        + (f": {', '.join(silent)}." if silent else ".")
    )


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line, seconds=240.0, games=",".join(GAMES))
    quiet()
    games = options.games.split(",")
    table = {game: scales(mine) for game, mine in play(games, options.seconds).items() if mine}
    if not table:
        raise SystemExit(f"no game finished {BATCH} episodes in {options.seconds:g} seconds: raise --seconds")
    rows = [(game, *row.values()) for game, row in table.items()]
    line = conclusion(table, asked=len(games))
    figure.save(draw(table), "scores", rows, ("game", *COLUMNS), line, options.output_dir)


if __name__ == "__main__":
    main()
