"""The paper's figures in order: what each claims, how our runs differ, which runs it takes, who judges and draws it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.paper import draw, verdicts
from benchmarks.paper.tables import FIRST, HEADS, SEEDS, Tables, are_in
from benchmarks.paper.verdicts import SEEN, Verdict
from rbs_tf.scores import GAMES
from studies import derivation, edge_cases, figure, intuitions, noise_amplification


class Runs(NamedTuple):
    """Runs that a figure takes: of each game and variant one of each seed."""

    sweeps: str  # the files that make them, for what is said while some are missing
    variants: Sequence[str]
    games: Sequence[str] = GAMES
    seeds: Sequence[int] = (FIRST,)

    def progress(self, tables: Tables) -> tuple[int, int]:
        """How many are in, and of how many."""
        asked = len(self.variants) * len(self.games) * len(self.seeds)
        return are_in(tables.runs, self.variants, self.games, self.seeds), asked

    def of(self, tables: Tables) -> Tables:
        """Their rows; with those of a second seed of the first stage if it is complete."""
        second = self._replace(seeds=SEEDS[1:])
        count, asked = second.progress(tables)
        seeds = SEEDS if self == HEADS_57 and count == asked else self.seeds
        return tables.where(self.variants, seeds, self.games)


HEADS_57 = Runs("atari57_heads", HEADS)
SCALED_57 = Runs("atari57_heads, atari57_scaled_heads", ("return", "none", "pop_art", "return_out"))
ONE_HEAD_57 = Runs(
    "atari57_heads, atari57_one_head", ("one_head_clip", "return", "one_head_return", "one_head_none")
)
# Arms that get intervals and no word, by figure, and what they are compared with; their sweep files say so.
RIVALS = {
    "11": {"pop_art": ("return", "none"), "return_out": ("return", "none")},
    "12": {"one_head_clip": ("return", "one_head_return", "one_head_none")},
}
SKIING = Runs(
    "atari57_skiing", ("one_head_return", "one_head_return_value_bias"), ("skiing",), (581, 582, 583)
)
ASTERIX = Runs("atari57_asterix", ("return", "pop_art"), ("asterix",), (581, 582, 583))


class Figure(NamedTuple):
    """One of the paper's; `runs` None: a toy problem, computed at once."""

    name: str  # of the picture's file
    title: str
    claim: str
    differs: str
    runs: Runs | None
    judge: Callable[..., Verdict]
    draw: Callable[..., figure.Figure]


def scenarios_judged() -> Verdict:
    factors = [case.factors() for case in intuitions.scenarios()]
    worst = {
        name: np.exp(max(abs(np.log(of[name] / of["oracle"])) for of in factors))
        for name in intuitions.SCALES[1:]
    }
    others = ", ".join(f"{name} by {of:.2g}" for name, of in worst.items() if name != "sigma")
    found = (
        SEEN if worst["sigma"] < min(of for name, of in worst.items() if name != "sigma") else verdicts.MISSED
    )
    return (
        found,
        f"over the six, sigma misses the growth of the errors by a factor of at most {worst['sigma']:.3g}. The other "
        f"scales miss it by more: {others}.",
    )


def noise_judged() -> Verdict:
    runs = {name: noise_amplification.regress(make()) for name, make in noise_amplification.SCALES.items()}
    swings = noise_amplification.up_swings(runs["window"].root_mean_square)
    size = 10 ** round(np.log10(np.median([swing.factor for swing in swings])))  # another CPU, other jumps
    still = max(runs[name].root_mean_square[-1] for name in ("vanilla", "return")) < 1e-6
    return SEEN if len(swings) > 10 and still else verdicts.MISSED, (
        f"errors divided by their size jump again and again, some {size}-fold; undivided, and with the return-based "
        "scale, they vanish."
    )


