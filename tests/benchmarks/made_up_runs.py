"""Tables of the 57 games whose truth is known: what scaling does to losses, shares, accuracies and scores is chosen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import atari57
from benchmarks.paper.tables import TEN
from rbs_tf.scores import GAMES, HUMAN, RANDOM

# Deviations of an episode's score by which a variant is above its game's.
EFFECT = {"return": 0.6, "pop_art": 0.3, "return_out": 0.7, "one_head_clip": 0.8}
MUTE = "pitfall"  # all returns of its last evaluation are alike, so that no error is relative to them
SCALED = ("return", "pop_art", "bias")


def write(
    folder: Path,
    variants: Sequence[str],
    games: Sequence[str] = GAMES,
    seeds: Sequence[int] = (571,),
    effect: dict[str, float] = EFFECT,
) -> None:
    """Writes, or adds to, the three tables of a folder."""
    rng = np.random.default_rng(len(variants) + len(games))
    rows: dict[str, list[tuple]] = {table: [] for table in atari57.COLUMNS}
    for game in games:
        size = 10 ** np.random.default_rng(GAMES.index(game)).uniform(-1, 3)  # of the game's rewards
        deviation = 0.1 * abs(HUMAN[game] - RANDOM[game])
        for variant in variants:
            for seed in seeds:
                of, better = (game, variant, seed), effect.get(variant, 0.0)
                late = RANDOM[game] + deviation * (1 + better + rng.normal(0.0, 0.2))
                dead = 1e-3 * (len(variant) * GAMES.index(game) % 13)
                is_scaled = any(name in variant for name in SCALED)
                run = 2269, 97000, late, deviation, 20, "unclipped_1", late, dead, rng.uniform(0.1, 0.3)
                rows["runs"].append((*of, *run, "0", "a"))
                worth = size * (0.7 if variant == "one_head_clip" else 1.0)
                for tenth in range(1, 11):
                    score = RANDOM[game] + (late - RANDOM[game]) * tenth / 10
                    has = tenth > 1  # no episode ends in the first
                    numbers = (score, abs(score) / worth, 1000.0) if has else (np.nan,) * 3
                    rows["curves"].append((*of, tenth, 5 * has, *numbers, 0.01))
                heads = ["unclipped_0.997"] if variant.startswith("one_head") else TEN
                for fifth in range(1, 6):
                    errors = np.array([size if "unclipped" in head else 1.0 for head in heads])
                    errors = errors * [1 + 10 * float(head.split("_")[1]) for head in heads]
                    learned = np.exp(rng.normal(0.0, 0.1, len(heads))) if is_scaled else errors
                    for head, error, of_loss in zip(heads, errors, learned, strict=True):
                        told = fifth == 5 and game != MUTE
                        worse = rng.uniform(0.6, 0.8) if told else np.nan
                        accuracy = worse * (0.9 if is_scaled else 1.0)
                        share = of_loss**2 / np.sum(learned**2)
                        rows["heads"].append((*of, fifth, head, error, of_loss, share, 1.0, accuracy))
    folder.mkdir(exist_ok=True)
    for table, columns in atari57.COLUMNS.items():
        path = folder / f"atari57_{table}.csv"
        frame = pd.DataFrame(rows[table], columns=[*atari57.RUN, *columns.split()])
        frame.to_csv(path, mode="a", index=False, header=not path.exists(), float_format="%.4g")
