"""What the tables say of each claim: a word, and the numbers that carry it. All intervals are 95% unless said."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks import atari57
from benchmarks.paper import draw
from benchmarks.paper.tables import (
    AGGREGATES,
    FIRST,
    HEADS,
    TEN,
    Tables,
    bands,
    decades,
    head_spans,
    improvement,
    losses,
    narrower,
    over_seeds,
    shares,
    value_errors,
)

# NOT: the interval holds 0, from which nothing follows. MISSED: a stated threshold is not reached.
SEEN, NOT, MISSED = "Seen", "Not shown", "Short of its threshold"
OPPOSITE, OPEN = "The opposite is seen", "Open"
UNSEEN = next(iter(atari57.SETS))  # the 41 games that count first
Verdict = tuple[str, str]


def word(low: float, high: float, wanted: float = 1.0) -> str:
    """By an interval of something that the claim wants above 0 (`wanted` 1) or below (-1)."""
    low, high = sorted((wanted * low, wanted * high))
    return SEEN if low > 0 else OPPOSITE if high < 0 else NOT


def interval(mean: float, low: float, high: float) -> str:
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def large(value: float) -> str:
    """Two digits, no exponent."""
    return f"{float(f'{value:.2g}'):,g}" if value < 1e6 else f"{value:,.2g}"


def rows(table: pd.DataFrame) -> atari57.Table:
    return table.to_dict("records")


def level(tables: Tables) -> float:
    """Of the first reading's intervals: 99.5% at the first look, 95% when the second seed is there."""
    return 0.995 if set(tables.runs.seed) == {FIRST} else 0.95


def contrast(tables: Tables, ours: str, theirs: str, of: float = 0.95) -> tuple[float, float, float, float]:
    """Mean standardised difference over the 41 games, its interval and p."""
    of_games = atari57.differences(rows(tables.runs), ours, theirs)
    values = np.array([of_games[game] for game in atari57.SETS[UNSEEN] if game in of_games])
    return atari57.sign_flips(values, of)


def figure1(tables: Tables) -> Verdict:
    spans = [decades(of[10]) for of in draw.statistics(tables, "return").values()]
    none, ours = (decades(losses(tables.heads, name)) for name in ("none", "return"))
    first = tables.curves[(tables.curves.variant == "return") & (tables.curves.tenth == 1)]
    late = (over_seeds(first, "episodes").sum(axis=1) == 0).sum()
    return SEEN if spans[0] >= 3 else MISSED, (
        f"at the end of training the scores of {tables.curves.game.nunique()} games span {spans[0]:.1f} powers of ten "
        f"(seen asks for three), rewards {spans[1]:.1f}, their density {spans[2]:.1f} and the lengths of episodes "
        f"{spans[3]:.1f}. Losses over games and heads span {none:.1f} unscaled and {ours:.1f} scaled. In {late} games "
        "no episode ends in the first tenth of training; there early is the first tenth in which one does."
    )


def figure3(tables: Tables) -> Verdict:
    parts, words = [], []
    for ours, theirs, name in (
        ("one_head_return", "one_head_none", "one head"),
        ("return", "none", "ten heads"),
    ):
        both = [losses(tables.heads, variant).mean(axis=1) for variant in (ours, theirs)]
        ratio, p = narrower(*(of.to_numpy() for of in both))
        words.append(NOT if p > 0.05 else SEEN if ratio < 1 else OPPOSITE)
        spans = " and ".join(f"{decades(of):.1f}" for of in both)
        parts.append(
            f"{name}: losses over games span {spans} powers of ten scaled and unscaled, and the standard deviation of "
            f"their logarithms is {ratio:.2f} times as large scaled (p {p:.2g})"
        )
    both_seen = words[0] if len(set(words)) == 1 else NOT
    return both_seen, f"{'; '.join(parts)}. Of clipped, Pop-Art's and squashed losses nothing is judged."


