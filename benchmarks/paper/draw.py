"""Draws the figures of the 57 games, each in the form of the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import atari57
from benchmarks.paper import readings
from benchmarks.paper.tables import (
    AGGREGATES,
    DISCOUNTS,
    HEADS,
    TEN,
    YOURS,
    Tables,
    bands,
    curves,
    losses,
    normalised,
    over_seeds,
    shares,
    value_errors,
)
from rbs_tf.scores import GAMES
from studies import figure

# Red is unscaled and green scaled, one head is solid and ten are dash-dotted, as in the paper.
LOOKS: dict[str, tuple[str, str, str]] = {
    "return": ("ten heads, scaled", "tab:green", "-."),
    "none": ("ten heads, unscaled", "tab:red", "-."),
    "one_head_return": ("one head, scaled", "tab:green", "-"),
    "one_head_none": ("one head, unscaled", "tab:red", "-"),
    "return_out": ("ten heads, scaled errors and outputs", "tab:blue", "-."),
    "pop_art": ("ten heads, Pop-Art", "tab:purple", "-."),
    "one_head_clip": ("one head, clipped rewards", "tab:cyan", "-"),
    "one_head_return_value_bias": ("one head, scaled, value bias", "tab:olive", "--"),
    YOURS: ("yours", "black", "-"),
}
# Of Figure 1, right: small and dense, large and dense, large and rare, negative, sparse.
FEW = ("pong", "up_n_down", "atlantis", "skiing", "private_eye")
# Of Figure 14.
CLIPPED = (
    *("alien", "ms_pacman", "bowling", "hero", "kangaroo", "private_eye", "qbert", "seaquest", "centipede"),
    *("up_n_down", "video_pinball", "wizard_of_wor"),
)
# Of Figure 9: from rare rewards to those of thousands of points.
ADAM = (
    *("montezuma_revenge", "pitfall", "skiing", "freeway", "pong", "breakout", "ms_pacman", "seaquest"),
    *("up_n_down", "asterix", "atlantis", "video_pinball"),
)


def look(variant: str, **options: Any) -> dict[str, Any]:
    name, colour, style = LOOKS[variant]
    return {"label": name, "color": colour, "linestyle": style, "lw": 1.4, **options}


def named(game: str) -> str:
    return game.replace("_", " ")


def titled(head: str) -> str:
    kind, discount = head.split("_")
    return f"{'raw' if kind == 'unclipped' else kind} rewards, discount {discount}"


def there(tables: Tables, variants: Sequence[str]) -> list[str]:
    """Those of the variants that have runs."""
    return [variant for variant in variants if (tables.runs.variant == variant).any()]


def legend_of(drawing: figure.Figure, panel: Any, columns: int) -> None:
    handles, labels = panel.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    drawing.legend(unique.values(), unique.keys(), loc="outside upper center", ncols=columns)


def scales(tables: Tables) -> figure.Figure:
    """Figure 1: scores, rewards, their density and episodes' lengths, early and late; losses of a few games."""
    drawing, grid = figure.new_figure(1, 5, (2.7, 3.0))
    sizes = statistics(tables, "return")
    for panel, (title, of) in zip(grid[0], sizes.items(), strict=False):
        order = of[1].abs().sort_values().index
        for column, colour, label in ((1, "tab:red", "first tenth"), (10, "tab:orange", "last tenth")):
            panel.plot(of[column].abs()[order].to_numpy(), ".", color=colour, ms=4, label=label)
        yours = statistics(tables, YOURS)[title]
        for game in yours.index:
            place = list(order).index(game) if game in order else len(order)
            for tenth, marker, label in ((1, "*", "yours, first"), (10, "P", "yours, last")):
                panel.plot(place, abs(yours.loc[game, tenth]), marker, color="black", ms=7, label=label)
        panel.set(yscale="log", title=title, xlabel=f"game, sorted by the first ({len(order)})")
    panel = grid[0, 4]
    styles = ("-", "--", "-.", ":", (0, (6, 3, 1, 1, 1, 1)))
    for variant in there(tables, ("none", "return", YOURS)):
        rows = tables.heads[(tables.heads.variant == variant) & (tables.heads["head"] == "unclipped_0.99")]
        for game, style in zip(FEW if variant != YOURS else sorted(set(rows.game)), styles, strict=False):
            of = rows[rows.game == game].groupby("fifth").scaled.mean() ** 2 / 2
            label = named(game) if variant == "none" else "yours" if variant == YOURS else None
            panel.plot(of.index / 5, of, color=LOOKS[variant][1], linestyle=style, label=label)
    panel.set(
        yscale="log",
        title="loss, raw rewards, discount 0.99",
        xlabel="part of training\nred: unscaled, green: scaled",
    )
    panel.legend(fontsize="xx-small", loc="center", bbox_to_anchor=(0.5, 0.57))
    legend_of(drawing, grid[0, 0], 3)
    return drawing


