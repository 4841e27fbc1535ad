"""Dividing errors by their own size amplifies noise without end (section 5, figure "noise amplification").

Linear regression from 100-dimensional Gaussian noise onto the constant 0: the best weights are all zero, and plain
SGD finds them. Errors divided by their recent root mean square learn faster and faster, until sigma falls below what
a step of SGD bears; then they jump by orders of magnitude, and the large errors in the window start it all over.

The loss is 1/2 (delta / sigma)^2, so a step multiplies the expected squared distance from the solution by
1 - 2 a + a^2 (d + 2), a = learning rate / sigma^2 and d inputs: below 1 as long as sigma^2 > learning rate (d + 2) / 2.

    python -m studies.noise_amplification --output_dir=figures
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rbs_tf.moments import ReturnMoments
from studies import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INPUTS = 100
LEARNING_RATE = 1e-3
STEPS = 40_000
WINDOW = 1000  # squared errors that the error scale remembers
SMOOTHED = 20  # steps; single errors of a Gaussian input may be arbitrarily small
SIGMA_V = 1.0  # values at initialisation, w x with w from N(0, 0.01), have this spread

SIGMA_BOUND = math.sqrt(LEARNING_RATE * (INPUTS + 2) / 2.0)


@dataclass(frozen=True)
class Run:
    """One regression; float64 [T] each, over the updates.

    Attributes:
      errors: delta, before each update.
      scales: sigma, which that update used.
    """

    errors: np.ndarray
    scales: np.ndarray

    @property
    def root_mean_square(self) -> np.ndarray:
        """Root mean square of the errors over `SMOOTHED` updates, float64 [T - SMOOTHED + 1]."""
        sums = np.convolve(np.square(self.errors), np.ones(SMOOTHED), "valid")
        return np.sqrt(sums / SMOOTHED)


class UpSwing(NamedTuple):
    """A rise of the smoothed errors.

    Attributes:
      start: the update with the smallest error.
      factor: the largest error after it, divided by that one.
    """

    start: int
    factor: float


def window_scale() -> Callable[[float], float]:
    """sigma from an error: root mean square of the last `WINDOW`, this one included; 1 for the first ten."""
    squares, total, seen = deque([0.0] * WINDOW), 0.0, 0

    def scale(error: float) -> float:
        nonlocal total, seen
        seen += 1
        squares.append(error * error)
        total += squares[-1] - squares.popleft()
        return 1.0 if seen <= 10 else math.sqrt(total / min(seen, WINDOW))

    return scale


def return_scale() -> Callable[[float], float]:
    """max(sigma, sigma_v) of targets, here rewards of one-step episodes, that are all 0."""
    targets = np.zeros(WINDOW)
    sigma = max(float(ReturnMoments.from_episode(targets, np.zeros(WINDOW)).sigma[0]), SIGMA_V)
    return lambda error: sigma


SCALES: Mapping[str, Callable[[], Callable[[float], float]]] = {
    "vanilla": lambda: lambda error: 1.0,
    "window": window_scale,
    "return": return_scale,
}


def regress(scale: Callable[[float], float], steps: int = STEPS, seed: int = 0) -> Run:
    """SGD with batches of one on 1/2 (delta / sigma)^2; the same inputs for the same seed."""
    rng = np.random.default_rng(seed)
    weights = 0.1 * rng.standard_normal(INPUTS)
    errors, scales = np.empty(steps), np.empty(steps)
    for step in range(steps):
        inputs = rng.standard_normal(INPUTS)
        errors[step] = error = -float(inputs @ weights)
        scales[step] = sigma = scale(error)
        weights += LEARNING_RATE * error / (sigma * sigma) * inputs
    return Run(errors, scales)


def up_swings(errors: np.ndarray, factor: float = 10.0) -> list[UpSwing]:
    """Rises by more than `factor` of errors [T], each one ended by a fall by as much from its peak."""
    found, lowest, start, peak = [], math.inf, 0, 0.0  # peak: 0 while not in a rise
    for step, error in enumerate(errors):
        if peak == 0.0:
            if error < lowest:
                lowest, start = error, step
            if error > factor * lowest:
                peak = error
        elif error > peak:
            peak = error
        elif error < peak / factor:
            found.append(UpSwing(start, peak / lowest))
            lowest, start, peak = error, step, 0.0
    if peak > 0.0:
        found.append(UpSwing(start, peak / lowest))
    return found


def draw(runs: Mapping[str, Run]) -> Figure:
    """Errors above, the scales that they were divided by below."""
    sheet, ((upper,), (lower,)) = figure.new_figure(2, 1, panel=(9.0, 2.9), sharex=True)
    looks = {
        "window": (
            figure.COLOURS["false friend"],
            1.5,
            f"errors divided by their size in a window of {WINDOW}",
        ),
        "vanilla": (figure.COLOURS["unscaled"], 4.0, "not divided"),
        "return": (figure.COLOURS["scaled"], 1.5, "divided by the return-based scale"),
    }
    for name, (colour, width, label) in looks.items():
        run, look = runs[name], {"color": colour, "lw": width, "label": label}
        upper.plot(np.arange(SMOOTHED - 1, len(run.errors)), run.root_mean_square, **look)
        lower.plot(run.scales, **look)
    bound = {
        "color": figure.COLOURS["reference"],
        "ls": "--",
        "label": f"below {SIGMA_BOUND:.3f} SGD is unstable",
    }
    lower.axhline(SIGMA_BOUND, **bound)
    upper.set_ylim(1e-6, 10.0)
    upper.set_ylabel(f"root mean square error\nover {SMOOTHED} updates")
    lower.set_ylabel("sigma")
    lower.set_xlabel("updates")
    for axis in (upper, lower):
        axis.set_yscale("log")
    handles, labels = lower.get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside upper center", ncols=2)
    return sheet


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line, steps=STEPS, seed=0)
    runs = {name: regress(make(), options.steps, options.seed) for name, make in SCALES.items()}
    smoothed = {name: run.root_mean_square for name, run in runs.items()}
    swings = up_swings(smoothed["window"])
    details = ""
    if swings:
        factor = np.median([swing.factor for swing in swings])
        details = f" (median {factor:.0f}x, the first from update {swings[0].start + SMOOTHED - 1})"
    figure.save(
        draw(runs),
        "noise_amplification",
        [
            [
                step,
                *(x for name in runs for x in (smoothed[name][step - SMOOTHED + 1], runs[name].scales[step])),
            ]
            for step in range(SMOOTHED - 1, options.steps, 100)
        ],
        ["update", *(f"{name}: {what}" for name in runs for what in ("root mean square error", "sigma"))],
        f"Errors divided by their size over a window jump by more than 10x {len(swings)} times in {options.steps} "
        f"updates{details}; undivided, or divided by the return-based scale, they end at {smoothed['return'][-1]:.0e}.",
        options.output_dir,
    )


if __name__ == "__main__":
    main()
