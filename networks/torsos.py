"""Torsos: from an observation to the features that the recurrent core remembers.

A torso reaches the network as a factory, called as `torso(seed=...)`, so that every copy of the network builds its
own: in gin `RecurrentQNetwork.torso = @networks.atari_torso`, in Python `torso=networks.atari_torso`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
import tensorflow as tf

from networks.initialisers import fan_in_normal, split_seed

# A torso in a mixed policy computes in the narrow type and keeps its variables in float32.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
_KINDS = {tf.keras.layers.Conv2D: "conv", tf.keras.layers.Dense: "linear"}


class Centre(tf.keras.layers.Layer):
    """Subtracts a mean from inputs [N, ...], one for each of their elements; 0 until it is set."""

    def build(self, input_shape: tf.TensorShape) -> None:
        self.mean = self.add_weight(name="mean", shape=input_shape[1:], initializer="zeros", trainable=False)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs - self.mean


class Torso(tf.keras.layers.Layer):
    """Layers one after the other, from observations [N, ...] to features float32 [N, D].

    Pixels (uint8) are divided by 255; booleans, other integers and floats are taken as they are. With `compute_dtype`
    "bfloat16" it computes in that, with float32 variables.

    Attributes:
      is_centred: whether the means of inputs are to be set before the first update, see `centre`.
    """

    def __init__(self, compute_dtype: str = "float32", name: str | None = None):
        if compute_dtype not in _POLICIES:
            raise ValueError(f"compute_dtype = {compute_dtype!r}: expected 'float32' or 'bfloat16'")
        super().__init__(dtype=_POLICIES[compute_dtype], name=name)
        self._stages: list[tf.keras.layers.Layer] = []
        self._centres: list[Centre] = []  # one for each of `layer_names`, or none
        self.is_centred = False

    def centre(self) -> None:
        """Each layer will see its inputs less their mean, see `activations`; to be called before there are variables.

        Adam moves all weights of a unit by about as much. Where inputs are never negative, as behind a relu, its first
        steps therefore move the unit's sum in all states at once, and half of the units never put out anything again.
        """
        self.is_centred = True
        self._centres = [Centre(dtype=self.dtype_policy) for _ in self.layer_names]

    def _append(self, layer: type[tf.keras.layers.Layer], *sizes: int, **options: Any) -> None:
        """A layer with weights; relu follows it."""
        name = f"{_KINDS[layer]}_{len(self._stages)}"
        self._stages.append(layer(*sizes, dtype=self.dtype_policy, name=name, **options))

    @property
    def layer_names(self) -> list[str]:
        """Names of the layers with weights, first to last."""
        return [stage.name for stage in self._stages if type(stage) in _KINDS]

    def call(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.activations(observation)[-1], tf.float32)

    def activations(self, observation: tf.Tensor, setting: bool = False) -> list[tf.Tensor]:
        """What each layer puts out, behind its relu: [N, ..., units] for each of `layer_names`.

        If `setting`, each takes the mean of its inputs over these observations first; see `centre`. Eager.
        """
        features = tf.cast(observation, self.compute_dtype)
        centres = iter(self._centres)
        outputs = []
        divide = observation.dtype == tf.uint8
        if divide and self._centres:
            features = features / 255.0
            divide = False
        for stage in self._stages:
            if type(stage) not in _KINDS:
                features = stage(features)
                continue
            if centre := next(centres, None):
                if setting:
                    centre.mean.assign(tf.reduce_mean(tf.cast(features, tf.float32), axis=0))
                features = centre(features)
            features = tf.nn.relu(_apply_to_pixels(stage, features) if divide else stage(features))
            divide = False
            outputs.append(features)
        return outputs


def _check_sizes(name: str, sizes: Any, example: Any) -> None:
    """Raises ValueError for what is no size of layers, or no tuple of them where the example is one."""
    given = sizes if isinstance(example, tuple) else (sizes,)
    is_tuple = isinstance(given, tuple | list) and len(given) > 0
    if not (is_tuple and all(type(size) is int and size > 0 for size in given)):
        what = "a tuple of whole numbers" if isinstance(example, tuple) else "a whole number"
        raise ValueError(
            f"{name} = {sizes!r}: expected {what} of at least 1. Write for example: {name} = {example}"
        )


def _apply_to_pixels(layer: tf.keras.layers.Layer, pixels: tf.Tensor) -> tf.Tensor:
    """The layer's sums of pixels divided by 255.

    Its kernel is divided in their place: it is smaller, and numbers from 0 to 255 are exact in bfloat16.
    """
    if not layer.built:
        layer.build(pixels.shape)
    kernel = layer.kernel / 255.0
    sums = tf.matmul(pixels, kernel) if len(kernel.shape) == 2 else layer.convolution_op(pixels, kernel)
    return tf.nn.bias_add(sums, layer.bias)


class PartsTorso(Torso):
    """A torso for each part of an observation, arrays [N, ...] by name; their features follow one another."""

    def __init__(self, torsos: Mapping[str, Torso]):
        super().__init__(name="parts_torso")
        self._of_parts = dict(torsos)

    def centre(self) -> None:
        self.is_centred = True
        for torso in self._of_parts.values():
            torso.centre()

    @property
    def layer_names(self) -> list[str]:
        of_parts = self._of_parts.items()
        return [f"{part}/{layer}" for part, torso in of_parts for layer in torso.layer_names]

    def call(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.concat([torso(observation[part]) for part, torso in self._of_parts.items()], axis=-1)

    def activations(self, observation: Mapping[str, tf.Tensor], setting: bool = False) -> list[tf.Tensor]:
        of_parts = self._of_parts.items()
        return [
            output for part, torso in of_parts for output in torso.activations(observation[part], setting)
        ]


@gin.configurable(module="networks")
class ConvTorso(Torso):
    """For images [height, width, channels]: convolutions, a linear layer, relu after each.

    Args:
      channels: of each convolution.
      kernel_sizes: of each convolution.
      strides: of each convolution.
      units: of the linear layer: D.
      padding: of the convolutions, "same" or "valid".
      compute_dtype: "float32" or "bfloat16", see `Torso`.
      seed: of the initial weights; None for a random one.
      name: of the layer.

    Raises:
      ValueError: sizes that are no whole numbers of at least 1, or lengths that differ; when built, observations that
        are no images, or images too small for "valid".
    """

    def __init__(
        self,
        channels: Sequence[int],
        kernel_sizes: Sequence[int],
        strides: Sequence[int],
        units: int,
        padding: str = "same",
        compute_dtype: str = "float32",
        seed: int | None = None,
        name: str = "conv_torso",
    ):
        super().__init__(compute_dtype, name)
        _check_sizes("ConvTorso.channels", channels, example=(16, 32))
        _check_sizes("ConvTorso.kernel_sizes", kernel_sizes, example=(8, 4))
        _check_sizes("ConvTorso.strides", strides, example=(4, 2))
        _check_sizes("ConvTorso.units", units, example=256)
        if not len(channels) == len(kernel_sizes) == len(strides):
            words = "channels, kernel_sizes and strides need one number per convolution each"
            raise ValueError(f"{words}, got {channels}, {kernel_sizes} and {strides}")
        *conv_seeds, dense_seed = split_seed(seed, len(channels) + 1)
        for *sizes, conv_seed in zip(channels, kernel_sizes, strides, conv_seeds, strict=True):
            initialiser = fan_in_normal(conv_seed)
            self._append(tf.keras.layers.Conv2D, *sizes, padding=padding, kernel_initializer=initialiser)
        self._stages.append(tf.keras.layers.Flatten(dtype=self.dtype_policy))
        self._append(tf.keras.layers.Dense, units, kernel_initializer=fan_in_normal(dense_seed))

    def build(self, input_shape: tf.TensorShape) -> None:
        if len(input_shape) != 4:
            raise ValueError(
                f"{self.name} takes images [height, width, channels], got observations of shape "
                f"{tuple(input_shape)[1:]}. For those take networks.MlpTorso, or leave RecurrentQNetwork.torso out"
            )
        super().build(input_shape)


@gin.configurable(module="networks")
class MlpTorso(Torso):
    """Linear layers with relu after each, for observations of any shape; they are flattened first.

    Args:
      units: one number per layer; the last is D.
      compute_dtype: "float32" or "bfloat16", see `Torso`.
      seed: of the initial weights; None for a random one.

    Raises:
      ValueError: no tuple of whole numbers of at least 1.
    """

    def __init__(
        self,
        units: Sequence[int] = (128, 128),
        compute_dtype: str = "float32",
        seed: int | None = None,
    ):
        super().__init__(compute_dtype, "mlp_torso")
        _check_sizes("MlpTorso.units", units, example=(128, 128))
        self._stages.append(tf.keras.layers.Flatten(dtype=self.dtype_policy))
        for size, layer_seed in zip(units, split_seed(seed, len(units)), strict=True):
            self._append(tf.keras.layers.Dense, size, kernel_initializer=fan_in_normal(layer_seed))


@gin.configurable(module="networks")
def atari_torso(seed: int | None = None, **options: Any) -> ConvTorso:
    """The paper's torso (Table 1), for raw frames uint8 [210, 160, 3]; other sizes: `ConvTorso`."""
    convolutions = (32, 64, 128, 128), (7, 5, 5, 3), (4, 2, 2, 1)  # channels, kernel sizes, strides
    return ConvTorso(*convolutions, units=512, seed=seed, name="atari_torso", **options)


@gin.configurable(module="networks")
def dqn_torso(seed: int | None = None, **options: Any) -> ConvTorso:
    """The convolutions of the first DQN (Mnih et al. 2013), for frames resized to about uint8 [84, 84, stack]."""
    convolutions = (16, 32), (8, 4), (4, 2)
    return ConvTorso(*convolutions, units=256, padding="valid", seed=seed, name="dqn_torso", **options)


@gin.configurable(module="networks")
def small_torso(seed: int | None = None, **options: Any) -> ConvTorso:
    """One convolution and 128 units, for images as small as MinAtar's bool [10, 10, C]."""
    return ConvTorso((16,), (3,), (1,), units=128, seed=seed, name="small_torso", **options)


def choose_torso(observation_spec: tf.TensorSpec) -> Callable[..., Torso]:
    """The torso that fits observations: `MlpTorso` unless they are images [height, width, channels].

    For those it is, by their shorter side, `atari_torso` from 128 pixels, `dqn_torso` from 42, or `small_torso`.
    """
    shape = observation_spec.shape
    if shape.rank != 3:
        return MlpTorso
    side = min(shape[0], shape[1])
    if side >= 128:
        return atari_torso
    return dqn_torso if side >= 42 else small_torso
