"""Shared by tests of agents: gin's state, and TensorFlow's."""

import gc

import gin
import pytest
import tensorflow as tf


@pytest.fixture(autouse=True, scope="module")
def forgotten_graphs():
    """TensorFlow keeps the kernels of every graph that ever ran, tens of MB for each run that trains."""
    yield
    gc.collect()
    tf.keras.backend.clear_session()


@pytest.fixture(autouse=True)
def own_gin():
    """Where gin looks for files, and its lock: `train.py` sets both, and the next test is not to see it."""
    before, locked = list(gin.config._LOCATION_PREFIXES), gin.config_is_locked()
    yield
    gin.config._LOCATION_PREFIXES[:] = before
    gin.config._set_config_is_locked(locked)


@pytest.fixture
def no_train():
    """Takes the real `train` out of gin's registry, so that a test can register one of its own."""
    registry = gin.config._REGISTRY

    def take_out():
        return {selector: registry.pop(selector) for selector in registry.matching_selectors("train")}

    taken = take_out()
    gin.clear_config()
    yield
    gin.clear_config()
    take_out()
    for selector, configurable in taken.items():
        registry[selector] = configurable
