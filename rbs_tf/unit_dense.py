"""A last layer of values in units of the return, in Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from rbs_tf.return_scaling import float64_weight
from rbs_tf.tensor_moments import real_float64
from rbs_tf.units import EXPONENT, HALF, check_outputs, needs_powers_of_two, ratio_and_unit

_WRONG_UNIT = "UnitDense: unit must be finite numbers of at least 0; got"


@tf.keras.utils.register_keras_serializable(package="rbs_tf")
class UnitDense(tf.keras.layers.Dense):
    """A `Dense` layer whose outputs are values: unit (inputs kernel + bias), head by head.

        scaling = rbs_tf.ReturnScaling(floor_in_units=True)
        last = rbs_tf.UnitDense(num_actions)    # of the network, and another one of its target network
        for layer in (last, target_last):       # before every update
            layer.to_unit(scaling.unit)

    The kernel learns numbers of about 1 for rewards of any size. `to_unit` changes the unit and, after the first one,
    the weights with it, so that no value changes. All values are 0 before the first unit. Bring the online and the
    target network to the same unit before every update: copies between them, whole or soft, are right then. Shared
    weights, weight normalisation and weight decay on this layer are not supported.

    Args:
      units: the number of outputs, equally many for each head; the first head's come first.
      heads: H, the number of value functions, each with its unit.
      **kwargs: of `tf.keras.layers.Dense`, but for an activation.

    Attributes:
      unit: float64 [H] variable, not trained, saved with the weights; 0 at first.

    Raises:
      ValueError: units that are not as many of each head, an activation.
    """

    def __init__(self, units: int, heads: int = 1, **kwargs: Any):
        if kwargs.get("activation") not in (None, "linear"):
            raise ValueError("UnitDense puts out values, without an activation")
        super().__init__(units, **kwargs)
        check_outputs(units, heads)
        self.heads = heads
        self.unit = float64_weight(self, "unit", (heads,), 0.0)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., in] -> values float32 [..., units], float64 in a layer of float64."""
        outputs = super().call(inputs)
        outputs = tf.cast(outputs, tf.float64 if outputs.dtype == tf.float64 else tf.float32)
        return outputs * tf.cast(tf.repeat(self.unit, self.units // self.heads), outputs.dtype)

    def to_unit(self, unit: Any) -> None:
        """Goes to another unit, [H], without changing a value; see `rbs_tf.unit_ratio`. Eagerly or in a graph.

        Weights of bfloat16 are multiplied by powers of two only, which rounds none of them. Their unit becomes the
        power of two between 0.67 and 1.33 times what is asked for. If it was no power of two, as where weights and unit
        were loaded from a layer of float32, it becomes a power of two times what it was, between 0.5 and 2 times what
        is asked for. Bring copies in float32 to `unit` of this layer.

        Raises:
          ValueError: a kernel of float16; a layer without weights; complex units.
          tf.errors.InvalidArgumentError: a unit that is negative, NaN or infinite, which XLA leaves out instead.
        """
        if not self.built:
            raise ValueError("UnitDense has no weights yet: call the network once, or build it")
        wanted = real_float64("unit", unit)
        fits = tf.reduce_all((wanted >= 0.0) & (wanted < np.inf))
        with tf.control_dependencies([tf.debugging.Assert(fits, [_WRONG_UNIT, wanted])]):
            wanted = tf.reshape(wanted, [self.heads])
        powers = needs_powers_of_two(tf.as_dtype(self.kernel.dtype).name)
        wanted = tf.cast(_power_of_two(wanted), tf.float64) if powers else wanted
        ratio, after = compute_ratio(self.unit, wanted, powers)
        for weight in (self.kernel, self.bias) if self.use_bias else (self.kernel,):
            weight.assign(weight * tf.cast(tf.repeat(ratio, self.units // self.heads), weight.dtype))
        self.unit.assign(after)

    # Keras 3's Dense saves only its kernel and its bias.
    def save_own_variables(self, store: Any) -> None:
        """Saves all three."""
        tf.keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads all three."""
        tf.keras.layers.Layer.load_own_variables(self, store)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {"heads": self.heads}


def compute_ratio(old: Any, new: Any, powers_of_two: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """`rbs_tf.unit_ratio` of tensors, float64 [H] each, unchecked: float32 [H] and float64 [H]."""

    def to_single(ratio: tf.Tensor) -> tf.Tensor:
        return _power_of_two(ratio) if powers_of_two else tf.cast(ratio, tf.float32)

    old, new = tf.convert_to_tensor(old), tf.convert_to_tensor(new)
    return ratio_and_unit(old, new, tf.where, to_single, lambda x: tf.cast(x, tf.float64))


def _power_of_two(values: tf.Tensor) -> tf.Tensor:
    """float32, rounded as `rbs_tf.units.HALF` says."""
    bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32) + HALF
    return tf.bitcast(tf.bitwise.bitwise_and(bits, EXPONENT), tf.float32)
