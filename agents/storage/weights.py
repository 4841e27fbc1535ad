"""Weights that actors need of the learner, as bytes, and a thread that publishes it without making an update wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf


def packed(tensors: Sequence[tf.Tensor | tf.Variable]) -> np.ndarray:
    """The values of tensors of any dtypes one after the other, uint8 [bytes]."""
    return np.frombuffer(b"".join(tensor.numpy().tobytes() for tensor in tensors), np.uint8)


def assign(variables: Sequence[tf.Variable], data: np.ndarray) -> None:
    """The inverse of `packed`: variables of the same shapes and dtypes in the same order take the values.

    Raises:
      ValueError: another number of bytes: the weights are those of another network.
    """
    sizes = [variable.shape.num_elements() * variable.dtype.size for variable in variables]
    if sum(sizes) != data.nbytes:
        raise ValueError(f"weights of {data.nbytes} bytes do not fit variables of {sum(sizes)}")
    for variable, part in zip(variables, np.split(data, np.cumsum(sizes)[:-1]), strict=True):
        values = np.frombuffer(part.tobytes(), variable.dtype.as_numpy_dtype)
        variable.assign(values.reshape(variable.shape))


class Publisher:
    """Sends variables, at most one copy at a time, from a thread of its own.

    Args:
      variables: what to send, in this order.
      send: called in the thread with the step and the bytes, see `packed`.

    Attributes:
      error: what `send` raised, which ends the thread; None as long as all is well.
    """

    def __init__(self, variables: Sequence[tf.Variable], send: Callable[[int, np.ndarray], None]):
        self._variables, self._send = variables, send
        self._next: tuple[int, list[tf.Tensor]] | None = None
        self._closing = False
        self._changed = threading.Condition()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, step: int) -> None:
        """Takes a copy of the variables as they are now and returns; one that still waits to be sent is dropped."""
        copy = [tf.identity(variable) for variable in self._variables]
        with self._changed:
            self._next = step, copy
            self._changed.notify()

    def close(self) -> None:
        """Sends what waits, then ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._next is not None or self._closing)
                    if self._next is None:
                        return
                    (step, copy), self._next = self._next, None
                self._send(step, packed(copy))
        except Exception as error:  # noqa: BLE001  `error` tells
            self.error = error
