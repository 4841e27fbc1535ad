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
        f"at the end of training scores of {tables.curves.game.nunique()} games span {spans[0]:.1f} powers of ten, "
        f"rewards {spans[1]:.1f}, their density {spans[2]:.1f}, lengths {spans[3]:.1f} (rule for seen: three for "
        f"scores); losses over games and heads {none:.1f} without scaling, {ours:.1f} with it. In {late} games no "
        "episode ends in the first tenth: there early is the first tenth in which one does."
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
            f"{name}: losses over games span {spans} powers of ten with scaling and without, their logarithms deviate "
            f"{ratio:.2f} times as much (p {p:.2g})"
        )
    both_seen = words[0] if len(set(words)) == 1 else NOT
    return both_seen, f"{'; '.join(parts)}. Clipped, Pop-Art's and squashed losses: open."


def figure4(tables: Tables) -> Verdict:
    of, parts, found = level(tables), [], {}
    for ours, theirs, words in atari57.CONTRASTS:
        mean, low, high, p = contrast(tables, ours, theirs, of)
        found[ours, theirs] = word(low, high)
        parts.append(f"{words}: {interval(mean, low, high)}, p {p:.2g}")
    decided = found["return", "none"]
    if decided == NOT and of > 0.95:
        decided = OPEN
        parts.append("a second seed is to come before anything is concluded")
    return decided, (
        f"mean standardised difference over the {len(atari57.SETS[UNSEEN])} games not seen before "
        f"({100 * of:g}% intervals): {'; '.join(parts)}. The word is about the first; in the paper the second "
        "and the fourth are about equal, the third is above 0. Two things favour ten heads in the third and fourth: "
        "by one or two ranks of eighteen the rate is their best of three in six games, and the worst for one head with "
        "scaling; and the score leaves out the episodes of their heads of discount 0, "
        f"{left_out(tables):.0%} of all. {reach(tables)}"
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
    """The first reading in a sentence."""
    of = level(tables)
    mean, low, high, _ = contrast(tables, "return", "none", of)
    of_games = atari57.differences(rows(tables.runs), "return", "none")
    counts = []
    for name in (UNSEEN, "all 57"):
        counts.append(split(np.array([of_games[game] for game in atari57.SETS[name] if game in of_games])))
    return (
        f"at a 2,500th of the paper's frames training scores with scaling are {interval(mean, low, high)} standard "
        f"deviations of an episode's score higher ({100 * of:g}% interval) in the games not seen before: {counts[0]}. "
        f"Of all 57: {counts[1]}."
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
        f"losses of ten heads span a factor of {large(np.exp(ours.median()))} with scaling and of "
        f"{large(np.exp(theirs.median()))} without in the median game; ratio of the two, geometric mean over games: "
        f"{shown}. Over the discounts of clipped and of raw rewards alone it is {alike['return']} with scaling, "
        f"{alike['none']} without: scaling brings them to {narrowed[0]} and {narrowed[1]} of that. So most of the span "
        "is that of clipped against raw rewards, not of discounts."
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
    return words[0] if len(set(words)) == 1 else found, (
        f"relative RMSE with scaling over that without, geometric mean over heads and the {len(of_games)} games whose "
        f"last returns vary under both: clipped heads {interval(*np.exp(clipped))}, raw ones {interval(*np.exp(raw))}, "
        f"all {interval(*np.exp(ratio(logs)))}. One game makes the last interval wide: in "
        f"{draw.named(largest).title()} it is {np.exp(of_games[largest]):.2g}, without it "
        f"{interval(*np.exp(ratio(of_games.drop(largest))))} (looked at afterwards). At discounts 0 and 0.9 over the "
        f"others: {interval(*np.exp(ratio(near - far)))}. A relative RMSE of 1 is that of a constant: {beat[0]:.0%} of "
        f"heads beat it with scaling, {beat[1]:.0%} without (looked at afterwards, with an interval below Figure 4)."
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
    x, y = map(np.concatenate, zip(*(draw.update_sizes(tables, name) for name in HEADS), strict=True))
    spans, sizes, others = decades(x), decades(y), decades(np.sort(y)[1:])
    return SEEN if spans >= 2 and sizes <= 1 else MISSED, (
        f"losses of {len(draw.ADAM)} games and four variants span {spans:.1f} powers of ten, the updates that Adam "
        f"makes of them {sizes:.1f} (rule for seen: at least 2 and at most 1). One run is what misses it: without the "
        f"smallest update, looked at afterwards, it is {others:.1f}."
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
        f"heads of raw rewards have {ours.mean():.3f} of the loss with scaling, {theirs.mean():.3f} without: "
        f"{interval(mean, low, high)} (last fifth, mean over games; first fifth {early[0]:.3f} and {early[1]:.3f}). "
        f"With scaling each head has {each.min():.3f} to {each.max():.3f}. Whether a larger share helps is not judged."
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
        "as Figure 4, whose word this is. Training scores of ten heads with scaling, against those without: "
        f"{split(values)}; the share of games with higher ones, ties half, {interval(count / number, low, high)}."
    )


def rivals(tables: Tables, ours: str, others: Sequence[str]) -> list[str]:
    """Markdown: what an arm has more than others, as in the first reading; no word follows."""
    lines = [f"| {draw.LOOKS[ours][0]}, less | games | mean difference [95%] | by game |", "|---" * 4 + "|"]
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
        f"| training score, last fifth | games | mean difference [{100 * of:g}%] | p | above 0 | share [95%] |",
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
            f"{name} {shares_of[ours].mean():.1%} with scaling and {shares_of[theirs].mean():.1%} without: "
            f"{interval(*atari57.sign_flips(100 * less)[:3])} points, fewer in {(less < 0).sum()} games and more in "
            f"{(less > 0).sum()}"
        )
    fewer = over_seeds(tables.runs, "dead_units")[["return", "none"]].diff(axis=1)["none"]
    of_games = pd.Series(atari57.differences(rows(tables.runs), "return", "none"))
    related = fewer.corr(of_games, method="spearman")
    machines = ", ".join(f"{count} on {name}" for name, count in tables.runs.processor.value_counts().items())
    return (
        "Dead units at the end, in the torso's layer that has most of them; no reading, but seen in six games before; "
        f"in the 41 others: {'; '.join(parts)}. They do not explain the scores: over all games, how many fewer die "
        f"and how much higher the score is have a rank correlation of {related:.2f}. Runs, one core each: {machines}."
    )


def second_reading(tables: Tables, variants: Sequence[str]) -> list[str]:
    """Markdown: human-normalised aggregates with bootstrap intervals over games, then probabilities of improvement."""
    lines = []
    for column, title in (("late", "training score, last fifth"), ("greedy", "greedy play at the end")):
        scores = draw.final_scores(tables, column)
        lines += [
            f"| {title}, {len(scores)} games | {' | '.join(AGGREGATES)} |",
            "|---" * (1 + len(AGGREGATES)) + "|",
        ]
        for name in variants:
            cells = " | ".join(interval(*of) for of in bands(scores[name].to_numpy(), 0.95))
            lines.append(f"| {draw.LOOKS[name][0]} | {cells} |")
        better = [
            f"{draw.LOOKS[ours][0]} over {draw.LOOKS[theirs][0]} "
            + interval(*improvement(scores[ours].to_numpy(), scores[theirs].to_numpy()))
            for ours, theirs, _ in atari57.CONTRASTS
        ]
        lines += ["", textwrap.fill(f"Probability of improvement, {title}: {'; '.join(better)}.", 120), ""]
    return lines
