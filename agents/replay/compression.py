"""Observations in the replay as zlib streams, several rows in each, of pieces that are stored once.

Half a line of a raw Atari frame mostly looks as it did one frame earlier, or as another line does: of a block of 5
frames 1% to 25% of the pieces are new, of Yars' Revenge with its noise 36% (57 games, random play). zlib without pieces
would find the same stretches, but compressing and decompressing would go through all of them. Reverb compresses what it
stores with Snappy, which spends at least 3 bytes on 64, however often these have been seen before: 4.7 kB of a frame.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
import tensorflow as tf

from agents.sequences import Packed

# Both quicker and smaller than level 1 on Atari frames; level 6 takes a quarter less, for up to twice the work.
_LEVEL = 3
_LARGE = 20_000  # bytes; what is smaller, two 84 x 84 frames among it, costs more to unpack than it saves
_PIECE = 256  # bytes; longer lines are halved


def choose_level(spec: tf.TensorSpec, level: int | None) -> int:
    """zlib's level for such observations: as asked for, or by their size where None; 0 leaves them as they are."""
    by_size = _LEVEL if spec.dtype == tf.uint8 and spec.shape.num_elements() >= _LARGE else 0
    return by_size if level is None else level


def compress(rows: np.ndarray, level: int) -> bytes:
    """Rows [R, ...] as one string.

    It holds the number of each piece, int32 [R, P], then the pieces in the order of their first appearance.
    """
    lines = rows.shape[1] if rows.ndim > 2 else 1
    size = _piece(rows.shape[1:], rows.itemsize)
    # Viewed as byte strings, pieces compare in one go. NumPy ignores zeros at their ends, but pieces have equal
    # length, so different ones stay different.
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8).view(f"S{size}")
    pieces = flat.reshape(len(rows), lines, -1)
    # First what changes from row to row, in the first one from line to line ...
    new = np.ones(pieces.shape, bool)
    np.not_equal(pieces[0, 1:], pieces[0, :-1], out=new[0, 1:])
    np.not_equal(pieces[1:], pieces[:-1], out=new[1:])
    latest = np.where(new, np.cumsum(new).reshape(new.shape) - 1, 0)
    np.maximum.accumulate(latest[0], axis=0, out=latest[0])
    np.maximum.accumulate(latest, axis=0, out=latest)
    # ... then, one by one, what of this was there before.
    changed = pieces[new].tobytes()
    seen = dict[bytes, int]()
    numbers = [seen.setdefault(changed[i : i + size], len(seen)) for i in range(0, len(changed), size)]
    data = np.array(numbers, "<i4")[latest].tobytes() + b"".join(seen)
    return zlib.compress(data, level)


def decompress_batch(strings: tf.Tensor, rows: int, spec: tf.TensorSpec) -> Packed:
    """The inverse for a batch, in graphs: strings [B, N] of `rows` rows each -> observations [B, N rows]."""
    # Bytes of a piece, and how many of them a string has.
    size = _piece(tuple(spec.shape), spec.dtype.size)
    count = rows * spec.shape.num_elements() * spec.dtype.size // size
    # GPUs gather no bytes.
    dtype = tf.int64 if spec.dtype == tf.uint8 and size % 8 == 0 else spec.dtype
    unzipped = tf.map_fn(
        lambda sequence: tf.io.decode_compressed(sequence, "ZLIB"), strings, parallel_iterations=32
    )
    blocks = tf.reshape(unzipped, (-1,))
    numbers = tf.io.decode_raw(tf.strings.substr(blocks, 0, 4 * count), tf.int32)
    pieces = tf.strings.substr(blocks, 4 * count, count * size)
    lengths = tf.strings.length(pieces) // size
    numbers += tf.cumsum(lengths, exclusive=True)[:, None]
    return Packed(
        tf.reshape(tf.io.decode_raw(tf.strings.reduce_join(pieces), dtype), (-1, size // dtype.size)),
        tf.reshape(numbers, (-1, strings.shape[1] * rows, count // rows)),
    )


def _piece(shape: tuple[int, ...], itemsize: int) -> int:
    """Bytes of the pieces of such an observation: a line of an image, or all of it, halved while long and even."""
    size = math.prod(shape[len(shape) > 1 :]) * itemsize
    while size > _PIECE and size % 16 == 0:
        size //= 2
    return size
