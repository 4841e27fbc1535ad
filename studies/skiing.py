"""Rewards that never vary are invisible to sigma: the case of Skiing, and what to do about it.

sigma^2 = V[R] + V[gamma] E[G^2] models the variance of TD errors, not their mean. Skiing pays -6 or -7 in every step
and -7,000 to -10,000 in the last of about 1,200; clipped, that is -1 without exception. Until an episode has ended
sigma is 0 for every clipped head, and with gamma 0 it stays 0 for good: an error of 1 is divided by the floor sigma_v.

E[delta^2] = V[delta] + E[delta]^2 suggests the remedy, which needs no memory: a scale that is not below the mean
error of the batch. It fades by itself as the offset is learned, and where errors are noise their mean over a batch is
small. Compared with it: E[R^2] in place of V[R]; value bias E[G] from the first returns on (section 5); and value bias
from the first steps on.

Games are played by a random policy in several environments at once. Statistics come in as in the agent: rewards and
discounts with every round of 40 steps, returns when an episode has ended, all of it before the round's errors. Heads
are the paper's ten. Errors are those of one step; for ordinary games the conclusion also tells what the remedy does to
five-step errors, which are larger while sigma stays that of one step. At first values stand still; then one bias per
head, a constant value function, learns with Adam. A bias alone moves by 2e-4 per update, a network with hundreds of
features many times faster: read the updates as a comparison. Needs `pip install "rbs-tf[minatar,plots]"`.

    python -m studies.skiing --output_dir=figures
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from agents.running.startup import quiet
from studies import figure
from studies.skiing_errors import (
    CLIPS,
    DISCOUNTS,
    GAMMAS,
    N_STEP,
    NAMES,
    PAPER,
    REMEDY,
    STORED,
    VARIANTS,
    Curves,
    Recording,
    Statistics,
    Summary,
    learning,
    offset_learned,
    record,
    sequence_sums,
    standing,
    statistics,
    summarise,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAME, ORDINARY = "skiing", ("breakout", "minatar/space_invaders")


def draw(known: Statistics, still: Curves, learned: Curves, noise: np.ndarray, sigma_v: float) -> Figure:
    """Values that stand still above, with the gradient's shares below; then values that learn.

    Args:
      known, still, learned: of one game.
      noise: float64 [M, H], from `offset_learned`.
      sigma_v: the floor.
    """
    sheet, axes = figure.new_figure(2, 3, panel=(5.0, 4.0))
    panels = (
        ("sigma (a missing line is at 0)", "sigma [points]", known.sigma),
        ("errors of zero values / max(sigma, sigma_v, sigma_batch)", "RMS", still.errors[:, PAPER]),
        ("... / max(sigma, sigma_v, sigma_batch, abs(E[delta]))", "RMS", still.errors[:, REMEDY]),
    )
    for axis, (title, label, numbers) in zip(axes[0], panels, strict=True):
        for head, (clip, gamma) in enumerate(zip(CLIPS, GAMMAS, strict=True)):
            look = {"color": f"C{DISCOUNTS.index(gamma)}", "ls": "-" if clip else "--"}
            axis.plot(known.steps, np.where(numbers > 0, numbers, np.nan)[:, head], label=NAMES[head], **look)
        if known.first < len(known.steps):
            axis.axvline(known.steps[known.first], color=figure.COLOURS["reference"], ls=":")
        axis.set_yscale("log")
        axis.set_title(title, loc="left")
        axis.set_xlabel("environment steps (dotted: the first episode ends)")
        axis.set_ylabel(label)
    axes[0, 0].axhline(sigma_v, color="black", lw=0.8)
    axes[0, 0].annotate("sigma_v", (0, 1.15 * sigma_v))
    axes[0, 2].set_ylim(axes[0, 1].get_ylim())
    axes[0, 2].legend(loc="upper right", ncols=2, frameon=True, edgecolor="none", framealpha=1.0)
    _draw_shares(axes[1, 0], still, known.first)
    _draw_learning(axes[1, 1], axes[1, 2], learned, noise)
    sheet.legend(
        *axes[1, 1].get_legend_handles_labels(), loc="outside lower center", ncols=len(VARIANTS) // 2
    )
    return sheet


def _draw_shares(axis: Axes, still: Curves, first: int) -> None:
    """Two bars per variant: before the first end, and after it."""
    for phase, offset in ((still.shares[:first], -0.2), (still.shares[first:], 0.2)):
        left = np.zeros(len(VARIANTS))
        for head, share in enumerate(phase.mean(axis=0).T if len(phase) else ()):
            look = {"color": f"C{head % len(DISCOUNTS)}", "hatch": None if CLIPS[head] else "////"}
            axis.barh(np.arange(len(VARIANTS)) + offset, share, 0.36, left, edgecolor="white", lw=0.5, **look)
            left += share
    axis.set_yticks(range(len(VARIANTS)), list(VARIANTS))
    axis.invert_yaxis()
    axis.set_xlabel("heads' shares of the gradient, abs(E[delta]) / scale^2")
    axis.set_title("upper bar: before the first end, lower: after it", loc="left")


def _draw_learning(left: Axes, right: Axes, learned: Curves, noise: np.ndarray) -> None:
    """The head that has no noise, and when all of the clipped ones have learned their offsets."""
    clipped, head = np.flatnonzero(CLIPS), NAMES.index("clipped 0")
    for row, (name, variant) in enumerate(VARIANTS.items()):
        look = {"color": variant.colour, "label": name, "ls": "--" if row % 2 else "-"}
        left.plot(learned.updates, learned.errors[:, row, head], lw=2, **look)
        places = np.arange(len(clipped)) + 0.1 * (row - (len(VARIANTS) - 1) / 2)
        right.plot(places, np.maximum(noise[row, clipped], STORED), "o", color=variant.colour)
    left.set_xlim(0, min(10_000, learned.updates[-1] + 1))
    left.set_ylim(bottom=1e-2)
    left.set_xlabel("updates")
    left.set_ylabel("RMS of scaled errors")
    left.set_title(f"one bias per head learns: {NAMES[head]}", loc="left")
    right.set_xticks(range(len(clipped)), [f"{gamma:g}" for gamma in GAMMAS[clipped]])
    right.set_xlabel("discount")
    right.set_ylabel("updates until abs(E[delta]) is down to noise")
    right.set_title("every clipped head (missing: not yet)", loc="left")
    for axis in (left, right):
        axis.set_yscale("log")


HEADER = (
    "game",
    "values",
    "variant",
    "head",
    "environment steps",
    "updates",
    "sigma [points]",
    "value [points]",
    "scale [points]",
    "RMS of scaled errors",
    "abs(E[delta]) / scale^2",
    "share of gradient",
    "updates until the mean error is down to noise",
)


def table(
    game: str, known: Statistics, curves: Curves, places: Sequence[int], noise: np.ndarray | None = None
) -> list[tuple]:
    """The CSV's rows of the batches at `places`; `noise`: of `offset_learned`, for values that learn."""
    rows = []
    for place in places:
        steps, updates, *arrays = (column[place] for column in (*curves, curves.shares))
        sigma = known.sigma[np.searchsorted(known.steps, steps)]
        for (row, variant), (head, name) in itertools.product(enumerate(VARIANTS), enumerate(NAMES)):
            kind, end = ("standing still", "") if noise is None else ("learning", noise[row, head])
            numbers = [sigma[head], *(array[row, head] for array in arrays)]
            rows.append((game, kind, variant, name, steps, updates, *numbers, end))
    return rows


