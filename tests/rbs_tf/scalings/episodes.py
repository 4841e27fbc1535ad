"""Episodes, batches and layers of two heads, for the tests of return-based scaling's options."""

import numpy as np
import tensorflow as tf

from networks.dueling_heads import DuelingHeads
from rbs_tf import ReturnMoments
from rbs_tf.returns import n_step_sums
from rbs_tf.scalings import ErrorContext

H = 2
SHAPE = (5, 3, H)
ROWS = (7, 3, H)  # two more for the n-step window


def episode(seed=0, steps=40, size=(1.0, 100.0), offset=(0.0, 0.0)):
    rewards = np.random.default_rng(seed).normal(size=(steps, H)) * size + offset
    discounts = np.full((steps, H), [0.9, 0.99])
    discounts[-1] = 0.0
    return ReturnMoments.from_episode(rewards, discounts)


def context(gaps=None, mask=None, rewards=None):
    gaps = np.zeros(SHAPE) if gaps is None else gaps
    online = np.random.default_rng(9).normal(size=SHAPE)
    return ErrorContext(
        tf.zeros(ROWS) if rewards is None else tf.constant(rewards, tf.float32),
        tf.ones(ROWS),
        tf.ones(ROWS[:2]) if mask is None else tf.constant(mask, tf.float32),
        tf.constant(online, tf.float32),
        tf.constant(online + gaps, tf.float32),
    )


def scales(scaling, batch):
    """What an error is divided by, [H]."""
    return 1.0 / scaling.errors(tf.ones(SHAPE), tf.zeros(SHAPE), batch).numpy()[0, 0]


def observe(scaling, rewards, discounts, n):
    """One episode, [T, H] each, as the agent hands it on."""
    n_step = ReturnMoments.from_steps(*n_step_sums(rewards, discounts, n))
    scaling.observe(ReturnMoments.from_episode(rewards, discounts), n_step=n_step)


def some_steps(seed=0, steps=40, gammas=(0.9, 0.99)):
    rewards = np.random.default_rng(seed).normal(size=(steps, H)) * [1.0, 100.0] + [0.0, 9.0]
    discounts = np.full((steps, H), gammas)
    discounts[-1] = 0.0
    return rewards, discounts


def head_layers(seed):
    layer = DuelingHeads(H, 4, hidden=3, seed=seed)
    layer(np.zeros((1, 6)))
    return layer
