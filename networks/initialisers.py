"""Initial weights: one rule for all layers, reproducible by a single seed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def split_seed(seed: int | None, count: int) -> list[int | None]:
    """`count` seeds that look independent of each other and of those of other seeds; all None for None."""
    if seed is None:
        return [None] * count
    # TensorFlow reads seeds as signed integers, so half the range of uint32 has to do.
    return [int(word) // 2 for word in np.random.SeedSequence(seed).generate_state(count)]


def fan_in_normal(seed: int | None, scale: float = 1.0) -> tf.keras.initializers.Initializer:
    """Truncated normal of variance scale / fan_in, stateless: equal seeds give equal weights."""
    return tf.keras.initializers.VarianceScaling(scale, "fan_in", "truncated_normal", seed=seed)