def figure4(tables: Tables) -> Verdict:
    of, found = level(tables), {}
    for ours, theirs, _ in atari57.CONTRASTS:
        found[ours, theirs] = contrast(tables, ours, theirs, of)
    mean, low, high, p = found["return", "none"]
    one = interval(*found["one_head_return", "one_head_none"][:3])
    of_games = pd.Series(atari57.differences(rows(tables.runs), "return", "none"))
    of_games = of_games[of_games.index.isin(atari57.SETS[UNSEEN])]
    most = of_games.abs().idxmax()
    without = interval(*atari57.sign_flips(of_games.drop(most).to_numpy(), of)[:3])
    decided, then = word(low, high), ""
    if decided == NOT and of > 0.95:
        decided, then = OPEN, "A second seed is run before anything is concluded. "
    if of < 0.995:
        first_level = interval(*contrast(tables, "return", "none", 0.995)[:3])
        then = f"At the level of the first look, 99.5%, it is {first_level}. "
    return decided, (
        f"ten heads score {interval(mean, low, high)} higher scaled than unscaled, in standard deviations of an "
        f"episode's score (mean over the {len(atari57.SETS[UNSEEN])} games not looked at before, {100 * of:g}% "
        f"intervals; sign-flip test: p {p:.2g}). {then}Without {draw.named(most).title()}, where it is largest, it "
        f"is {without} (looked at afterwards). With one head the difference is {one}. The comparisons of ten heads "
        "with one, below, favour ten in two ways. The learning rate, one for all, was chosen in six games: there it is "
        "the best of three for ten heads and the worst for one scaled head, though the three hardly differ. And "
        f"the scores of ten heads leave out the episodes of their heads of discount 0, {left_out(tables):.0%} of all. "
        f"{reach(tables)}"
    )


def left_out(tables: Tables) -> float:
    """Share of the last fifth's episodes that heads of discount 0 played, in runs of ten heads with ten others."""
    late = tables.curves[(tables.curves.tenth > 8) & tables.curves.variant.isin(("return", "none"))]
    all_of = late.groupby(["game", "variant", "seed"]).episodes.sum()
    counted = tables.runs.set_index(["game", "variant", "seed"]).late_episodes.reindex(all_of.index)
    enough = counted > atari57.LEAST
    return float(1 - counted[enough].sum() / all_of[enough].sum())


def reach(tables: Tables) -> str:
    """Where the last fifth of the steps has fewer than ten episodes, so that the score reaches further back."""
    late = tables.curves[(tables.curves.tenth > 8) & tables.curves.variant.isin(("return", "none"))]
    least = late.groupby(["game", "variant", "seed"]).episodes.sum().groupby("game").min()
    none = [draw.named(game).title() for game in least.index[least == 0]]
    return (
        f"In {(least < atari57.LEAST).sum()} games fewer than ten episodes end in the last fifth, so the score is of "
        f"earlier ones, too; none ends there in {', '.join(none) or 'no game'}."
    )


def split(values: np.ndarray) -> str:
    """In how many games a difference is above 0, below it and 0."""
    return f"higher in {(values > 0).sum()}, lower in {(values < 0).sum()}, equal in {(values == 0).sum()}"


def headline(tables: Tables) -> str:
    """The first reading in words."""
    of = level(tables)
    mean, low, high, _ = contrast(tables, "return", "none", of)
    of_games = atari57.differences(rows(tables.runs), "return", "none")
    counts = []
    for name in (UNSEEN, "all 57"):
        counts.append(split(np.array([of_games[game] for game in atari57.SETS[name] if game in of_games])))
    return (
        f"Scaled, they score higher by {interval(mean, low, high)} standard deviations of an episode's score "
        f"({100 * of:g}% interval) on average over the {len(atari57.SETS[UNSEEN])} games whose results we had not "
        f"looked at before: {counts[0]}. Of all 57: {counts[1]}."
    )


