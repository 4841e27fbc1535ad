"""Observations in the replay as zlib streams, several rows in each.

Reverb compresses what it stores with Snappy, which spends at least 3 bytes on 64, however often these have been seen
before: 4.7 kB of a raw Atari frame. zlib finds the same stretches for less, and TensorFlow can undo it in a graph.
"""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow as tf

# Both quicker and smaller than level 1 on Atari frames; level 6 halves them once more, for three times the work.
_LEVEL = 3
_LARGE = 10_000  # bytes; what is smaller than this costs more to unpack than it saves


def level_for(spec: tf.TensorSpec, level: int | None) -> int:
    """zlib's level for such observations: as asked for, or by their size where None; 0 leaves them as they are.

    Raises:
      ValueError: a level that zlib does not have.
    """
    if level is None:
        return _LEVEL if spec.dtype == tf.uint8 and spec.shape.num_elements() >= _LARGE else 0
    if not isinstance(level, int) or not 0 <= level <= 9:
        raise ValueError(
            f"Replay.compression is zlib's level, from 1 to 9, 0 for none or None to choose by size; got {level!r}"
        )
    return level


def compress(rows: np.ndarray, level: int) -> np.ndarray:
    """Rows [R, ...] as one string, an array [] of objects as Reverb wants it."""
    return np.array(zlib.compress(np.ascontiguousarray(rows).data, level), dtype=object)


def decompress(strings: np.ndarray, rows: int, spec: tf.TensorSpec) -> np.ndarray:
    """The inverse: strings [N] -> [N, rows, ...]."""
    data = b"".join(map(zlib.decompress, strings))
    return np.frombuffer(data, spec.dtype.as_numpy_dtype).reshape(-1, rows, *spec.shape)


def decompress_batch(strings: tf.Tensor, rows: int, spec: tf.TensorSpec) -> tf.Tensor:
    """The inverse for a batch of windows, in graphs: strings [B, N] -> [B, N, rows, ...]; windows side by side."""
    size = rows * spec.shape.num_elements()

    def window(strings: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_raw(tf.io.decode_compressed(strings, "ZLIB"), spec.dtype)

    windows = tf.map_fn(
        window,
        strings,
        fn_output_signature=tf.TensorSpec((strings.shape[1], size), spec.dtype),
        parallel_iterations=32,
    )
    return tf.reshape(windows, (-1, strings.shape[1], rows, *spec.shape))
