"""Shared by tests of agents: TensorFlow's state."""

import gc
import os
from pathlib import Path

import pytest
import tensorflow as tf

_MOST = 2**31  # bytes


@pytest.fixture(autouse=True, scope="module")
def forgotten_graphs():
    """TensorFlow keeps the kernels of every graph that ever ran, tens of MB for each run that trains."""
    yield
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resident < _MOST:  # looking at all objects takes a second
        return
    gc.collect()
    tf.keras.backend.clear_session()