def derivation_judged() -> Verdict:
    ratios = [row[-1] / row[2] for row in derivation.study(derivation.simulated()) if row[1] == "early"]
    found = SEEN if max(np.abs(np.log10(ratios))) < 1 else verdicts.MISSED
    return found, (
        f"with values as early in learning, sigma^2 is {min(ratios):.2g} to {max(ratios):.2g} times the variance of TD "
        "errors in six simulated processes (seen asks for a factor of ten at most)."
    )


def edges_judged() -> Verdict:
    # The paper's condition for T to infinity: E[G^2] does not grow with T.
    cases = [
        case
        for case in edge_cases.cases()
        if not (case.name == "T to infinity" and "gamma 1" in case.setting)
    ]
    exact = [case.ratio for case in cases if case.name in ("T = 1", "gamma = 0")]
    ratios = [case.ratio for case in cases]
    found = SEEN if np.allclose(exact, 1.0) and min(ratios) > 0.1 and max(ratios) < 10 else verdicts.MISSED
    return found, (
        "the forms for T = 1 and for gamma = 0 are exact. Others are up to "
        f"{max(ratios):.1f} times too large, and up to {verdicts.large(1 / min(ratios))} times too small where "
        f"episodes of {cases[int(np.argmin(ratios))].length} steps are taken for endless ones (seen asks for a factor "
        "of ten at most). Endless episodes with gamma = 1 are left out: there E[G^2] grows with T, which the paper "
        "excludes."
    )


