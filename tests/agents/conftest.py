"""Shared by tests of agents: TensorFlow's state."""

import gc

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True, scope="module")
def forgotten_graphs():
    """TensorFlow keeps the kernels of every graph that ever ran, tens of MB for each run that trains."""
    yield
    gc.collect()
    tf.keras.backend.clear_session()
