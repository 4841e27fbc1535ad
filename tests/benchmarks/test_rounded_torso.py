"""The torso that rounds is as far from float32 as TensorFlow's in bfloat16, whose sums go another way."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import networks
from benchmarks import rounded_torso
from networks.torsos import Torso


@pytest.fixture
def observation():
    return tf.constant(np.random.default_rng(0).integers(0, 256, (8, 10, 10, 4), np.uint8))


def outputs_and_gradients(torso, observation):
    """Features, and the gradient of their weighted sum in every variable."""
    torso.build(observation.shape)

    @tf.function(jit_compile=True)  # oneDNN has no bfloat16 where it is told to leave out newer instructions
    def run():
        with tf.GradientTape() as tape:
            features = torso(observation)
            loss = tf.reduce_sum(features * np.random.default_rng(1).normal(size=features.shape))
        return [features, *tape.gradient(loss, torso.trainable_variables)]

    return run()


def error(found, expected):
    """Relative, of all entries together."""
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def test_rounding_moves_features_and_gradients_as_far_as_bfloat16_does(observation, monkeypatch):
    plain = outputs_and_gradients(networks.small_torso(seed=0), observation)
    narrow = outputs_and_gradients(networks.small_torso(compute_dtype="bfloat16", seed=0), observation)
    monkeypatch.setattr(Torso, "call", rounded_torso.call)
    rounded = outputs_and_gradients(networks.small_torso(seed=0), observation)
    for ours, theirs, exact in zip(rounded, narrow, plain, strict=True):
        assert error(ours, exact) == pytest.approx(error(theirs, exact), rel=0.3)
