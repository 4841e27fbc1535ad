"""The previous reward as a recurrent core sees it, free of the unit that rewards are counted in."""

from __future__ import annotations

import tensorflow as tf

_LARGEST = 1e4  # root mean squares


class RewardInput(tf.keras.layers.Layer):
    """sign(x) log(1 + abs(x)), x = r / sqrt(E[R^2]) within +-1e4; 0 as long as no reward but 0 has been observed.

    E[R^2] is over all steps that `observe` has been told of. Rewards times c > 0 give the same input, for powers of two
    bit for bit. The logarithm leaves a sparse reward near 1 (2.4 where one step in a hundred is paid), and the largest
    spike at 9.2.

    Attributes:
      statistics: float64 [2] variable: steps, and E[R^2].
    """

    def __init__(self) -> None:
        super().__init__(dtype="float32", trainable=False, name="reward_input")

    def build(self, input_shape: tf.TensorShape) -> None:
        # All replicas hold the same value: replicas only copy it from another variable.
        self.statistics = self.add_weight(
            name="statistics",
            shape=(2,),
            dtype="float64",
            initializer="zeros",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        super().build(input_shape)

    def call(self, rewards: tf.Tensor) -> tf.Tensor:
        """Rewards as the environment pays them, float32 [...], to the same shape."""
        scale = tf.cast(tf.sqrt(self.statistics[1]), rewards.dtype)
        relative = tf.clip_by_value(tf.math.divide_no_nan(rewards, scale), -_LARGEST, _LARGEST)
        return tf.sign(relative) * tf.math.log1p(tf.abs(relative))

    def observe(self, steps: float | tf.Tensor, mean_square: float | tf.Tensor) -> None:
        """Takes in E[R^2] of so many more steps. Outside of replicas."""
        before, old = tf.unstack(self.statistics)
        share = steps / tf.maximum(before + steps, 1.0)
        self.statistics.assign([before + steps, old + (mean_square - old) * share])