# Whether learning is better; the others are about how scales behave: arithmetic and toy problems.
LEARNING = ("4", "6", "7", "8", "11", "12", "14", "15")
TOY = "The paper's idea in numbers of our own."
FIGURES = (
    Figure(
        "1",
        "Figure 1: scales of 57 games",
        "Scores, rewards, their density and episodes' lengths lie orders of magnitude apart, between games and between "
        "early and late; so do losses, which scaling brings together.",
        "Ten heads, scaled. Early is the first tenth of 400,000 frames in which an episode ends, late the last; these "
        "agents have hardly learned. Zeros are not drawn.",
        HEADS_57,
        verdicts.figure1,
        draw.scales,
    ),
    Figure(
        "2",
        "Figure 2: six scenarios",
        "Sigma follows what errors do when rewards are multiplied, shifted, shuffled, made sparse, discounted "
        "otherwise or summed; each simpler scale fails in one.",
        TOY,
        None,
        scenarios_judged,
        lambda: intuitions.draw(intuitions.scenarios()),
    ),
    Figure(
        "derivation",
        "Section 3.1: the derivation",
        "V[R] + V[gamma] E[G^2] stands for the variance of TD errors early in learning.",
        "The paper shows no figure of it. Processes that stress one assumption each.",
        None,
        derivation_judged,
        lambda: derivation.draw(derivation.study(derivation.simulated())),
    ),
    Figure(
        "3",
        "Figure 3: losses over games",
        "With scaling the losses of all games lie in a narrow band; unscaled, clipped, with Pop-Art or squashed they "
        "span more.",
        "One head with clipped rewards is the thin line.",
        HEADS_57,
        verdicts.figure3,
        draw.all_losses,
    ),
    Figure(
        "4",
        "Figure 4: scores of 57 games",
        "Ten heads earn far more with scaling than without, one head as much; ten are ahead of one only when scaled.",
        "Training scores in place of a greedy evaluator's. Bands: the middle half of a bootstrap over games. Before a "
        "game's first finished episode its curve has that episode's score. Means hang on Video Pinball, whose random "
        "score is close to its human one. Greedy play is that of the bandit's head; the sweep file also names the best "
        "head of a trial, but the first runs' weights are lost.",
        HEADS_57,
        verdicts.figure4,
        partial(draw.learning, variants=HEADS),
    ),
    Figure(
        "5",
        "Figure 5: losses over heads",
        "Without scaling losses differ about a hundredfold between discounts, and more between clipped and raw "
        "rewards; with it they are alike.",
        "",
        HEADS_57,
        verdicts.figure5,
        draw.head_losses,
    ),
    Figure(
        "6",
        "Figure 6: accuracy of values",
        "With scaling the values of all heads are more accurate, most of all at low discounts.",
        "The last evaluation's values of the actions taken, against the returns that followed.",
        HEADS_57,
        verdicts.figure6,
        draw.accuracies,
    ),
    Figure(
        "7",
        "Figure 7: Skiing's value bias",
        "An output that starts at the mean return spares Skiing's agent a long time of learning its offset, and it "
        "learns to play sooner.",
        "One head; TD errors in place of the mean value.",
        SKIING,
        verdicts.figure7,
        partial(draw.one_game, variants=SKIING.variants, errors="unscaled"),
    ),
    Figure(
        "8",
        "Figure 8: Pop-Art's jumps in Asterix",
        "Large rare rewards make the losses of Pop-Art jump and its play collapse; return-based losses stay steady.",
        "The reset at 1,000,000 points, which makes the paper's jumps, is out of reach; means over fifths.",
        ASTERIX,
        verdicts.figure8,
        partial(draw.one_game, variants=ASTERIX.variants, errors="scaled"),
    ),
    Figure(
        "9",
        "Figure 9: Adam's updates",
        "Adam makes updates of about one size of losses that differ by orders of magnitude; small losses make smaller "
        "ones.",
        "The last update of each run; epsilon 1e-6, as in the paper's agent, where its figure has 1e-3.",
        HEADS_57,
        verdicts.figure9,
        draw.adam,
    ),
    Figure(
        "10",
        "Figure 10: noise amplification",
        "Errors divided by their own recent size learn faster, then jump a thousandfold, over and over; return-based "
        "scaling does not.",
        TOY,
        None,
        noise_judged,
        lambda: noise_amplification.draw(
            {name: noise_amplification.regress(make()) for name, make in noise_amplification.SCALES.items()}
        ),
    ),
    Figure(
        "11",
        "Figure 11: Pop-Art with ten heads",
        "Pop-Art per head is clearly above no scaling, and below return-based scaling.",
        "As Figure 4.",
        SCALED_57,
        verdicts.figure11,
        partial(draw.learning, variants=SCALED_57.variants),
    ),
    Figure(
        "12",
        "Figure 12: one head, other scalings",
        "Of all scalings of one head, clipped rewards score best on average.",
        "As Figure 4.",
        ONE_HEAD_57,
        verdicts.figure12,
        partial(draw.learning, variants=ONE_HEAD_57.variants),
    ),
    Figure(
        "13",
        "Figure 13: shares of the loss",
        "Without scaling the heads of raw rewards and high discounts have nearly all of the loss, with it all have a "
        "like share; a larger share does not make a head more accurate.",
        "The picture: last fifth only.",
        HEADS_57,
        verdicts.figure13,
        draw.shares_and_errors,
    ),
    Figure(
        "14",
        "Figure 14: clipped and raw rewards",
        "In some games agents that see clipped rewards collect many, those that see raw ones collect valuable ones; "
        "ten heads can do either.",
        "A point is the mean of a tenth of training in place of an episode; twelve games chosen before any run.",
        ONE_HEAD_57,
        verdicts.figure14,
        draw.clipped_and_not,
    ),
    Figure(
        "15",
        "Figure 15: every game",
        "Learning curves of all variants in all games.",
        "A circle: episodes end in one tenth of training only. Variants that are not complete are left out.",
        HEADS_57,
        verdicts.figure15,
        draw.all_games,
    ),
    Figure(
        "edge_cases",
        "Appendix: closed forms",
        "Sigma has simple forms for single steps, no discounting, constant rewards and returns like Brownian motion.",
        "The paper shows no figure of them.",
        None,
        edges_judged,
        lambda: edge_cases.draw(edge_cases.cases()),
    ),
)