def figure5(tables: Tables) -> Verdict:
    ours, theirs = (head_spans(tables.heads, name) for name in ("return", "none"))
    mean, low, high, p = atari57.sign_flips((ours - theirs).dropna().to_numpy())
    shown = "{:.2g} [{:.2g}, {:.2g}]".format(*np.exp([mean, low, high]))
    alike = {  # over discounts alone
        name: " and ".join(
            large(np.exp(head_spans(tables.heads, name, heads).median())) for heads in (TEN[:5], TEN[5:])
        )
        for name in ("return", "none")
    }
    narrowed = [
        interval(*np.exp(atari57.sign_flips((of[0] - of[1]).dropna().to_numpy())[:3]))
        for heads in (TEN[:5], TEN[5:])
        for of in [[head_spans(tables.heads, name, heads) for name in ("return", "none")]]
    ]
    return word(low, high, -1), (
        f"in the median game the losses of ten heads span a factor of {large(np.exp(ours.median()))} scaled and of "
        f"{large(np.exp(theirs.median()))} unscaled; the ratio of the two, geometric mean over games, is {shown}. Most "
        "of it is between clipped and raw rewards. Over the five discounts alone the median span is "
        f"{alike['return']} scaled, for clipped and for raw rewards, and {alike['none']} unscaled; the ratios are "
        f"{narrowed[0]} and {narrowed[1]}. So between discounts our losses differ much less than the paper's."
    )


def figure6(tables: Tables) -> Verdict:
    logs = np.log(value_errors(tables.heads, "return") / value_errors(tables.heads, "none"))

    def ratio(of: pd.DataFrame | pd.Series) -> tuple[float, float, float]:
        values = of.mean(axis=1) if of.ndim == 2 else of
        return atari57.sign_flips(values.dropna().to_numpy())[:3]

    clipped, raw = ratio(logs[TEN[:5]]), ratio(logs[TEN[5:]])
    words = [word(low, high, -1) for _, low, high in (clipped, raw)]
    found = f"{words[0]} for clipped rewards and {words[1].lower()} for raw ones"
    near, far = (logs[heads].mean(axis=1) for heads in (TEN[:2] + TEN[5:7], TEN[2:5] + TEN[7:]))
    of_games = logs.mean(axis=1).dropna()
    largest = of_games.abs().idxmax()
    beat = []
    for name in ("return", "none"):
        errors = value_errors(tables.heads, name).loc[of_games.index]
        beat.append((errors < 1).sum().sum() / errors.notna().sum().sum())
    if len(set(words)) == 1:
        found = words[0]
        if found == SEEN and word(*ratio(near - far)[1:], -1) != SEEN:
            found = "Seen but not most of all at low discounts"
    return found, (
        "the error of values is relative to that of a constant. Scaled over unscaled it is "
        f"{interval(*np.exp(clipped))} for clipped rewards, {interval(*np.exp(raw))} for raw ones and "
        f"{interval(*np.exp(ratio(logs)))} for all, geometric mean over heads and the {len(of_games)} games whose last "
        f"returns vary in both. {draw.named(largest).title()}, where it is {np.exp(of_games[largest]):.2g}, makes the "
        f"last interval wide; without this game it is {interval(*np.exp(ratio(of_games.drop(largest))))} (looked at "
        f"afterwards). At discounts 0 and 0.9 the ratio is {interval(*np.exp(ratio(near - far)))} times that at the "
        f"others, where the paper's is below 1. {beat[0]:.0%} of heads beat a constant scaled, {beat[1]:.0%} unscaled "
        "(looked at afterwards; reading (g) below Figure 4 has the interval)."
    )


def figure7(tables: Tables) -> Verdict:
    late = tables.runs.groupby("variant").late
    without, biased = "one_head_return", "one_head_return_value_bias"
    low, high = late.min(), late.max()
    found = SEEN if low[biased] > high[without] else OPPOSITE if high[biased] < low[without] else NOT
    first = tables.heads[tables.heads.fifth == 1].groupby("variant").unscaled.mean()
    return found, (
        f"last fifth, points: {late.mean()[biased]:,.0f} with the bias ({low[biased]:,.0f} to {high[biased]:,.0f}), "
        f"{late.mean()[without]:,.0f} without ({low[without]:,.0f} to {high[without]:,.0f}); TD errors of the first "
        f"fifth {first[biased]:,.3g} and {first[without]:,.3g}."
    )


