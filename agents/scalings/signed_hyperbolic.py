"""Learning in the space of a squashing function, the paper's "non-linear value transforms"."""

from __future__ import annotations

import tensorflow as tf

from agents.scalings.scaling import ErrorContext, Scaling, named


def squash(x: tf.Tensor) -> tf.Tensor:
    """f(x) = sign(x) (sqrt(abs(x) + 1) - 1), written such that nothing cancels near 0; any shape, float."""
    return x / (tf.sqrt(tf.abs(x) + 1.0) + 1.0)


def unsquash(y: tf.Tensor) -> tf.Tensor:
    """The inverse, sign(y) ((abs(y) + 1)^2 - 1) in the same form; any shape, float."""
    return y * (tf.abs(y) + 2.0)


@named("signed_hyperbolic")
class SignedHyperbolic(Scaling):
    """Errors f(target) - output for outputs in f-space; rewards are added up and discounted in reward units.

    Source: Pohlen et al. 2018, "Observe and look further", with the function of the paper's appendix "Non-linear
    value transforms", which has no linear term and so an exact inverse. Small errors stay (halved, f'(0) = 1/2),
    large ones are squashed: it is not homogeneous, and where the rewards are noisy f^-1 of a mean is not the mean.
    """

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        return unsquash(outputs)

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        return squash(targets) - outputs
