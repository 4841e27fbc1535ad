"""The hooks of a scaling that overrides none of them."""

import logging

import tensorflow as tf

from rbs_tf.scalings import Scaling


def test_autograph_compiles_every_hook_without_a_warning(caplog):
    scaling = Scaling(2)

    @tf.function
    def update(values):
        scaling.before_update(None, None)
        scaling.initialise(values, values)
        scaling.after_update(values, values, values, None, None)
        scaling.target_updated()
        return values

    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.WARNING)
    try:
        update(tf.zeros((1, 2)))
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
    assert caplog.messages == []
