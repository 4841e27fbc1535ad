"""Observations come out of their strings as they went in, to the bit."""

import zlib

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.replay.compression import choose_level, compress, decompress_batch
from agents.sequences import Sequence, Steps, unpack

# Pieces: all of it, lines, halves and quarters.
SHAPES = [(), (5,), (4, 2), (6, 8, 3), (3, 96, 4), (2, 50, 6), (700,)]
DTYPES = [np.uint8, np.float32, np.int32, np.bool_, np.float64]


def strings_of(rows: np.ndarray) -> np.ndarray:
    """[B, N, R, ...] -> [B, N]."""
    return np.array([[compress(block, 3) for block in window] for window in rows], object)


def back(strings: tf.Tensor, rows: int, spec: tf.TensorSpec) -> tf.Tensor:
    """Observations, by way of `Packed`."""
    packed = decompress_batch(strings, rows, spec)
    return unpack(Sequence(Steps(None, packed, None, None, None), None, None, None), spec).steps.observation


def assert_comes_back(rows: np.ndarray) -> None:
    spec = tf.TensorSpec(rows.shape[3:], rows.dtype)
    found = back(tf.constant(strings_of(rows)), rows.shape[2], spec)
    assert (found.shape, found.dtype) == ((len(rows), rows.shape[1] * rows.shape[2], *spec.shape), spec.dtype)
    assert found.numpy().tobytes() == rows.tobytes()


@settings(max_examples=20, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    outer=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 5)),
    kinds=st.sampled_from([1, 2, 255, 256, 257, 10_000]),
    noise=st.sampled_from([0.0, 0.02, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_compression_loses_nothing(shape, dtype, outer, kinds, noise, seed):
    """However much a row repeats the one before it, and of however many values it is made."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, size=(kinds, np.dtype(dtype).itemsize), dtype=np.uint8)
    values = values % 2 if dtype is np.bool_ else values
    rows = values.view(dtype)[random.integers(kinds, size=(*outer, *shape)), 0]
    keep = random.random(rows.shape) >= noise
    assert_comes_back(np.ascontiguousarray(np.where(keep, rows[:, :, :1], rows)))


def test_pieces_that_differ_in_their_last_zeros_alone_are_two():
    rows = np.zeros((1, 1, 3, 2, 4), np.uint8)
    rows[0, 0, 1, 1] = 0, 0, 0, 1
    rows[0, 0, 2, 1] = 0, 0, 1, 0
    assert_comes_back(rows)


def test_a_piece_that_was_seen_before_is_kept_once():
    line = np.arange(16, dtype=np.uint8).reshape(8, 2)
    frames = np.stack([line, line + 16, line])
    frames = np.stack([frames, frames[::-1], frames + 32])  # 3 lines, no new one, 2 new ones
    string = compress(frames, 3)
    kept = zlib.decompress(string)[4 * 9 :]
    assert kept == b"".join(each.tobytes() for each in (line, line + 16, line + 32, line + 48))
    packed = decompress_batch(
        tf.constant([[string, string]], tf.string), 3, tf.TensorSpec((3, 8, 2), tf.uint8)
    )
    assert packed.numbers.shape == (1, 6, 3)
    assert packed.numbers[0, :, 1].numpy().tolist() == [1, 1, 3, 5, 5, 7]


def test_replicas_need_not_know_the_size_of_their_share():
    rows = np.random.default_rng(0).integers(0, 2, (2, 3, 5, 4, 8), np.uint8)

    @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.string)])
    def of(strings: tf.Tensor) -> tf.Tensor:
        return back(strings, 5, tf.TensorSpec((4, 8), tf.uint8))

    np.testing.assert_array_equal(of(tf.constant(strings_of(rows))), rows.reshape(2, 15, 4, 8))


def test_large_images_alone_are_compressed_unasked():
    frames, flags = tf.TensorSpec((210, 160, 3), tf.uint8), tf.TensorSpec((10, 10, 6), tf.uint8)
    vectors = tf.TensorSpec((20_000,), tf.float32)
    assert [choose_level(spec, None) for spec in (frames, flags, vectors)] == [3, 0, 0]
    assert choose_level(flags, 9) == 9 and choose_level(frames, 0) == 0
