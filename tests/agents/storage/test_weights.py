"""Weights as bytes and their publisher: nothing is lost or mixed, nothing waits."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from agents.storage.weights import Publisher, assign, packed


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
        assign(received, packed(sent[:-1]))
    assert_same(received, variables(1))
    assign(received, packed(sent))
    assert_same(received, sent)


def test_only_the_newest_copy_waits():
    number, gate, sent = tf.Variable(0), threading.Event(), []

    def send(step, data):
        gate.wait()
        sent.append((step, int(data.view(np.int32)[0])))

    publisher = Publisher([number], send)
    for step in range(1, 6):
        number.assign(10 * step)
        publisher.publish(step)
        number.assign(-1)
    gate.set()
    publisher.close()
    # The first may have been taken before the second came; all between it and the last are dropped.
    assert sent[-1] == (5, 50) and len(sent) <= 2 and set(sent) <= {(step, 10 * step) for step in range(1, 6)}


def test_an_error_is_kept():
    def send(step, data):
        raise ConnectionError("gone")

    publisher = Publisher([tf.Variable(0)], send)
    publisher.publish(1)
    publisher.close()
    assert isinstance(publisher.error, ConnectionError)
    publisher.publish(2)  # does not hang, nor raise
