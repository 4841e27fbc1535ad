"""The tables of the 57 games, and the second and third readings that benchmarks/sweeps/atari57_heads.sweep names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks import atari57
from rbs_tf.scores import GAMES, human_normalised_score

FIRST, YOURS = 571, "yours"  # the seed of all stages; the variant of runs that a reader adds
SEEDS = (FIRST, 572)
HEADS = ("return", "none", "one_head_return", "one_head_none")
AGGREGATES = ("mean", "median", "capped mean", "interquartile mean")
DISCOUNTS = ("0", "0.9", "0.99", "0.999", "1")
TEN = [f"{kind}_{discount}" for kind in ("clipped", "unclipped") for discount in DISCOUNTS]
DRAWS = 2_000  # bootstrap


class Tables(NamedTuple):
    """The three tables, a row as `atari57.COLUMNS` says."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    heads: pd.DataFrame

    def where(self, variants: Sequence[str], seeds: Sequence[int], games: Sequence[str] = GAMES) -> Tables:
        """The rows of these variants, seeds and games; those that the reader has added stay."""

        def rows(table: pd.DataFrame) -> pd.DataFrame:
            named = table.variant.isin(variants) & table.seed.isin(seeds) & table.game.isin(games)
            return table[named | (table.variant == YOURS)]

        return Tables(*map(rows, self))


def read(folder: Path = atari57.RESULTS) -> Tables:
    """The tables of a folder; one that is not there has no rows."""
    found = []
    for table, columns in atari57.COLUMNS.items():
        path = folder / f"atari57_{table}.csv"
        found.append(
            pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*atari57.RUN, *columns.split()])
        )
    return Tables(*found)


def added(tables: Tables, folder: Path) -> Tables:
    """With the rows of a run's folder as the variant `YOURS`."""
    own = (table.assign(variant=YOURS) for table in read(folder))
    pairs = zip(tables, own, strict=True)
    return Tables(*(pd.concat([table, rows]) if len(table) else rows for table, rows in pairs))


def are_in(runs: pd.DataFrame, variants: Sequence[str], games: Sequence[str], seeds: Sequence[int]) -> int:
    """How many of the runs that this takes there are."""
    asked = runs[runs.variant.isin(variants) & runs.game.isin(games) & runs.seed.isin(seeds)]
    return len(asked[list(atari57.RUN)].drop_duplicates())


def over_seeds(table: pd.DataFrame, column: str, by: str = "variant") -> pd.DataFrame:
    """A column's means over seeds: games by variants, or by what else a column names."""
    return table.pivot_table(index="game", columns=by, values=column, aggfunc="mean")


# Second reading: human-normalised scores.


def normalised(scores: pd.DataFrame) -> pd.DataFrame:
    """Points of games (rows) in any columns, human-normalised."""
    return scores.apply(lambda row: pd.Series(human_normalised_score(row.name, row), row.index), axis=1)


def curves(table: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Normalised training returns: games by tenths; one in which no episode ended has those of the one before."""
    points = over_seeds(table[table.variant == variant], "return", "tenth").reindex(columns=range(1, 11))
    return normalised(points.ffill(axis=1).bfill(axis=1))


def aggregates(scores: np.ndarray) -> np.ndarray:
    """Those of `AGGREGATES` over the last axis, games: [..., G] -> [4, ...]."""
    capped = np.minimum(scores, 1.0).mean(-1)
    return np.stack([scores.mean(-1), np.median(scores, -1), capped, stats.trim_mean(scores, 0.25, axis=-1)])


def bands(scores: np.ndarray, level: float) -> np.ndarray:
    """Aggregates of scores [..., G] and their percentile bootstrap interval over games: [4, 3, ...]."""
    games = scores.shape[-1]
    drawn = scores[..., np.random.default_rng(0).integers(games, size=(DRAWS, games))]  # [..., DRAWS, G]
    ends = np.percentile(aggregates(drawn), [50 - 50 * level, 50 + 50 * level], axis=-1)
    return np.stack([aggregates(scores), *ends], axis=1)


def improvement(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Probability that a run of ours is above one of theirs, ties half, with a 95% bootstrap interval over games.

    Args:
      ours, theirs: [G], one score a game.
    """
    wins = (1 + np.sign(ours - theirs)) / 2
    drawn = wins[np.random.default_rng(0).integers(len(wins), size=(DRAWS, len(wins)))].mean(axis=1)
    return float(wins.mean()), *map(float, np.percentile(drawn, [2.5, 97.5]))


# Third reading: losses, accuracies and shares of the heads.


def losses(table: pd.DataFrame, variant: str, fifth: int | None = None) -> pd.DataFrame:
    """1/2 E[delta^2] of the errors that are learned from, over training or in a fifth: games by heads.

    Squares of root mean squares that are means over updates: a little less than the mean of squares.
    """
    rows = table[(table.variant == variant) & (True if fifth is None else table.fifth == fifth)]
    found = over_seeds(rows.assign(loss=rows.scaled.astype(float) ** 2 / 2), "loss", "head")
    return found[[head for head in TEN if head in found] or found.columns].clip(lower=1e-12)


def decades(values: pd.DataFrame | pd.Series | np.ndarray) -> float:
    """How many powers of ten lie between the least and the largest of the magnitudes that are not 0."""
    sizes = np.abs(np.asarray(values, float)).ravel()
    logs = np.log10(sizes[sizes > 0])  # NaN is not
    return float(np.ptp(logs)) if len(logs) else np.nan


def narrower(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Ratio of the deviations of log losses over games, and the p of Pitman and Morgan's test of equal ones.

    Paired variables have equal variances if their sum and their difference are not correlated.
    """
    ours, theirs = np.log(ours), np.log(theirs)
    return float(ours.std() / theirs.std()), float(stats.pearsonr(ours + theirs, ours - theirs).pvalue)


def head_spans(table: pd.DataFrame, variant: str, heads: Sequence[str] = TEN) -> pd.Series:
    """ln of the largest over the smallest loss of these heads of a run, by game."""
    found = losses(table, variant)[list(heads)]
    return np.log(found.max(axis=1) / found.min(axis=1))


def value_errors(table: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Relative root mean squared error of the values at the end: games by heads."""
    return over_seeds(table[(table.variant == variant) & (table.fifth == 5)], "value_error", "head").reindex(
        columns=TEN
    )


def shares(table: pd.DataFrame, variant: str, fifth: int) -> pd.DataFrame:
    """Share of the loss: games by heads."""
    return over_seeds(table[(table.variant == variant) & (table.fifth == fifth)], "loss_share", "head")[TEN]
