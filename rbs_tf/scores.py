"""Human-normalised scores of the 57 Atari games: 0 is a random player, 100 % is a human tester.

The reference scores are those of `atari57_scores.csv`. Video Pinball's random score there, 16,256.9, lies
close to its human score, 17,667.9: a mean over the 57 games hangs on that one game. Prefer the median, or say
so beside the mean.
"""

from __future__ import annotations

import csv
import difflib
import importlib.resources
from typing import TypeGuard

import numpy as np

_TEXT = (importlib.resources.files("rbs_tf") / "atari57_scores.csv").read_text(encoding="utf-8")
_ROWS = list(csv.DictReader(_TEXT.splitlines()))

#: The 57 games by their plain names ("pong", "space_invaders"), in alphabetical order.
GAMES: tuple[str, ...] = tuple(row["game"] for row in _ROWS)
#: Game -> mean score per episode of a uniformly random player.
RANDOM: dict[str, float] = {row["game"]: float(row["random"]) for row in _ROWS}
#: Game -> mean score per episode of a professional human tester.
HUMAN: dict[str, float] = {row["game"]: float(row["human"]) for row in _ROWS}


def has_score(game: str | None) -> TypeGuard[str]:
    """Says whether `game` is one of the 57 games that reference scores exist for."""
    return game in RANDOM


def human_normalised_score(game: str, score: float | np.ndarray) -> float | np.ndarray:
    """(score - random) / (human - random), as a fraction: 1.0 is human level.

    Args:
      game: plain name of one of the 57 games, such as "space_invaders".
      score: undiscounted, unclipped episode return in game points; a number or an array of any shape.

    Raises:
      ValueError: the game is not one of the 57; `has_score` tells without raising.
    """
    if not has_score(game):
        nearest = difflib.get_close_matches(str(game).lower(), GAMES, n=3, cutoff=0.4)
        perhaps = f", perhaps {' or '.join(map(repr, nearest))}" if nearest else ""
        raise ValueError(
            f"no scores for {game!r}; expected one of the 57 games of rbs_tf.scores.GAMES{perhaps}"
        )
    return (np.asarray(score, np.float64) - RANDOM[game]) / (HUMAN[game] - RANDOM[game])
