"""Which of the paper's claims the runs of benchmarks/atari_claims.py show: a page and a figure, of finished runs.

    .venv/bin/python -m benchmarks.atari_claims_results

Reads docs/results/atari_small_claims.csv and _heads.csv, and writes atari_small_claims.md and .png beside them.

The rules were written before the first run. A run's score is its training return in the last fifth of its steps,
human-normalised; a game where the mean of all its runs is below 0.02 counts as not learned, and is left out. An
interval is Welch's t over games, 95%, about chance between runs and not between games. "Above" is seen where the
interval lies above 0, contradicted where it lies below; "on a par" is seen where the interval lies within a fifth of
the mean score, contradicted where it leaves out 0; everything else cannot be decided at this size. Claims about heads
compare the two sides in the same way: "less" is seen where the interval lies below 0.

Two rules were added when 33 first repeats were known, for cases that nobody had thought of. A run none of whose heads
has a relative error, because its greedy episodes score nothing, is left out of claims about accuracy. Where some games
have two runs on both sides, a claim is about these games alone: single runs have no variance.

Two rules were changed when all runs were known. Each game's scores were to be divided by the mean of all its runs; but
in Boxing, whose runs score from far below random play to above a human, that mean is no larger than its standard error,
and such ratios decide nothing. So scores are compared as they are; the column over means is by the old rule. And as
that choice is from afterwards, a verdict takes intervals of 95% for all claims at once (Bonferroni's). The column
without Boxing decides nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import atari_claims, grid
from benchmarks.contrasts import Contrast, contrast, permutation
from rbs_tf import scores
from studies import figure

PAR = 0.2  # of the mean score
LEARNED = 0.02  # human-normalised, in the mean of a game's runs
Variant = tuple[int, str]
Rows = Sequence[Mapping[str, str]]
Games = Mapping[str, tuple[np.ndarray, np.ndarray]]  # both sides' runs by game
# Figure of the paper, claim, ours, theirs, whether "above" or "par".
SCORE_CLAIMS: tuple[tuple[str, str, Variant, Variant, str], ...] = (
    ("4", "ten heads: `return` above `none`", (10, "return"), (10, "none"), "above"),
    ("4", "ten heads of `return` above one head of `none`", (10, "return"), (1, "none"), "above"),
    ("4", "one head: `return` on a par with `none`", (1, "return"), (1, "none"), "par"),
    ("4", "ten heads of `none` on a par with one", (10, "none"), (1, "none"), "par"),
    ("11", "ten heads: `pop_art` above `none`", (10, "pop_art"), (10, "none"), "above"),
    ("11", "ten heads: `return` above `pop_art`", (10, "return"), (10, "pop_art"), "above"),
    ("12", "one head: `clip` above `none`", (1, "clip"), (1, "none"), "above"),
    ("", "ten heads: `return_out` above `return`", (10, "return_out"), (10, "return"), "above"),
)
WEIGHTY = "boxing"
COLOURS = {
    (10, "none"): "tab:red",
    (10, "return"): "tab:green",
    (10, "return_out"): "indigo",
    (10, "pop_art"): "tab:blue",
    (1, "none"): "lightcoral",
    (1, "return"): "yellowgreen",
    (1, "clip"): "tab:brown",
}


def of_heads(rows: Rows, column: str, keep: Callable[[str], bool] = lambda head: True) -> np.ndarray:
    """A column of one run's heads, float64, NaN left out: heads whose returns never vary have no relative error."""
    values = np.array([float(row[column]) for row in rows if keep(row["head"])])
    return values[np.isfinite(values)]


def compared_games(games: Games) -> Games:
    """The games that both sides have; those alone where both have two runs, if there are any."""
    fewest = {game: min(map(len, sides)) for game, sides in games.items()}
    least = 2 if any(count > 1 for count in fewest.values()) else 1
    return {game: sides for game, sides in games.items() if fewest[game] >= least}


def spread(rows: Rows) -> float:
    errors = of_heads(rows, "scaled_error")
    return float(np.log(errors.max() / errors.min()))


def mean_log(rows: Rows, keep: Callable[[str], bool] = lambda head: True) -> float:
    """NaN where no head has one."""
    logs = np.log(of_heads(rows, "relative_value_error", keep))
    return float(logs.mean()) if len(logs) else np.nan


