"""The rest of a loss's scale behind Adam (appendix "Scale invariance due to Adam").

The same small regression, its TD errors multiplied by factors from 1e-6 to 1e6, hence its loss and gradients by their
squares. Adam divides each gradient by its own size plus epsilon: as long as gradients are larger than epsilon, the
update does not depend on the factor; below, it shrinks with the loss, as all of SGD's updates do. A constant scale
does nothing to one head under Adam; what scaling changes are ratios: between heads, and over time.

    python -m studies.adam --output_dir=figures
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from studies import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_RATE = 2e-4
EPSILONS = (1e-3, 1e-6, 0.0)
FACTORS = np.logspace(-6.0, 6.0, 49)  # of the errors; neighbours change gradients by sqrt(10)
INPUTS, UNITS, BATCH = 20, 16, 32


@dataclass(frozen=True)
class Updates:
    """Means over updates and root mean squares over parameters; float64 [F], one per factor.

    Attributes:
      losses: 1/2 (factor * delta)^2.
      gradients: the size of its gradient, per parameter.
      steps: the size of what Adam adds to the parameters, in learning rates.
      moved: float64 [F, P], what all updates together added to each parameter.
    """

    losses: np.ndarray
    gradients: np.ndarray
    steps: np.ndarray
    moved: np.ndarray

    @property
    def flat_from(self) -> float:
        """The smallest loss whose update is at least nine tenths of the largest."""
        return float(self.losses[self.steps >= 0.9 * self.steps.max()].min())

    def effect(self, factor: int, other: int) -> float:
        """Relative difference between what training has done under two factors, given by their places."""
        difference = np.linalg.norm(self.moved[factor] - self.moved[other])
        return float(difference / np.linalg.norm(self.moved[other]))


def updates(
    epsilon: float, factors: np.ndarray = FACTORS, steps: int = 100, seed: int = 0, skipped: int = 20
) -> Updates:
    """Trains one copy of a network per factor, all from the same start on the same data; float64.

    Args:
      epsilon: Adam's.
      factors: of the errors, [F].
      steps: updates.
      skipped: updates at the beginning that the means leave out: Adam's averages are young.
    """
    rng = np.random.default_rng(seed)
    layers = [
        rng.standard_normal((INPUTS, UNITS)) / INPUTS**0.5,
        rng.standard_normal((UNITS, 1)) / UNITS**0.5,
    ]
    start = np.concatenate([layer.ravel() for layer in layers])
    # Adam treats every parameter by itself, so that one optimizer serves all copies.
    weights = tf.Variable(np.tile(start, (len(factors), 1)))
    optimizer = tf.keras.optimizers.Adam(LEARNING_RATE, epsilon=epsilon)
    optimizer.build([weights])
    split = INPUTS * UNITS

    @tf.function
    def update(inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            hidden = tf.tanh(
                tf.einsum("bi,fiu->fbu", inputs, tf.reshape(weights[:, :split], [-1, INPUTS, UNITS]))
            )
            values = tf.einsum("fbu,fu->fb", hidden, weights[:, split:])
            losses = 0.5 * tf.reduce_mean(tf.square(factors[:, None] * (targets - values)), axis=1)
        gradients = tape.gradient(losses, weights)
        before = tf.identity(weights)
        optimizer.apply_gradients([(gradients, weights)])
        return losses, _root_mean_square(gradients), _root_mean_square(weights - before)

    measured = []
    for _ in range(steps):
        inputs = rng.standard_normal((BATCH, INPUTS))
        measured.append(update(inputs, inputs.sum(1) / INPUTS**0.5 + rng.standard_normal(BATCH)))
    losses, gradients, sizes = np.mean(measured[skipped:], axis=0)
    return Updates(losses, gradients, sizes / LEARNING_RATE, weights.numpy() - start)


def _root_mean_square(rows: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(rows), axis=1))


def draw(results: dict[float, Updates]) -> Figure:
    """Size of the update against the loss, both logarithmic."""
    sheet, ((axis,),) = figure.new_figure(panel=(7.0, 4.5))
    looks = {1e-3: ("unscaled", "-", 2.0), 1e-6: ("scaled", "-", 2.0), 0.0: ("reference", "-", 5.0)}
    for epsilon, (role, line, width) in reversed(looks.items()):
        result, colour = results[epsilon], figure.COLOURS[role]
        axis.plot(
            result.losses, result.steps, line, color=colour, lw=width, label=f"Adam, epsilon {epsilon:g}"
        )
        if epsilon > 0.0:
            switch = _loss_where(result, epsilon)
            axis.axvline(switch, color=colour, ls=":", label=f"gradient per parameter = {epsilon:g}")
    sgd = results[0.0]
    unit = np.interp(0.0, np.log(sgd.losses), np.log(sgd.gradients))
    axis.plot(sgd.losses, sgd.gradients / np.exp(unit), "k--", lw=1.0, label="SGD (1 at loss 1)")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(1e-6, 1e2)
    axis.set_xlabel("loss, 1/2 (factor * delta)^2")
    axis.set_ylabel("update per parameter [learning rates]")
    axis.legend(loc="lower right")
    return sheet


def _loss_where(result: Updates, gradient: float) -> float:
    return float(np.exp(np.interp(np.log(gradient), np.log(result.gradients), np.log(result.losses))))


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line)
    results = {epsilon: updates(epsilon) for epsilon in EPSILONS}
    one = int(np.abs(FACTORS - 1.0).argmin())
    findings = [
        f"{epsilon:g}: from losses of {result.flat_from:.0e} on, and 1/sqrt(10) of the gradient changes what is "
        f"learned by {result.effect(one - 1, one):.0e}"
        for epsilon, result in results.items()
    ]
    figure.save(
        draw(results),
        "adam",
        [
            [epsilon, *row]
            for epsilon, result in results.items()
            for row in zip(FACTORS, result.losses, result.gradients, result.steps, strict=True)
        ],
        [
            "epsilon",
            "factor of the errors",
            "loss",
            "gradient per parameter",
            "update per parameter [learning rates]",
        ],
        f"Adam's updates have one size, with epsilon {'; '.join(findings)}.",
        options.output_dir,
    )


if __name__ == "__main__":
    main()