def statistics(tables: Tables, variant: str) -> dict[str, Any]:
    """Title -> games by tenths, those without an episode filled from beside them."""
    rows = tables.curves[tables.curves.variant == variant]
    points, count, steps = (
        over_seeds(rows, name, "tenth").reindex(columns=range(1, 11)).ffill(axis=1).bfill(axis=1)
        for name in ("return", "rewards", "steps")
    )
    return {
        "abs(score), points": points,
        "points per non-zero reward": points / count.where(count > 0),
        "non-zero rewards per step": count / steps,
        "steps per episode": steps,
    }


def all_losses(tables: Tables) -> figure.Figure:
    """Figure 3: mean loss of each game, sorted; thin lines for the other scalings of one head."""
    drawing, ((panel,),) = figure.new_figure(1, 1, (6.4, 3.6))
    for variant in there(tables, LOOKS):
        if variant in HEADS or variant.startswith("one_head_"):
            of_games = np.sort(losses(tables.heads, variant).mean(axis=1))
            width = 1.8 if variant in HEADS else 0.8
            panel.plot(np.arange(len(of_games)), of_games, **look(variant, lw=width))
    panel.set(yscale="log", xlabel="game, sorted", ylabel="loss, mean over training and heads")
    legend_of(drawing, panel, 2)
    return drawing


def learning(tables: Tables, variants: Sequence[str]) -> figure.Figure:
    """Figures 4, 11, 12: human-normalised training score over training, interquartile bands over games."""
    drawing, (panels,) = figure.new_figure(1, 4, (3.0, 2.9))
    times = np.arange(1, 11) / 10
    for variant in there(tables, variants):
        found = bands(curves(tables.curves, variant).to_numpy().T, 0.5)
        for panel, title, (middle, low, high) in zip(panels, AGGREGATES, found, strict=True):
            panel.plot(times, middle, **look(variant))
            panel.fill_between(times, low, high, color=LOOKS[variant][1], alpha=0.12, lw=0)
            panel.set(title=title, xlabel="part of 400,000 frames")
    for panel in panels:
        panel.axhline(0.0, color="tab:gray", lw=0.6, ls=":")
    panels[0].set_ylabel("human-normalised training score")
    legend_of(drawing, panels[0], len(variants))
    return drawing


def bars(of_games: Mapping[str, float]) -> figure.Figure:
    """The first reading: a bar a game, sorted; hollow ones are of games that had been looked at before."""
    drawing, ((panel,),) = figure.new_figure(1, 1, (10.0, 3.4))
    order = sorted(of_games, key=of_games.__getitem__)
    values = np.array([of_games[game] for game in order])
    known = set(next(iter(atari57.SETS.values())))
    colours = np.where(values > 0, "tab:green", "tab:red")
    faces = [colour if game in known else "white" for game, colour in zip(order, colours, strict=True)]
    panel.bar(range(len(order)), values, color=faces, edgecolor=list(colours), lw=1.0)
    panel.axhline(0.0, color="tab:gray", lw=0.8)
    panel.set_xticks(range(len(order)), map(named, order), rotation=90, fontsize="x-small")
    panel.set_xlim(-0.7, len(order) - 0.3)
    panel.set_title("hollow: results looked at before", fontsize="small", loc="left")
    panel.set_ylabel("ten heads, scaled minus unscaled, in\nstandard deviations of a score")
    return drawing