def low_less_high(rows: Rows) -> float:
    def low(head: str) -> bool:
        return float(head.split("_")[1]) <= 0.9

    return mean_log(rows, low) - mean_log(rows, lambda head: not low(head))


def unclipped_share(rows: Rows) -> float:
    return float(of_heads(rows, "loss_share", lambda head: head.startswith("unclipped")).sum())


# Figure of the paper, claim, what is measured of one run's heads.
HEAD_CLAIMS: tuple[tuple[str, str, Callable[[Rows], float]], ...] = (
    ("5", "losses of ten heads span less, ln of largest over smallest RMS error", spread),
    ("6", "values of all heads are more accurate, mean ln of relative RMSE", mean_log),
    ("6", "above all at low discounts, the same of 0 and 0.9 minus that of the others", low_less_high),
    ("13", "unclipped heads have less of the loss, their share", unclipped_share),
)


def normalised(rows: Rows, column: str) -> dict[tuple[str, Variant], np.ndarray]:
    """Human-normalised scores of each game's and variant's runs."""
    found: dict[tuple[str, Variant], list[float]] = {}
    for row in rows:
        score = scores.human_normalised_score(row["game"], float(row[column]))
        found.setdefault((row["game"], (int(row["heads"]), row["scaling"])), []).append(float(score))
    return {key: np.array(values) for key, values in found.items()}


def by_game(found: Mapping[tuple[str, Variant], np.ndarray]) -> dict[str, np.ndarray]:
    """All runs of each game; games that nobody learns are left out."""
    games = [game for game in atari_claims.GAMES if any(g == game for g, _ in found)]
    every = {game: np.concatenate([v for (g, _), v in found.items() if g == game]) for game in games}
    return {game: values for game, values in every.items() if values.mean() >= LEARNED}


def verdict(compared: Contrast, kind: str, margin: float = PAR, claims: int = 1) -> str:
    """By an interval of 95% for so many claims at once; "above" and "less": on which side of 0 the claim has it."""
    low, high = compared.interval(1 - 0.05 / claims)
    if kind == "par":
        seen, contradicted = low > -margin and high < margin, low > 0 or high < 0
    else:
        low, high = (-high, -low) if kind == "less" else (low, high)
        seen, contradicted = low > 0, high < 0
    return "seen" if seen else "contradicted" if contradicted else "cannot be decided"


def claims(runs: Rows, heads: Rows) -> list[tuple[str, str, str, Games, Games]]:
    """Figure, claim, its kind for `verdict`, the runs that it is about, and the same over the mean of each game."""

    def games(ours: Variant, theirs: Variant, values: Mapping[tuple[str, Variant], np.ndarray]) -> Games:
        none = np.array([])
        return compared_games(
            {
                game: (values.get((game, ours), none), values.get((game, theirs), none))
                for game in atari_claims.GAMES
            }
        )

    def of_ten(measured: Callable[[Rows], float]) -> dict[tuple[str, Variant], np.ndarray]:
        """What is measured of each run's heads, NaN left out."""
        by_run: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
        for row in heads:
            if row["heads"] == "10":
                by_run.setdefault((row["game"], row["scaling"], row["repeat"]), []).append(row)
        found: dict[tuple[str, Variant], list[float]] = {}
        for (game, name, _), rows in by_run.items():
            found.setdefault((game, (10, name)), []).append(measured(rows))
        return {key: np.array(values)[np.isfinite(values)] for key, values in found.items()}

    found = normalised(runs, "last_fifth")
    means = {game: values.mean() for game, values in by_game(found).items()}
    scored = {key: values for key, values in found.items() if key[0] in means}
    ratios = {key: values / means[key[0]] for key, values in scored.items()}
    return [
        *(
            (number, claim, kind, games(*sides, scored), games(*sides, ratios))
            for number, claim, *sides, kind in SCORE_CLAIMS
        ),
        *(
            (
                number,
                f"`return` against `none`: {claim}",
                "less",
                games((10, "return"), (10, "none"), of_ten(measured)),
                {},
            )
            for number, claim, measured in HEAD_CLAIMS
        ),
    ]


