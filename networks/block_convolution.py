"""Strided convolutions as convolutions of stride 1 over blocks of pixels, which some CPUs are quicker at."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_WORD = 4  # bytes of an int32


class BlockConv2D(tf.keras.layers.Conv2D):
    """A `Conv2D` of stride s whose kernel size is a multiple of s, computed over blocks of s x s pixels.

    With a block's pixels as channels it is a convolution of stride 1, of as many multiplications, with more channels
    and a smaller kernel. The sums are those of the strided convolution but for their order, and so are weights, their
    names and their shapes: one may be trained as the other.

    Takes pixels, uint8, as they are, too, and divides them by 255: the blocks are then made of bytes.

    Raises:
      ValueError: a kernel size that is no multiple of the stride, or strides that differ.
    """

    def __init__(self, filters: int, kernel_size: int, strides: int, **settings: Any):
        super().__init__(filters, kernel_size, strides, **settings)
        (stride, other), sizes = self.strides, self.kernel_size
        if stride != other or any(size % stride for size in sizes):
            raise ValueError(
                f"over blocks, a kernel's size must be a multiple of its stride; got sizes {sizes} and strides "
                f"{self.strides}"
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        stride = self.strides[0]
        images = _fitted(inputs, self.kernel_size, stride, self.padding)
        kernel = kernel_over_blocks(tf.cast(self.kernel, self.compute_dtype), stride)
        if inputs.dtype == tf.uint8:
            kernel /= 255.0  # a pass over the kernel in place of one over all pixels
        blocks = tf.cast(blocks_of(images, stride), self.compute_dtype)
        outputs = tf.nn.bias_add(tf.nn.conv2d(blocks, kernel, 1, "VALID"), self.bias)
        return self.activation(outputs)


def blocks_of(images: tf.Tensor, size: int) -> tf.Tensor:
    """[N, height, width, C] -> [N, height / size, width / size, size * size * C], a block's rows one after the other.

    `tf.nn.space_to_depth`, which takes several times as long on a CPU.
    """
    _, height, width, channels = images.shape
    outer = tf.shape(images)[0], height // size, size, width // size
    row = size * channels  # what lies together: a row of a block
    if images.dtype == tf.uint8 and row % _WORD == 0:
        words = tf.bitcast(tf.reshape(images, (*outer, row // _WORD, _WORD)), tf.int32)
        blocks = tf.bitcast(tf.transpose(words, (0, 1, 3, 2, 4)), tf.uint8)
    else:
        blocks = tf.transpose(tf.reshape(images, (*outer, row)), (0, 1, 3, 2, 4))
    return tf.reshape(blocks, (outer[0], outer[1], outer[3], size * row))


def kernel_over_blocks(kernel: tf.Tensor, size: int) -> tf.Tensor:
    """[height, width, C, filters] -> [height / size, width / size, size * size * C, filters]."""
    height, width, channels, filters = kernel.shape
    kernel = tf.reshape(kernel, (height // size, size, width // size, size * channels, filters))
    kernel = tf.transpose(kernel, (0, 2, 1, 3, 4))
    return tf.reshape(kernel, (height // size, width // size, size * size * channels, filters))


def _fitted(images: tf.Tensor, kernel_size: tuple[int, int], stride: int, padding: str) -> tf.Tensor:
    """Padded with zeros, or cut, to the pixels that the convolution looks at: a whole number of blocks."""
    margins = [(0, 0)]
    for pixels, size in zip(images.shape[1:3], kernel_size, strict=True):
        outputs = -(-pixels // stride) if padding == "same" else (pixels - size) // stride + 1
        missing = (outputs - 1) * stride + size - pixels
        before = max(missing, 0) // 2 if padding == "same" else 0  # as TensorFlow divides them
        margins.append((before, missing - before))
    (_, (top, bottom), (left, right)) = margins
    _, height, width, _ = images.shape
    images = images[:, : height + min(bottom, 0), : width + min(right, 0)]
    if max(top, bottom, left, right) > 0:
        images = tf.pad(images, [(0, 0), (top, max(bottom, 0)), (left, max(right, 0)), (0, 0)])
    return images