def growth(tables: Tables) -> figure.Figure:
    """The difference that scaling makes in each tenth of training, mean over games with bootstrap 95% bands."""
    drawing, ((panel,),) = figure.new_figure(1, 1, (5.2, 3.2))
    for name, theirs, colour in (
        ("return", "none", "tab:green"),
        ("one_head_return", "one_head_none", "tab:gray"),
    ):
        of_games = readings.by_tenths(tables, name, theirs)
        found = [bands(of_games[tenth].dropna().to_numpy(), 0.95)[0] for tenth in of_games]
        middle, low, high = np.array(found).T
        times = np.array(of_games.columns) / 10
        label = LOOKS[name][0].replace(", scaled", "")
        panel.plot(times, middle, color=colour, ls=LOOKS[name][2], lw=1.8, label=label)
        panel.fill_between(times, low, high, color=colour, alpha=0.2, lw=0)
    panel.axhline(0.0, color="tab:gray", lw=0.8)
    panel.set(
        xlabel="part of 400,000 frames",
        ylabel="score, scaled minus unscaled, in\nstandard deviations of a score",
    )
    legend_of(drawing, panel, 2)
    return drawing


def head_losses(tables: Tables) -> figure.Figure:
    """Figure 5: losses of ten heads, a line a game."""
    variants = there(tables, ("none", "return", YOURS))
    drawing, (panels,) = figure.new_figure(1, len(variants), (4.2, 3.2), sharey=True)
    for panel, variant in zip(panels, variants, strict=True):
        of_games = losses(tables.heads, variant)
        for half in (TEN[:5], TEN[5:]) if set(TEN) <= set(of_games) else ():
            places = [TEN.index(head) for head in half]
            panel.plot(places, of_games[half].T, color=LOOKS[variant][1], lw=0.7, alpha=0.6)
        panel.set(yscale="log", title=LOOKS[variant][0], xlabel="discount: clipped, then raw rewards")
        panel.set_xticks(range(10), DISCOUNTS * 2)
    panels[0].set_ylabel("loss, mean over training")
    return drawing


def accuracies(tables: Tables) -> figure.Figure:
    """Figure 6: relative error of each head's values at the end, games sorted."""
    drawing, grid = figure.new_figure(2, 5, (2.3, 2.1), sharey=True, sharex=True)
    for panel, head in zip(grid.ravel(), TEN, strict=True):
        for variant in there(tables, ("none", "return")):
            of_games = np.sort(value_errors(tables.heads, variant)[head].dropna())
            panel.plot(of_games, **look(variant, linestyle="-"))
        panel.axhline(1.0, color="tab:gray", lw=0.6, ls=":")
        panel.set(title=titled(head), yscale="log")
    drawing.supxlabel("game with returns that differ, sorted", fontsize="small")
    drawing.supylabel("relative RMSE of values", fontsize="small")
    legend_of(drawing, grid[0, 0], 2)
    return drawing


def one_game(tables: Tables, variants: Sequence[str], errors: str) -> figure.Figure:
    """Figures 7 and 8: errors and training returns of all seeds of one game, with spans from least to largest."""
    drawing, ((left, right),) = figure.new_figure(1, 2, (4.2, 3.0))
    for variant in there(tables, variants):
        heads = tables.heads[tables.heads.variant == variant]
        sums = (heads.assign(value=heads[errors] ** 2).groupby(["seed", "fifth"])["value"].sum()) ** 0.5
        rows = tables.curves[tables.curves.variant == variant]
        for panel, by_seed in (
            (left, sums.unstack("seed")),
            (right, rows.pivot_table(index="tenth", columns="seed", values="return")),
        ):
            times = by_seed.index / by_seed.index.max()
            panel.plot(times, by_seed.mean(axis=1), **look(variant))
            panel.fill_between(
                times, by_seed.min(axis=1), by_seed.max(axis=1), color=LOOKS[variant][1], alpha=0.15, lw=0
            )
            panel.set_xlabel("part of 400,000 frames")
    left.set(yscale="log", ylabel=f"{errors} TD error of all heads")
    right.set_ylabel("training return, points")
    legend_of(drawing, left, len(variants))
    return drawing


def adam(tables: Tables) -> figure.Figure:
    """Figure 9: size of Adam's last update over the loss, 12 games."""
    drawing, ((panel,),) = figure.new_figure(1, 1, (5.2, 3.4))
    for variant in there(tables, HEADS):
        games, x, y = update_sizes(tables, variant)
        filled = variant.startswith("one_head")
        _, colour, _ = LOOKS[variant]
        face = {} if filled else {"markerfacecolor": "white"}
        panel.plot(x, y, "o", color=colour, label=LOOKS[variant][0], ms=5, **face)
        if y.min() < 1e-2:
            panel.annotate(f" {named(games[y.argmin()])}", (x[y.argmin()], y.min()), fontsize="small")
    panel.set(xscale="log", yscale="log", xlabel="loss, last fifth, sum over heads")
    panel.set_ylabel("RMS of an update, in learning rates")
    legend_of(drawing, panel, 2)
    return drawing