def claim_lines(runs: Rows, heads: Rows) -> list[str]:
    """The table of claims."""

    def sides(games: Games) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return [ours for ours, _ in games.values()], [theirs for _, theirs in games.values()]

    def interval(games: Games) -> str:
        if not games:
            return ""
        compared = contrast(*sides(games), pooled=False)
        low, high = compared.interval()
        return f"{compared.difference:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if np.isfinite(low) else "")

    lines = [
        f"| figure | claim | games | difference | permutation p | without {WEIGHTY.title()} | over means | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    compared = [claim for claim in claims(runs, heads) if claim[3]]
    for number, claim, kind, games, ratios in compared:
        others = {game: both for game, both in games.items() if game != WEIGHTY}
        margin = PAR * float(np.mean([np.concatenate(both).mean() for both in games.values()]))
        decided = verdict(contrast(*sides(games), pooled=False), kind, margin, len(compared))
        lines.append(
            f"| {number} | {claim} | {len(games)} | {interval(games)} | {permutation(*sides(games)):.3f} | "
            f"{interval(others)} | {interval(ratios)} | {decided} |"
        )
    return lines


def deviations(runs: Rows) -> str:
    """By game: mean of all runs, its standard error, and deviation between runs of one kind, pooled over kinds."""
    found, parts = normalised(runs, "last_fifth"), []
    for game, every in by_game(found).items():
        variances = [v.var(ddof=1) for (g, _), v in found.items() if g == game and len(v) > 1]
        if variances:
            error, deviation = every.std(ddof=1) / np.sqrt(len(every)), np.sqrt(np.mean(variances))
            parts.append(f"{game} {every.mean():.3f} ± {error:.3f} and {deviation:.3f}")
    return ", ".join(parts)


def score_lines(rows: Rows, column: str) -> list[str]:
    """Human-normalised scores: every run, and the mean over games that all variants have."""
    found = normalised(rows, column)
    games = [game for game in atari_claims.GAMES if any(g == game for g, _ in found)]
    everywhere = [g for g in games if all((g, variant) in found for variant in atari_claims.VARIANTS)]
    lines = [
        f"| heads | `--scaling` | {' | '.join(games)} | mean of {len(everywhere)} games |",
        "|---" * (3 + len(games)) + "|",
    ]
    for variant in atari_claims.VARIANTS:
        entries = [" ".join(f"{v:.3f}" for v in found.get((game, variant), ())) for game in games]
        mean = f"{np.mean([found[g, variant].mean() for g in everywhere]):.3f}" if everywhere else ""
        lines.append(f"| {variant[0]} | `{variant[1]}` | {' | '.join(entries)} | {mean} |")
    return lines


def page(runs: Rows, heads: Rows) -> str:
    """The Markdown page."""
    minutes = sum(float(row["minutes"]) for row in runs)
    grid_of_runs = atari_claims.runs()
    made = {(row["game"], int(row["heads"]), row["scaling"], int(row["repeat"])) for row in runs}
    cut = Counter(run.game for run in grid_of_runs if run not in made)
    return "\n".join(
        [
            "# The paper's claims on Atari, at a small size",
            "",
            f"`.venv/bin/python -m benchmarks.atari_claims_results`: {len(runs)} of {len(grid_of_runs)} runs of "
            f"`benchmarks/atari_claims.py`, {atari_claims.STEPS:,} steps each, {minutes / 60:.1f} hours of one core "
            f"({grid.processors(runs)}). Not run: "
            + (", ".join(f"{count} of {game}" for game, count in cut.items()) or "nothing")
            + ".",
            "",
            "\n\n".join((__doc__ or "").strip().split("\n\n")[3:]),
            "",
            *claim_lines(runs, heads),
            "",
            "Intervals and p of the table are not corrected for the number of claims. Mean score of all runs ± its "
            f"standard error, and standard deviation between runs of one kind: {deviations(runs)}.",
            "",
            "## Human-normalised scores, training, last fifth",
            "",
            "Every run; 0 is random play, 1 a human.",
            "",
            *score_lines(runs, "last_fifth"),
            "",
            "## Greedy, 20 episodes at the end",
            "",
            *score_lines(runs, "greedy"),
            "",
            "![Scores, loss scales, accuracies, shares, rewards and choices](atari_small_claims.png)",
            "",
        ]
    )


def draw(runs: Rows, heads: Rows) -> figure.Figure:  # type: ignore[name-defined]
    """Six panels: scores, and what figures 5, 6, 13 and 14 of the paper and the bandit show."""
    drawing, axes = figure.new_figure(2, 3, panel=(4.6, 3.6))
    names = list(dict.fromkeys(row["head"] for row in heads if row["heads"] == "10"))
    ten = [variant for variant in atari_claims.VARIANTS if variant[0] == 10]
    labels = {variant: f"{variant[0]} x {variant[1]}" for variant in atari_claims.VARIANTS}

    found = normalised(runs, "last_fifth")
    for place, variant in enumerate(atari_claims.VARIANTS):
        for index, game in enumerate(atari_claims.GAMES):
            values = found.get((game, variant), np.array([]))
            at = np.full(len(values), index + (place - 3) * 0.1)
            style = {"color": COLOURS[variant], "label": labels[variant] if index == 0 else None}
            axes[0, 0].plot(at, values, "o", ms=4, **style)
    axes[0, 0].set_xticks(range(len(atari_claims.GAMES)), atari_claims.GAMES, rotation=20)
    axes[0, 0].set_title("human-normalised score, last fifth")

    def per_head(variant: Variant, column: str) -> np.ndarray:
        """[runs, heads]."""
        own = [r for r in heads if (int(r["heads"]), r["scaling"]) == variant]
        by_run: dict[tuple[str, str], dict[str, float]] = {}
        for row in own:
            by_run.setdefault((row["game"], row["repeat"]), {})[row["head"]] = float(row[column])
        return np.array([[run[name] for name in names] for run in by_run.values()]).reshape(-1, len(names))

    for panel, column, title in (
        (axes[0, 1], "scaled_error", "RMS TD error learned from (figure 5)"),
        (axes[0, 2], "relative_value_error", "RMSE of values / std of returns (figure 6)"),
        (axes[1, 2], "probability", "probability that a head acts"),
    ):
        for variant in ten:
            values = per_head(variant, column)
            if len(values):
                panel.plot(values.T, color=COLOURS[variant], lw=0.4, alpha=0.5)
                panel.plot(
                    np.exp(np.nanmean(np.log(values), axis=0)), color=COLOURS[variant], marker="o", ms=4
                )
        panel.set(yscale="log", title=title)
        panel.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    for variant in ten:
        shares, accuracies = (per_head(variant, c) for c in ("loss_share", "relative_value_error"))
        axes[1, 0].plot(shares.ravel(), accuracies.ravel(), "o", ms=3, color=COLOURS[variant])
    axes[1, 0].set(xscale="log", yscale="log", xlabel="share of the loss", ylabel="relative RMSE of values")
    axes[1, 0].set_title("shares against accuracy (figure 13)")
    for row in runs:
        variant = int(row["heads"]), row["scaling"]
        score = scores.human_normalised_score(row["game"], float(row["greedy"]))
        if variant in ((10, "return"), (1, "return"), (1, "clip")):
            letters = f"${row['game'][:2].title()}$"
            axes[1, 1].plot(float(row["rewarded"]), score, marker=letters, ms=11, color=COLOURS[variant])
    axes[1, 1].set(xlabel="rewards per greedy episode that are not 0", ylabel="human-normalised score")
    axes[1, 1].set_title("clipped against raw (figure 14)")
    drawing.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return drawing


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=atari_claims.TABLES["runs"].parent, metavar="FOLDER")
    folder = parser.parse_args(command_line).results
    runs, heads = (grid.read(folder / atari_claims.TABLES[name].name) for name in ("runs", "heads"))
    if not runs:
        parser.exit(2, f"{folder} has no runs yet. Make some: python -m benchmarks.atari_claims\n")
    (folder / "atari_small_claims.md").write_text(page(runs, heads))
    draw(runs, heads).savefig(folder / "atari_small_claims.png", dpi=100)
    print(f"{len(runs)} runs: {folder / 'atari_small_claims.md'} and the figure beside it")


if __name__ == "__main__":
    main()
