"""Weights that actors need of the learner, as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def pack(tensors: Sequence[tf.Tensor | tf.Variable]) -> np.ndarray:
    """The values of tensors of any dtypes one after the other, uint8 [bytes]."""
    return np.frombuffer(b"".join(tensor.numpy().tobytes() for tensor in tensors), np.uint8)


def assign(variables: Sequence[tf.Variable], data: np.ndarray) -> None:
    """The inverse of `pack`: variables of the same shapes and dtypes in the same order take the values.

    Raises:
      ValueError: another number of bytes: the weights are those of another network.
    """
    sizes = [variable.shape.num_elements() * variable.dtype.size for variable in variables]
    if sum(sizes) != data.nbytes:
        raise ValueError(f"weights of {data.nbytes} bytes do not fit variables of {sum(sizes)}")
    for variable, part in zip(variables, np.split(data, np.cumsum(sizes)[:-1]), strict=True):
        values = np.frombuffer(part.tobytes(), variable.dtype.as_numpy_dtype)
        variable.assign(values.reshape(variable.shape))
