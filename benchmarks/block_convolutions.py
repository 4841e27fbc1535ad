"""DQN's torso computed over blocks of pixels, against its strided convolutions: forward and backward of an update.

    .venv/bin/python -m benchmarks.block_convolutions

Whether it gains depends on the CPU, and on whether TensorFlow uses oneDNN there. What is quicker can be bound:
`dqn_torso.over_blocks`.
"""

from __future__ import annotations

from benchmarks.side_by_side import compare, one_core

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

from collections.abc import Callable  # noqa: E402

import tensorflow as tf  # noqa: E402

from networks import dqn_torso  # noqa: E402

ROWS, CALLS = 320, 5  # transitions in an update of configs/atari_small.gin


def step(over_blocks: bool) -> Callable[[], object]:
    """A graph of forward and backward over so many frames."""
    torso = dqn_torso(over_blocks=over_blocks, seed=0)
    frames = tf.cast(tf.random.uniform((ROWS, 84, 84, 2), maxval=256, dtype=tf.int32), tf.uint8)
    torso(frames)

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            features = torso(frames)
        return tape.gradient(features, torso.trainable_variables)

    return run


def main() -> None:
    what = f"DQN's torso over blocks, {ROWS} frames of 84 x 84 x 2"
    compare(what, "strided", step(True), step(False), unit="cpu-ms", calls=CALLS)


if __name__ == "__main__":
    main()
