"""Weights as bytes: nothing is lost or mixed."""

import numpy as np
import pytest
import tensorflow as tf

from agents.storage.weights import assign, pack


def variables(seed):
    random = np.random.default_rng(seed)
    return [
        tf.Variable(random.normal(size=(3, 5)).astype(np.float32)),
        tf.Variable(random.normal(size=7)),
        tf.Variable(random.random(3) < 0.5),
        tf.Variable(random.integers(2**60), dtype=tf.int64),
    ]


def assert_same(ours, others):
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_variables_of_any_dtype_come_back_bit_for_bit():
    sent, received = variables(0), variables(1)
    with pytest.raises(ValueError, match="do not fit"):
        assign(received, pack(sent[:-1]))
    assert_same(received, variables(1))
    assign(received, pack(sent))
    assert_same(received, sent)
