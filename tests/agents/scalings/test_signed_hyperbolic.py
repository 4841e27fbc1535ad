"""The squashing function, its inverse, and the fixed point of learning in its space."""

import numpy as np
import tensorflow as tf

from agents.scalings.signed_hyperbolic import SignedHyperbolic, squash, unsquash
from agents.targets import n_step_targets
from tests.agents.scalings.episodes import context


def exact(x):
    """f in NumPy's widest float, as the paper writes it."""
    x = np.longdouble(x)
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1)


def test_accuracy_and_round_trips():
    x = np.float32(10.0) ** np.linspace(-37, 37, 75, dtype=np.float32)
    x = np.concatenate([-x, [0.0], x]).astype(np.float32)
    # Below 1e-6 the paper's form cancels even in the widest float; there f(x) = x / 2 (1 - x / 4 + ...).
    np.testing.assert_allclose(squash(tf.constant(x)), np.where(abs(x) > 1e-6, exact(x), x / 2), rtol=5e-7)
    np.testing.assert_allclose(unsquash(squash(tf.constant(x))), x, rtol=1e-6)
    y = x[abs(x) < 1e18]
    np.testing.assert_allclose(squash(unsquash(tf.constant(y))), y, rtol=1e-6)


def test_the_fixed_point():
    """A cycle of rewards with discount 0.9 and n = 3: squashed sums would not have this fixed point."""
    scaling, rewards = SignedHyperbolic(1), np.tile([0.0, 100.0, -7.0, 3000.0], 5)[:, None, None]
    values = np.zeros((21, 1, 1))
    for _ in range(200):
        values[-1] = values[0]
        for t in reversed(range(20)):
            values[t] = rewards[t] + 0.9 * values[t + 1]
    outputs = tf.constant(exact(values).astype(np.float32))
    targets = n_step_targets(
        scaling.values(outputs, target=True),
        tf.constant(rewards, tf.float32),
        tf.fill((20, 1, 1), 0.9),
        tf.ones((20, 1), tf.bool),
        3,
    )
    np.testing.assert_allclose(targets, values[:-1], rtol=1e-5)
    np.testing.assert_allclose(scaling.errors(targets, outputs[:-1], context()), 0.0, atol=1e-4)
