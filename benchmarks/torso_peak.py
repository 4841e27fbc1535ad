"""The torso of Atari, forward and backward, against the most that one core does: what each layer reaches of it.

    .venv/bin/python -m benchmarks.torso_peak

The peak is the better of a large matrix product and a large convolution, measured by turns with the layers. A layer's
operations are those of its product alone: forward, for its weights and, behind the first layer, for its input. Its time
is that of all that TensorFlow runs for it, with bias and relu. The whole torso is timed as one graph.

Both are measured: the paper's for raw frames, and that of `configs/atari_small.gin` for small ones.

A CPU without bfloat16 arithmetic emulates it, many times slower than float32: there few frames have to do.
"""

from __future__ import annotations

from benchmarks.side_by_side import Row, one_core, publish, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import statistics  # noqa: E402
from collections.abc import Callable  # noqa: E402

import tensorflow as tf  # noqa: E402

from benchmarks.workloads import ATARI_SMALL, PAPER, Work, native_bfloat16  # noqa: E402

CHANNELS, PIXELS = 256, 28  # of the convolution that stands for the peak


def peak(dtype: str, side: int, num_images: int) -> dict[str, tuple[Callable, float]]:
    """name -> function and its floating point operations."""
    square = tf.cast(tf.random.normal((side, side)), dtype)
    images = tf.cast(tf.random.normal((num_images, PIXELS, PIXELS, CHANNELS)), dtype)
    filters = tf.cast(tf.random.normal((3, 3, CHANNELS, CHANNELS)), dtype)
    product = tf.function(lambda: tf.matmul(square, square))
    convolution = tf.function(lambda: tf.nn.conv2d(images, filters, 1, "SAME"))
    return {
        "matrix product": (product, 2.0 * side**3),
        "convolution": (convolution, 2.0 * num_images * PIXELS**2 * 9 * CHANNELS**2),
    }


def backward(
    module: Callable, inputs: tf.Tensor, variables: list[tf.Variable], towards_input: bool
) -> Callable:
    """A graph of forward and backward through `module`."""

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            if towards_input:
                tape.watch(inputs)
            outputs = module(inputs)
        sources = [*variables, inputs] if towards_input else variables
        return tape.gradient(outputs, sources, output_gradients=tf.ones_like(outputs))

    return run


def layers(work: Work, dtype: str, num_frames: int) -> dict[str, tuple[Callable, float]]:
    """name -> function and its floating point operations; the whole torso last."""
    torso = work.torso(compute_dtype=dtype, seed=0)
    shape = num_frames, *work.observation
    frames = tf.cast(tf.random.uniform(shape, maxval=256, dtype=tf.int32), tf.uint8)
    torso(frames)
    found, total = {}, 0.0
    features = tf.cast(frames, dtype) / 255
    for index, layer in enumerate(torso._stages):
        outputs = layer(features)
        if layer.trainable_variables:
            kernel = layer.kernel
            positions = tf.size(outputs) / kernel.shape[-1]
            passes = 3 if index else 2
            operations = float(passes * 2 * tf.cast(positions, tf.float64) * int(tf.size(kernel)))
            total += operations
            found[layer.name] = (
                backward(layer, features, layer.trainable_variables, towards_input=index > 0),
                operations,
            )
        features = tf.nn.relu(outputs) if layer.trainable_variables else outputs
    found["whole torso"] = backward(torso, frames, torso.trainable_variables, towards_input=False), total
    return found


def main() -> None:
    emulated = not native_bfloat16()
    measure(PAPER, "float32", num_frames=96)
    measure(ATARI_SMALL, "float32", num_frames=480)
    few = {"side": 512, "num_images": 1, "note": "; this CPU has no bfloat16 arithmetic"} if emulated else {}
    measure(PAPER, "bfloat16", num_frames=2 if emulated else 96, **few)


def measure(
    work: Work, dtype: str, num_frames: int, side: int = 1536, num_images: int = 8, note: str = ""
) -> None:
    """Publishes a torso's row; `side`, `num_images` are of the peak's product and convolution."""
    ways = {**peak(dtype, side, num_images), **layers(work, dtype, num_frames)}
    measured = times(*(function for function, _ in ways.values()))
    rates = {
        name: [operations / cpu / 1e9 for cpu, _ in rounds]
        for (name, (_, operations)), rounds in zip(ways.items(), measured, strict=True)
    }
    peaks = [max(pair) for pair in zip(rates["matrix product"], rates["convolution"], strict=True)]
    parts = []
    for name in list(ways)[:-1]:
        share = statistics.median(a / b for a, b in zip(rates[name], peaks, strict=True))
        parts.append(f"{name} {statistics.median(rates[name]):.0f} ({share:.0%})")
    ratios = [a / b for a, b in zip(rates["whole torso"], peaks, strict=True)]
    publish(
        Row(
            f"torso, {work.name}, forward and backward, {dtype}",
            "peak of one core",
            "GFLOP/s",
            statistics.median(rates["whole torso"]),
            statistics.median(peaks),
            statistics.median(ratios),
            min(ratios),
            max(ratios),
            reach="at least 0.6",
            note=f"GFLOP/s (of the peak): {', '.join(parts)}{note}",
        )
    )


if __name__ == "__main__":
    main()