def figure8(tables: Tables) -> Verdict:
    squares = tables.heads.assign(loss=tables.heads.scaled**2 / 2)
    sums = squares.groupby(["variant", "seed", "fifth"]).loss.sum().unstack("fifth")
    factors = sums.max(axis=1) / sums.min(axis=1)
    ratios = factors["pop_art"] / factors["return"]
    found = SEEN if (ratios > 1).all() else OPPOSITE if (ratios < 1).all() else NOT
    shown = {name: ", ".join(f"{of:.2g}" for of in factors[name]) for name in ("pop_art", "return")}
    return found, (
        f"between fifths of a run the loss changes by factors of {shown['pop_art']} with pop_art and of "
        f"{shown['return']} with return (seeds in order)."
    )


def figure9(tables: Tables) -> Verdict:
    _, x, y = map(np.concatenate, zip(*(draw.update_sizes(tables, name) for name in HEADS), strict=True))
    spans, sizes, others = decades(x), decades(y), decades(np.sort(y)[1:])
    return SEEN if spans >= 2 and sizes <= 1 else MISSED, (
        f"losses of {len(draw.ADAM)} games and four variants span {spans:.1f} powers of ten, and the updates that Adam "
        f"makes of them {sizes:.1f} (seen asks for at least 2 and at most 1). Without the smallest update, that of one "
        f"run, they span {others:.1f} (looked at afterwards)."
    )


def figure11(tables: Tables) -> Verdict:
    return (
        OPEN,
        "`pop_art_first` is not run, so there is no word. The intervals of the others are below, of seed 571.",
    )


def figure12(tables: Tables) -> Verdict:
    return OPEN, (
        "Pop-Art and `signed_hyperbolic` are not run with one head, so there is no word. The intervals of `clip` are "
        "below, of seed 571."
    )


def figure13(tables: Tables) -> Verdict:
    ours, theirs = (shares(tables.heads, name, 5)[TEN[5:]].sum(axis=1) for name in ("return", "none"))
    mean, low, high, _ = atari57.sign_flips((ours - theirs).dropna().to_numpy())
    early = [shares(tables.heads, name, 1)[TEN[5:]].sum(axis=1).mean() for name in ("return", "none")]
    each = shares(tables.heads, "return", 5).mean()
    return word(low, high, -1), (
        f"on average over games the heads of raw rewards have {ours.mean():.3f} of the loss scaled and "
        f"{theirs.mean():.3f} unscaled in the last fifth of training: {interval(mean, low, high)}; in the first fifth "
        f"{early[0]:.3f} and {early[1]:.3f}. Scaled, each head has {each.min():.3f} to {each.max():.3f}, again on "
        "average over games. Whether a larger share helps is not judged."
    )


def figure14(tables: Tables) -> Verdict:
    last = tables.curves[tables.curves.tenth > 8]
    score, count = over_seeds(last, "return"), over_seeds(last, "rewards")
    worth = (score / count).where((score > 0) & (count > 0))
    logs = np.log(worth["one_head_none"] / worth["one_head_clip"]).dropna()
    mean, low, high, _ = atari57.sign_flips(logs.to_numpy())
    return word(low, high), (
        "points per non-zero reward, one head that learns from raw rewards over one that learns from clipped ones: "
        "{:.2f} [{:.2f}, {:.2f}]".format(*np.exp([mean, low, high]))
        + f" (geometric mean over {len(logs)} games with scores above 0)."
    )


def figure15(tables: Tables) -> Verdict:
    of_games = atari57.differences(rows(tables.runs), "return", "none")
    values = np.array(list(of_games.values()))
    count, number, low, high = atari57.above(values)
    return figure4(tables)[0], (
        f"as Figure 4, whose word this is. Training scores of ten heads, scaled against unscaled: {split(values)}; "
        f"the share of games with higher ones, ties half, is {interval(count / number, low, high)}."
    )


def rivals(tables: Tables, ours: str, others: Sequence[str]) -> list[str]:
    """Markdown: what an arm has more than others, as in the first reading; no word follows."""
    lines = [f"| {draw.LOOKS[ours][0]}, minus | games | mean difference [95%] | by game |", "|---" * 4 + "|"]
    for theirs in others:
        of_games = atari57.differences(rows(tables.runs), ours, theirs)
        for name in (UNSEEN, "all 57"):
            values = np.array([of_games[game] for game in atari57.SETS[name] if game in of_games])
            mean = interval(*atari57.sign_flips(values)[:3])
            lines.append(f"| {draw.LOOKS[theirs][0]} | {name} | {mean} | {split(values)} |")
    return lines


