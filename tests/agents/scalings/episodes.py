"""Episodes, batches, bins, last layers of two heads, and updates as the agent makes them, without an agent."""

import math

import numpy as np
import tensorflow as tf

from agents.scalings import ErrorContext, HLGauss, TwoHot
from networks.dueling_heads import DuelingHeads
from rbs_tf import ReturnMoments

H = 2
SHAPE = (5, 3, H)
ROWS = (7, 3, H)  # two more for the n-step window
STATES = np.random.default_rng(0).normal(size=(21, 4))
GAMMAS = np.array([0.9, 0.99])


class LastLayers:
    """V's and A's last layers at once, as far as scalings care: float32 outputs that take a ratio and a shift."""

    def __init__(self, outputs=1):
        self._outputs = () if outputs == 1 else (outputs,)
        columns = H * outputs
        self.weights = tf.Variable(np.random.default_rng(1).normal(size=(4, columns)), dtype=tf.float32)
        self.bias = tf.Variable(np.random.default_rng(2).normal(size=columns), dtype=tf.float32)

    def __call__(self):
        """float32 [7, 3, H], or [7, 3, H, K]"""
        return tf.reshape(tf.constant(STATES, tf.float32) @ self.weights + self.bias, ROWS + self._outputs)

    def rescale_outputs(self, ratio, shift):
        ratio, shift = tf.cast(ratio, tf.float32), tf.cast(shift, tf.float32)
        self.weights.assign(self.weights * ratio)
        self.bias.assign(self.bias * ratio + shift)

    def assign(self, other):
        self.weights.assign(other.weights)
        self.bias.assign(other.bias)


def steps(seed=0, length=40, size=(1.0, 100.0), offset=(0.0, 0.0)):
    """Rewards and discounts of an episode, float64 [T, H]."""
    rewards = np.random.default_rng(seed).normal(size=(length, H)) * size + offset
    discounts = np.tile(GAMMAS, (length, 1))
    discounts[-1] = 0.0
    return rewards, discounts


def episode(*args, **options):
    return ReturnMoments.from_episode(*steps(*args, **options))


def alike(rewards, gamma):
    """Rewards and discounts [T, H] of an episode for H heads alike; the last step is terminal."""
    discounts = np.append(np.full(len(rewards) - 1, gamma), 0.0)
    return tuple(np.repeat(np.c_[column], H, axis=1) for column in (rewards, discounts))


def normal(seed, size=1.0, shape=SHAPE):
    return (size * np.random.default_rng(seed).normal(0.3, 1.0, size=shape)).astype(np.float32)


def context(gaps=None, mask=None, rewards=None, discounts=None):
    """A batch without rewards unless they are given, [7, 3, H]; mask [7, 3]; gaps of target and online values."""
    return ErrorContext(
        tf.zeros(ROWS) if rewards is None else tf.constant(rewards, tf.float32),
        tf.ones(ROWS) if discounts is None else tf.constant(discounts, tf.float32),
        tf.ones(ROWS[:2]) if mask is None else tf.constant(mask, tf.float32),
        tf.zeros(SHAPE) if gaps is None else tf.constant(gaps, tf.float32),
    )


def scales(scaling, batch):
    """What an error is divided by, [H]."""
    return 1.0 / scaling.errors(tf.ones(SHAPE), tf.zeros(SHAPE), batch).numpy()[0, 0]


def head_layers(seed):
    layer = DuelingHeads(H, 4, hidden=3, seed=seed)
    layer(np.zeros((1, 6)))
    return layer


def update(scaling, layers, rewards, mask, first):
    """One update but for the gradient step, with one-step targets: errors [5, 3, H] and losses."""
    scaling.before_update(*layers)
    raw, target_raw = (layer() for layer in layers)
    values, target_values = scaling.decode(raw), scaling.values(scaling.decode(target_raw), target=True)
    scaling.initialise(values[:5], mask[:5], first)
    rewards = scaling.rewards(rewards)
    gap = target_values[:5] - scaling.values(values)[:5]
    batch = ErrorContext(rewards, tf.fill(ROWS, 0.9), mask, gap)
    keep = tf.cast(mask[:5, :, None], tf.bool)
    targets = tf.where(keep, rewards[:5] + 0.9 * target_values[1:6], 0.0)
    outputs = tf.where(keep, values[:5], 0.0)
    errors = tf.where(keep, scaling.errors(targets, outputs, batch), 0.0)
    losses = scaling.losses(errors, targets, raw[:5], batch)
    scaling.after_update(targets, outputs, mask[:5], layers[0])
    return errors, losses


def layers_for(scaling):
    """Those of the online and of the target network."""
    return tuple(LastLayers(scaling.outputs_per_action) for _ in range(2))


def played(scaling, seeds=range(4), factor=1.0, layers=None, padding=0.0, by_xla=False):
    """What `update` returns, for one episode and one batch after the other; the target is replaced after the second.

    Rewards are `factor`, a number or [H], times 3, 30, 0.3, ...; some rows are padding and hold `padding`.
    """
    layers = layers or layers_for(scaling)

    def one(rewards, mask, first):
        return update(scaling, layers, rewards, mask, first)

    one, found = tf.function(one, jit_compile=True) if by_xla else one, []
    for seed in seeds:
        size = factor * np.array([3.0, 30.0, 0.3, 5.0])[seed % 4]
        scaling.observe(episode(seed, size=size))
        mask = (np.random.default_rng(seed).uniform(size=ROWS[:2]) < 0.8).astype(np.float32)
        rewards = np.where(mask[..., None] == 1, normal(seed, np.float32(size), ROWS), padding)
        found.append(one(tf.constant(rewards, tf.float32), tf.constant(mask), tf.constant(seed == 0)))
        if seed == 1:
            layers[1].assign(layers[0])
            scaling.target_updated()
    return found


def numbers(scaling):
    """Values of a scaling's variables."""
    return [variable.numpy() for variable in scaling.variables]


SUPPORTS = {
    TwoHot: np.array([np.sign(x) * np.expm1(abs(x)) for x in (-20.0 + 40.0 * k / 254.0 for k in range(255))]),
    HLGauss: np.array([-10.0 + 20.0 / 51.0 * (k + 0.5) for k in range(51)]),
}


def two_hot(x, support):
    """Looked up, not added up."""
    found = np.zeros(len(support))
    x = min(max(x, support[0]), support[-1])
    right = max(1, int(np.searchsorted(support, x)))
    share = (x - support[right - 1]) / (support[right] - support[right - 1])
    found[right - 1], found[right] = 1.0 - share, share
    return found


def normal_masses(x, v_min=-10.0, v_max=10.0, bins=51, deviation=0.75):
    width = (v_max - v_min) / bins
    x = min(max(x, v_min), v_max)
    below = [
        0.5 * math.erfc(-(v_min + k * width - x) / (deviation * width * math.sqrt(2.0)))
        for k in range(bins + 1)
    ]
    return np.diff(below) / (below[-1] - below[0])


def expected_projection(kind, x):
    return normal_masses(x) if kind is HLGauss else two_hot(x, SUPPORTS[kind])


def softmax(logits):
    masses = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return masses / masses.sum(axis=-1, keepdims=True)
