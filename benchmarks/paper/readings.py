"""Second readings of the 57 games, which decide nothing; benchmarks/sweeps/atari57_heads.sweep names them.

Each takes tables of one or two seeds of ten and one head, scaled or not, and returns float64 values by game.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks import atari57
from benchmarks.paper.tables import FIRST, HEADS, SEEDS, TEN, Tables, normalised, over_seeds, value_errors

# Sigma of raw and of clipped heads is equal.
CLIPPING_CHANGES_NOTHING = (
    *("double_dunk", "enduro", "fishing_derby", "freeway", "ice_hockey"),
    *("pong", "robotank", "surround", "tennis"),
)
OURS, THEIRS = "return", "none"


def units(tables: Tables) -> pd.Series:
    """The pooled deviation of all four arms' late episodes, by game and seed."""
    runs = tables.runs[tables.runs.variant.isin(HEADS)]
    freedom = (runs.late_episodes - 1).clip(lower=0)
    squares = (freedom * runs.late_sd**2).groupby([runs.game, runs.seed]).sum()
    pooled = squares / freedom.groupby([runs.game, runs.seed]).sum()
    return np.sqrt(pooled).clip(lower=1e-9)


def in_units(tables: Tables, weights: dict[str, float], column: str = "late") -> pd.Series:
    """A contrast of variants in `units`, between -10 and 10, mean over seeds."""
    of_runs = tables.runs.pivot_table(index=["game", "seed"], columns="variant", values=column)
    contrast = sum(weight * of_runs[variant] for variant, weight in weights.items())
    return (contrast / units(tables)).clip(-10, 10).groupby("game").mean().dropna()


def slopes(tables: Tables) -> pd.Series:
    """By how much the difference of training returns, in `units`, grows from a tenth of training to the next."""
    return by_tenths(tables).apply(_slope, axis=1).dropna()


def _slope(row: pd.Series) -> float:
    row = row.dropna()
    return np.polyfit(row.index, row, 1)[0] if len(row) > 2 else np.nan


def by_tenths(tables: Tables, ours: str = OURS, theirs: str = THEIRS) -> pd.DataFrame:
    """The difference of mean training returns in `units`: games by tenths, NaN where no episode ended in an arm."""
    of = tables.curves.pivot_table(index=["game", "seed", "tenth"], columns="variant", values="return")
    differences = (of[ours] - of[theirs]).unstack("tenth")
    return differences.div(units(tables), axis=0).clip(-10, 10).groupby("game").mean()


def late_enough(tables: Tables) -> list[str]:
    """Games in which ten episodes end in the last fifth, in both arms and all seeds."""
    late = tables.curves[(tables.curves.tenth > 8) & tables.curves.variant.isin((OURS, THEIRS))]
    counts = late.groupby(["game", "seed", "variant"]).episodes.sum()
    least = counts.groupby("game").min()
    return list(least.index[least >= 10])