def first_reading(tables: Tables) -> list[str]:
    """Markdown: each contrast over each set of games."""
    of = level(tables)
    lines = [
        f"| training score | games | mean difference [{100 * of:g}%] | p | higher, ties half | their share [95%] |",
        "|---" * 6 + "|",
    ]
    for ours, theirs, words in atari57.CONTRASTS:
        of_games = atari57.differences(rows(tables.runs), ours, theirs)
        for name, games in atari57.SETS.items():
            values = np.array([of_games[game] for game in games if game in of_games])
            *mean, p = atari57.sign_flips(values, of)
            count, number, *share = atari57.above(values)
            lines.append(
                f"| {words} | {name} | {interval(*mean)} | {p:.2g} | {count:g} of {number} | "
                f"{interval(count / number, *share)} |"
            )
    silent = tables.runs[tables.runs.late_episodes == 0]
    if len(silent):
        of_runs = [
            f"{draw.named(game)} ({variant})"
            for game, variant in zip(silent.game, silent.variant, strict=True)
        ]
        silence = f"No episode ended in the last fifth, so no difference: {', '.join(of_runs)}."
        lines += ["", textwrap.fill(silence, 120)]
    return lines


def dead_units(tables: Tables) -> str:
    """Markdown: shares of dead units, which earlier runs had shown to differ, in games that they had not."""
    parts = []
    for ours, theirs, name in (
        ("return", "none", "ten heads"),
        ("one_head_return", "one_head_none", "one head"),
    ):
        shares_of = over_seeds(tables.runs, "dead_units").loc[atari57.SETS[UNSEEN]]
        less = (shares_of[ours] - shares_of[theirs]).to_numpy()
        parts.append(
            f"{name} {shares_of[ours].mean():.1%} scaled and {shares_of[theirs].mean():.1%} unscaled: "
            f"{interval(*atari57.sign_flips(100 * less)[:3])} points, fewer in {(less < 0).sum()} games and more in "
            f"{(less > 0).sum()}"
        )
    fewer = over_seeds(tables.runs, "dead_units")[["return", "none"]].diff(axis=1)["none"]
    of_games = pd.Series(atari57.differences(rows(tables.runs), "return", "none"))
    related = fewer.corr(of_games, method="spearman")
    machines = ", ".join(f"{count} on {name}" for name, count in tables.runs.processor.value_counts().items())
    return (
        "Dead units put out 0 in every state. Counted at the end, in the torso's layer that has most of them, in the "
        f"41 games (no reading named before, but seen in six other games): {'; '.join(parts)}. They do not explain "
        "the scores: over all games, how many fewer die and how much higher the score is have a rank correlation of "
        f"{related:.2f}. Runs, one core each: {machines}."
    )


def second_reading(tables: Tables, variants: Sequence[str]) -> list[str]:
    """Markdown: human-normalised aggregates with bootstrap intervals over games, then probabilities of improvement."""
    lines = []
    for column, title in (
        ("late", "human-normalised training score"),
        ("greedy", "human-normalised greedy play at the end"),
    ):
        scores = draw.final_scores(tables, column)
        lines += [
            f"| {title}, {len(scores)} games | {' | '.join(AGGREGATES)} |",
            "|---" * (1 + len(AGGREGATES)) + "|",
        ]
        for name in variants:
            cells = " | ".join(interval(*of) for of in bands(scores[name].to_numpy(), 0.95))
            lines.append(f"| {draw.LOOKS[name][0]} | {cells} |")
        better = [
            f"{draw.LOOKS[ours][0]}, over {draw.LOOKS[theirs][0]}, "
            + interval(*improvement(scores[ours].to_numpy(), scores[theirs].to_numpy()))
            for ours, theirs, _ in atari57.CONTRASTS
        ]
        lines += ["", textwrap.fill(f"Probability of improvement, {title}: {'; '.join(better)}.", 120), ""]
    return lines
