"""Trains as train.py does, with a torso that rounds like one in bfloat16, at the speed of float32.

    .venv/bin/python -m benchmarks.rounded_torso --config=quickstart --seed=0 --root_dir=runs/rounded-0

For CPUs without arithmetic in bfloat16, which emulate it at a twentieth of the speed: whether learning pays for the
narrow type can be seen there, too. Takes train.py's arguments. Weights, biases, features and their gradients are
rounded wherever the torso in bfloat16 holds them in it; products are summed in float32, as in hardware. A run
folder's command.txt names train.py, which would go on without rounding: go on with this command instead.
"""

from __future__ import annotations

import runpy

import agents  # noqa: F401  before TensorFlow, whose oneDNN it turns on
from agents.running.startup import quiet

quiet()

import tensorflow as tf  # noqa: E402

from agents.storage.run_folder import REPOSITORY  # noqa: E402
from networks.torsos import Torso  # noqa: E402


@tf.custom_gradient
def rounded(x: tf.Tensor) -> tf.Tensor:
    """To the nearest bfloat16, in float32; so is the gradient."""

    def narrow(y: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(y, tf.bfloat16), tf.float32)

    return narrow(x), narrow


def call(self: Torso, observation: tf.Tensor) -> tf.Tensor:
    """`Torso.call` with everything rounded."""
    features = rounded(tf.cast(observation, tf.float32))
    if observation.dtype == tf.uint8:
        features = rounded(features / 255.0)
    for stage in self._stages:
        if isinstance(stage, tf.keras.layers.Flatten):
            features = stage(features)
            continue
        if not stage.built:
            stage.build(features.shape)
        product = stage.convolution_op if isinstance(stage, tf.keras.layers.Conv2D) else tf.matmul
        sums = rounded(product(features, rounded(tf.convert_to_tensor(stage.kernel))))
        features = tf.nn.relu(rounded(sums + rounded(tf.convert_to_tensor(stage.bias))))
    return features


if __name__ == "__main__":
    Torso.call = call
    runpy.run_path(str(REPOSITORY / "train.py"), run_name="__main__")