def thirds(tables: Tables) -> list[list[str]]:
    """Games by sigma of the raw head of discount 1 in the first fifth of the first seed, from the least."""
    heads = tables.heads[(tables.heads.variant == OURS) & (tables.heads["head"] == TEN[-1])]
    first = heads[(heads.fifth == 1) & (heads.seed == FIRST)].set_index("game").sigma.fillna(0.0)
    order = list(first.sort_values(kind="stable").index)
    return [order[len(order) * k // 3 : len(order) * (k + 1) // 3] for k in range(3)]


def better_than_a_constant(tables: Tables) -> pd.Series:
    """Share of heads whose relative value error is below 1, with scaling less without."""
    shares = []
    for variant in (OURS, THEIRS):
        errors = value_errors(tables.heads, variant).dropna(how="all")
        shares.append((errors < 1).sum(axis=1) / errors.notna().sum(axis=1))
    return (shares[0] - shares[1]).dropna()


def named(tables: Tables, by_sigma: list[list[str]]) -> dict[str, pd.Series]:
    """Each reading's values by game; `by_sigma`: `thirds`."""
    standard = pd.Series(atari57.differences(tables.runs.to_dict("records"), OURS, THEIRS))
    ten = {OURS: 1.0, THEIRS: -1.0}
    one = {"one_head_return": 1.0, "one_head_none": -1.0}
    greedy = in_units(tables, ten, "greedy")
    scores = normalised(over_seeds(tables.runs, "greedy"))
    found = {
        "(b) training score, games in which ten episodes end in the last fifth": standard.reindex(
            late_enough(tables)
        ),
        "(c) ten heads, scaled minus unscaled": in_units(tables, ten),
        "(c) one head, scaled minus unscaled": in_units(tables, one),
        "(c) the interaction: the first minus the second": in_units(
            tables, ten | {variant: -weight for variant, weight in one.items()}
        ),
        "(c) ten heads scaled minus the mean of the other three arms": in_units(
            tables, {OURS: 1.0} | dict.fromkeys((THEIRS, *one), -1 / 3)
        ),
        "(d) greedy play, in the unit of (c)": greedy,
        "(d) greedy play, human-normalised: interquartile mean of differences": (
            scores[OURS] - scores[THEIRS]
        ),
        "(e) growth of the difference from a tenth of training to the next": slopes(tables),
        "(f) training score, nine games whose rewards clipping leaves alone": standard.reindex(
            CLIPPING_CHANGES_NOTHING
        ),
        "(f) the others": standard.drop(list(CLIPPING_CHANGES_NOTHING), errors="ignore"),
    }
    for games, which in zip(by_sigma, ("least", "middle", "largest"), strict=True):
        found[f"(f) training score, third of games with the {which} sigma"] = standard.reindex(games)
    found["(g) share of heads whose values beat a constant, scaled minus unscaled"] = better_than_a_constant(
        tables
    )
    return {name: values.dropna() for name, values in found.items()}


def of_these_games(tables: Tables) -> tuple[float, float, float]:
    """(a): the mean over games and two seeds, and its 95% interval over seeds, by t of the differences within games."""
    by_seed = [
        pd.Series(atari57.differences(tables.runs[tables.runs.seed == seed].to_dict("records"), OURS, THEIRS))
        for seed in SEEDS
    ]
    first, second = (values.reindex(atari57.SETS[next(iter(atari57.SETS))]) for values in by_seed)
    both = pd.concat([first, second], axis=1).dropna()
    games = len(both)
    noise = np.sqrt(np.sum(np.diff(both, axis=1) ** 2) / 2 / games / (2 * games))
    reach = noise * stats.t.ppf(0.975, games)
    return (
        float(both.to_numpy().mean()),
        float(both.to_numpy().mean() - reach),
        float(both.to_numpy().mean() + reach),
    )


def middle(values: np.ndarray) -> tuple[float, float, float]:
    """Interquartile mean of values over games, and its 95% bootstrap interval."""
    drawn = values[np.random.default_rng(0).integers(len(values), size=(2000, len(values)))]
    ends = np.percentile(stats.trim_mean(drawn, 0.25, axis=1), [2.5, 97.5])
    return float(stats.trim_mean(values, 0.25)), float(ends[0]), float(ends[1])


def table(tables: Tables) -> list[str]:
    """Markdown: every reading over the games not looked at before and over all, for each seed alone and for both."""
    seeds = sorted(set(tables.runs.seed))
    parts = {str(seed): tables.where(HEADS, [seed]) for seed in seeds}
    if len(seeds) > 1:
        parts["both"] = tables
    names = [name for name in atari57.SETS if not name.startswith("33")]
    heads = [f"{games}, {'seed ' * (part != 'both')}{part}" for games in names for part in parts]
    lines = [f"| second reading, mean [95%] | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    of_parts = {part: named(rows, thirds(tables)) for part, rows in parts.items()}
    if len(seeds) > 1:
        mean, low, high = of_these_games(tables)
        cells = [
            f"{mean:.2f} [{low:.2f}, {high:.2f}]" if head == f"{names[0]}, both" else "" for head in heads
        ]
        lines.append(f"| (a) training score, these games as they are, over seeds | {' | '.join(cells)} |")
    for reading in next(iter(of_parts.values())):
        cells = []
        for games in names:
            for part in parts:
                values = of_parts[part][reading]
                values = values[values.index.isin(atari57.SETS[games])].to_numpy()
                mean, low, high = (
                    middle(values) if "interquartile" in reading else atari57.sign_flips(values)[:3]
                )
                cells.append(f"{mean:.2f} [{low:.2f}, {high:.2f}], {len(values)} games")
        lines.append(f"| {reading} | {' | '.join(cells)} |")
    return lines
