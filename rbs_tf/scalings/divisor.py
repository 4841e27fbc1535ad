"""Units of outputs that come from returns, and what errors are divided by where outputs have units of their own."""

from __future__ import annotations

import tensorflow as tf

from rbs_tf.return_scaling import ReturnScaling

DIVISORS = ("sigma", "s", "geometric")


def return_unit(layer: ReturnScaling) -> tf.Tensor:
    """s = sqrt(max(E[G^2], E[R^2])) of all statistics, float64 [H]; 0 for a head that has seen no reward but 0."""
    moments = layer.moments
    mean_square_reward = moments.reward_variance + tf.square(moments.reward_mean)
    return tf.sqrt(tf.maximum(moments.return_mean_square, mean_square_reward))


def checked(divisor: str, default: str) -> str:
    """The divisor. Raises ValueError, with the default, if it is none of `DIVISORS`."""
    if divisor not in DIVISORS:
        raise ValueError(
            f"divisor must be one of {', '.join(map(repr, DIVISORS))}; got {divisor!r}. The default is {default!r}"
        )
    return divisor


def divisor_of(divisor: str, layer: ReturnScaling, unit: tf.Tensor, sigma_batch: tf.Tensor) -> tf.Tensor:
    """Divisor of errors for values Q = s q of outputs q, float64 [H]; the gradient in q is s delta over its square.

    Args:
      divisor: "sigma": max(sigma, sigma_v s, sigma_batch), as in return-based scaling, with sigma_v in network units;
        "s": s, errors are those of q; "geometric": sqrt(sigma s) with that same sigma, the gradient is delta / sigma.
      layer: all-time statistics, and sigma_v.
      unit: s, float64 [H].
      sigma_batch: float64 [H].
    """
    if divisor == "s":
        return unit
    sigma = tf.maximum(layer.sigma, tf.maximum(layer.sigma_v * unit, sigma_batch))
    return sigma if divisor == "sigma" else tf.sqrt(sigma * unit)