def update_sizes(tables: Tables, variant: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Those of the 12 games that are there, loss of the last fifth, and RMS of the last update in learning rates."""
    runs = tables.runs[(tables.runs.variant == variant) & tables.runs.game.isin(ADAM)]
    sizes = runs.groupby("game").adam_rms.mean()
    of_games = losses(tables.heads, variant, 5).sum(axis=1)[sizes.index]
    return list(sizes.index), of_games.to_numpy(), sizes.to_numpy()


def shares_and_errors(tables: Tables) -> figure.Figure:
    """Figure 13: share of the loss and relative error of each head, a point a game, last fifth."""
    drawing, grid = figure.new_figure(2, 5, (2.3, 2.1), sharey=True, sharex=True)
    for panel, head in zip(grid.ravel(), TEN, strict=True):
        for variant in there(tables, ("none", "return")):
            of_games = shares(tables.heads, variant, 5)[head]
            errors = value_errors(tables.heads, variant)[head].reindex(of_games.index)
            panel.plot(of_games, errors, ".", color=LOOKS[variant][1], label=LOOKS[variant][0], ms=4)
        panel.axvline(0.1, color="tab:gray", lw=0.6, ls=":")
        panel.set(title=titled(head), xscale="log", yscale="log")
    panel.set_xlim(1e-9, 1.2)  # of all
    drawing.supxlabel("share of the loss, last fifth", fontsize="small")
    drawing.supylabel("relative RMSE of values", fontsize="small")
    legend_of(drawing, grid[0, 0], 2)
    return drawing


def clipped_and_not(tables: Tables) -> figure.Figure:
    """Figure 14: score over the number of non-zero rewards, a point for each tenth of training."""
    drawing, grid = figure.new_figure(3, 4, (2.4, 2.0))
    for panel, game in zip(grid.ravel(), CLIPPED, strict=True):
        for variant, colour in (
            ("one_head_clip", "gold"),
            ("one_head_none", "tab:green"),
            ("return", "tab:purple"),
        ):
            rows = tables.curves[(tables.curves.variant == variant) & (tables.curves.game == game)]
            panel.plot(rows.rewards, rows["return"], ".", color=colour, ms=5, label=LOOKS[variant][0])
        panel.set_title(named(game))
    drawing.supxlabel("non-zero rewards of an episode", fontsize="small")
    drawing.supylabel("score", fontsize="small")
    legend_of(drawing, grid[0, 0], 3)
    return drawing


def all_games(tables: Tables) -> figure.Figure:
    """Figure 15: learning curves in points, all variants that are there."""
    drawing, grid = figure.new_figure(8, 8, (1.5, 1.15))
    panels = grid.ravel()
    for panel, game in zip(panels, GAMES, strict=False):
        for variant in there(tables, LOOKS):
            rows = tables.curves[(tables.curves.variant == variant) & (tables.curves.game == game)]
            of = rows.groupby("tenth")["return"].mean().dropna()
            width = 1.8 if variant == YOURS else 0.9
            face = LOOKS[variant][1] if variant.startswith("one_head") else "white"
            alone = {"marker": "o", "ms": 3.5, "markerfacecolor": face} if len(of) == 1 else {}
            panel.plot(of.index / 10, of, **look(variant, lw=width, **alone))
        panel.set_title(named(game), fontsize=7)
        panel.set(xlim=(0, 1.02), xticks=(0, 0.5, 1))
        panel.tick_params(labelsize=6, labelbottom=False)
        panel.locator_params(axis="y", nbins=3)
        panel.margins(y=0.12)
    for panel in panels[len(GAMES) :]:
        panel.axis("off")
    drawing.supxlabel("from 0 to 400,000 frames (ticks: 0, half, all)", fontsize="small")
    drawing.supylabel("training return, points", fontsize="small")
    labels = {}
    for panel in panels:
        handles, names = panel.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    if labels:
        drawing.legend(labels.values(), labels.keys(), fontsize=7, loc="outside upper center", ncols=4)
    return drawing


def final_scores(tables: Tables, column: str) -> Any:
    """Human-normalised scores: games that all variants have one of by variants, `late` or `greedy` of the runs."""
    return normalised(over_seeds(tables.runs, column)).dropna()