def conclusion(game: Recording, known: Statistics, results: dict[str, Summary], noise: np.ndarray) -> str:
    """One line: the size of the trouble, what the remedy does about it, and what it costs elsewhere."""
    if known.first == len(known.steps):
        return "no episode has ended: raise --steps, or lower --environments"
    head, skiing = NAMES.index("clipped 0"), results[GAME]
    largest = max(skiing.before[REMEDY].max(), skiing.after[REMEDY].max())
    costs = [
        f"{result.raised - 1:.0%} and {result.raised_n - 1:.0%} ({name})"
        for name, result in results.items()
        if name != GAME
    ]
    return (
        f"Skiing: until the first episode ends, at step {known.steps[known.first]} of {game.last.shape[1]} "
        f"environments, clipped heads have sigma {known.sigma[: known.first, CLIPS].max():g} and scaled errors of "
        f"{skiing.before[PAPER, CLIPS].max():.3g}; with gamma 0 they stay {skiing.after[PAPER, head]:.3g} and take "
        f"{skiing.share[PAPER, head]:.1%} of the gradient; max(sigma, sigma_v, sigma_batch, abs(E[delta])) leaves no "
        f"head more than {largest:.3g}, this one {skiing.share[REMEDY, head]:.0%} of the gradient and "
        f"{noise[REMEDY, head]:.0f} updates to learn its offset instead of {noise[PAPER, head]:.0f}; elsewhere it "
        f"raises scales of one- and {N_STEP}-step errors by at most {', '.join(costs)}."
    )


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(
        __doc__, command_line, environments=8, steps=20_000, updates=250_000, sigma_v=1e-2, seed=0
    )
    quiet()
    rows, results = [], {}
    for name in (*ORDINARY, GAME):  # Skiing last: what follows is about it
        game = record(name, options.environments, options.steps, options.seed)
        known, sums = statistics(game, options.sigma_v), sequence_sums(game)
        still = standing(sums, known)
        results[name] = summarise(game, still, known.first)
        near = {known.first - 1, known.first, *range(0, len(known.steps), 4)}
        rows += table(name, known, still, sorted(near & set(range(len(known.steps)))))
    learned = learning(sums, known, options.updates, options.seed)
    noise = offset_learned(learned, sums, options.sigma_v)
    places = np.unique(np.geomspace(1, len(learned.updates), 30).astype(int)) - 1
    rows += table(GAME, known, learned, places, noise)
    sheet = draw(known, still, learned, noise, options.sigma_v)
    line = conclusion(game, known, results, noise)
    figure.save(sheet, "skiing", rows, HEADER, line, options.output_dir)


if __name__ == "__main__":
    main()
