"""Shared by tests that configure gin."""

import gin
import pytest


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
