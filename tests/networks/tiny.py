"""A network at the size of a test, and what it sees."""

import numpy as np
import tensorflow as tf

from networks import ConvTorso, RecurrentQNetwork

B, T, H, A, U = 3, 6, 4, 5, 8
ACTION, REWARD = tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32)
SPEC = (tf.TensorSpec((4, 4, 2), tf.uint8), ACTION, REWARD)
FIRST, MID = 0, 1


def tiny_torso(seed=None):
    return ConvTorso((3,), (3,), (2,), units=7, seed=seed)


def tiny_network(spec=SPEC, **kwargs):
    sizes = {"torso": tiny_torso, "lstm_units": U, "post_lstm_units": 6, "head_hidden": 5, "seed": 0}
    network = RecurrentQNetwork(spec, A, H, **sizes | kwargs)
    network.create_variables()
    return network


def batch(*outer, seed=0):
    rng = np.random.default_rng(seed)
    observation = rng.integers(0, 256, (*outer, 4, 4, 2), dtype=np.uint8)
    action = rng.integers(-1, A, outer, dtype=np.int32)
    reward = rng.normal(size=outer).astype(np.float32)
    step_type = np.where(rng.random(outer) < 0.3, FIRST, MID).astype(np.int32)
    return tuple(tf.constant(part) for part in (observation, action, reward)), tf.constant(step_type)


def some_state(seed=0):
    rng = np.random.default_rng(seed)
    return tuple(tf.constant(rng.normal(size=(B, U)), tf.float32) for _ in range(2))
