"""A process in which TensorFlow sees two CPUs, which it must hear of before it does anything else."""

import contextlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import tensorflow as tf


def two_cpus():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@contextlib.contextmanager
def process_with_two_cpus():
    """Gives a function that calls another one there."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=two_cpus) as pool:
        yield lambda function, *args: pool.submit(function, *args).result()
