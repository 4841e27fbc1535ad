"""Rare rewards of -1e6: all-time return scaling against Pop-Art's running statistics (the paper's Asterix figure).

Asterix counts points to a million and then starts again, which is a reward of -1,000,000. A learner samples batches
of one-step transitions from all that has happened; its values are those of early learning, as large as returns
without spikes but unrelated to the state, so that whatever moves in the scaled losses is the scale.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from rbs_tf import ReturnMoments
from studies import figure
from studies.episodes import Episode, Stream

GAMMAS = (0.9, 0.997)
COUNTER = 1e6  # points at which the score starts again
POINTS, CHANCE = 500.0, 0.2  # of one reward, and of getting it in a step: a good player's
EPISODE = 5000  # mean steps: one episode in seven lives to see the counter overflow
STEPS_PER_UPDATE, BATCH = 10, 32
SIGMA_V = 1e-2
POP_ART_STEP = 1e-3
POP_ART_BOUNDS = {"Pop-Art, scale in [1e-3, 1e3]": (1e-3, 1e3), "Pop-Art, no bounds": (0.0, np.inf)}
RETURN = "return-based scaling"
ALL_TIME = "its all-time sigma alone, without that of the batch"
COLOURS = {
    RETURN: figure.COLOURS["scaled"],
    ALL_TIME: "tab:olive",
    **dict(zip(POP_ART_BOUNDS, ("tab:blue", "tab:cyan"), strict=True)),
}


class Curves(NamedTuple):
    """Records of each of U updates, for H discounts.

    Attributes:
      steps: int [U], environment steps taken before it.
      spikes: int [U], how many of the batch's transitions were spikes.
      scales: name -> float64 [U, H], what TD errors were divided by.
      losses: name -> float64 [U, H], 1/2 of the batch's mean squared scaled error.
    """

    steps: np.ndarray
    spikes: np.ndarray
    scales: dict[str, np.ndarray]
    losses: dict[str, np.ndarray]


def play(steps: int, seed: int = 0) -> list[Episode]:
    """At least `steps` steps of a game whose score counter overflows; spikes are its rewards below -`COUNTER` / 2."""
    rng = np.random.default_rng(seed)
    episodes = []
    while steps > 0:
        rewards = POINTS * (rng.random(rng.geometric(1 / EPISODE)) < CHANCE)
        overflows = np.diff(np.cumsum(rewards) // COUNTER, prepend=0.0)
        episodes.append(Episode(rewards - COUNTER * overflows))
        steps -= len(rewards)
    return episodes


def all_time_scales(streams: Sequence[Stream], updates: int) -> np.ndarray:
    """sigma before each update, float64 [U, H]: rewards and discounts at once, returns when their episode has ended."""
    rewards, discounts, returns = (
        np.stack(columns, axis=-1)
        for columns in zip(*((s.rewards, s.discounts, s.returns) for s in streams), strict=True)
    )
    ends = deque(np.flatnonzero(streams[0].last) + 1)
    moments = ReturnMoments.empty(len(streams))
    sigmas, start = [], 0
    for step in range(STEPS_PER_UPDATE, (updates + 1) * STEPS_PER_UPDATE, STEPS_PER_UPDATE):
        new = slice(step - STEPS_PER_UPDATE, step)
        moments = ReturnMoments.merge(moments, ReturnMoments.from_steps(rewards[new], discounts[new]))
        while ends and ends[0] <= step:
            end = ends.popleft()
            moments = ReturnMoments.merge(moments, ReturnMoments.from_returns(returns[start:end]))
            start = end
        sigmas.append(moments.sigma)
    return np.array(sigmas)


def batch_scales(rewards: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """sigma of each batch alone, float64 [U]; rewards and discounts are [U, B], sequences of one step each."""
    return np.sqrt(rewards.var(axis=1) + discounts.var(axis=1) * np.square(rewards).mean(axis=1))


def pop_art_scales(targets: np.ndarray, low: float, high: float) -> np.ndarray:
    """The running standard deviation of targets [U, B], float64 [U], each batch counted before it is learned from.

    Mean 0 and mean square 1 at first; every batch moves both by `POP_ART_STEP` of the way to its own.
    """
    keep = (1 - POP_ART_STEP) ** np.arange(1, len(targets) + 1)

    def running(batches: np.ndarray, start: float) -> np.ndarray:
        averages = lfilter([POP_ART_STEP], [1.0, POP_ART_STEP - 1.0], batches)
        return averages + start * keep

    mean = running(targets.mean(axis=1), 0.0)
    mean_square = running(np.square(targets).mean(axis=1), 1.0)
    return np.clip(np.sqrt(np.maximum(mean_square - np.square(mean), 0.0)), low, high)


def study(episodes: Sequence[Episode], seed: int = 0) -> Curves:
    """Learns (nothing) from uniform batches of all steps so far, one update for every `STEPS_PER_UPDATE` steps."""
    streams = [Stream.of(episodes, gamma) for gamma in GAMMAS]
    calm = [Episode(np.where(e.rewards < -COUNTER / 2, e.rewards + COUNTER, e.rewards)) for e in episodes]
    updates = len(streams[0].rewards) // STEPS_PER_UPDATE
    steps = STEPS_PER_UPDATE * np.arange(1, updates + 1)
    batches = np.random.default_rng(seed).integers(0, steps[:, None], size=(updates, BATCH))
    all_time = all_time_scales(streams, updates)
    scales = {name: np.empty((updates, len(GAMMAS))) for name in COLOURS}
    losses = {name: np.empty((updates, len(GAMMAS))) for name in COLOURS}
    for head, (gamma, stream) in enumerate(zip(GAMMAS, streams, strict=True)):
        values = Stream.of(calm, gamma).early_values(1, seed)[0]
        errors, targets = stream.errors(values)[batches], (stream.errors(values) + values)[batches]
        of_batch = batch_scales(stream.rewards[batches], stream.discounts[batches])
        scales[ALL_TIME][:, head] = np.maximum(all_time[:, head], SIGMA_V)
        scales[RETURN][:, head] = np.maximum(scales[ALL_TIME][:, head], of_batch)
        for name, bounds in POP_ART_BOUNDS.items():
            scales[name][:, head] = pop_art_scales(targets, *bounds)
        for name in COLOURS:
            losses[name][:, head] = np.square(errors / scales[name][:, head, None]).mean(axis=1) / 2
    spikes = (streams[0].rewards < -COUNTER / 2)[batches].sum(axis=1)
    return Curves(steps, spikes, scales, losses)


def draw(curves: Curves) -> figure.Figure:
    """Scales above losses, one column per discount."""
    drawing, axes = figure.new_figure(2, len(GAMMAS), panel=(5.0, 3.2), sharex=True, sharey="row")
    hit = curves.spikes > 0
    for head, gamma in enumerate(GAMMAS):
        upper, lower = axes[:, head]
        for name, colour in COLOURS.items():
            dashes = "--" if name == ALL_TIME else "-"
            scale = curves.scales[name][:, head]
            upper.plot(curves.steps, scale, dashes, color=colour, linewidth=1, label=name)
            loss = curves.losses[name][:, head]
            if name != ALL_TIME:  # there the two are the same
                lower.plot(curves.steps[~hit], loss[~hit], ",", color=colour, rasterized=True)
            lower.plot(curves.steps[hit], loss[hit], "x", color=colour, markersize=4)
        upper.set_title(f"gamma {gamma}")
        lower.set_xlabel("environment steps")
    axes[0, 0].set_ylabel("scale of errors (points)")
    axes[1, 0].set_ylabel("loss of a batch, 1/2 (delta / scale)^2\n(x: with a spike)")
    for panel in axes.flat:
        panel.set_yscale("log")
    drawing.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawing


def conclusion(curves: Curves) -> str:
    """One line: what spikes do to the losses of the batches that hold one, and to the scale of those that do not."""
    hit = curves.spikes > 0
    if not hit.any():
        return "no batch holds a spike: raise --steps"
    first = int(np.argmax(hit))
    before, after = ~hit & (curves.steps < curves.steps[first]), ~hit & (curves.steps > curves.steps[first])

    def describe(name: str) -> str:
        scale = curves.scales[name][after]
        swings = " and ".join(f"{swing:.2g}" for swing in scale.max(axis=0) / scale.min(axis=0))
        return f"{curves.losses[name][hit].max():.2g} with {name} ({swings})"

    ordinary = curves.losses[RETURN][:, 0]
    price = np.median(ordinary[before]) / np.median(ordinary[after])
    return (
        "largest loss of a batch with a spike (in brackets, how many-fold the scale varies between spikes at gamma "
        f"{' and '.join(map(str, GAMMAS))}): {', '.join(map(describe, COLOURS))}; the price at gamma {GAMMAS[0]}: "
        f"after the first spike return-based scaling makes ordinary losses {price:.0f} times smaller."
    )


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line, steps=300_000)
    curves = study(play(options.steps))
    names = list(COLOURS)
    header = ["step", "spikes_in_batch"] + [
        f"{quantity}, {name}, gamma {gamma}"
        for quantity in ("scale in points", "loss")
        for name in names
        for gamma in GAMMAS
    ]
    columns = np.concatenate(
        [series[name] for series in (curves.scales, curves.losses) for name in names], axis=1
    )
    kept = np.flatnonzero((curves.spikes > 0) | (np.arange(len(curves.steps)) % 10 == 0))
    rows = [(curves.steps[i], curves.spikes[i], *columns[i]) for i in kept]
    figure.save(draw(curves), "spikes", rows, header, conclusion(curves), options.output_dir)


if __name__ == "__main__":
    main()
