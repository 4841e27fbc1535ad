"""Logical devices for tests of replicas."""

import tensorflow as tf


def two_cpus():
    """Makes two devices of this process's CPU, before TensorFlow has done anything."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
