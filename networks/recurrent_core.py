"""An LSTM with resets inside a sequence; its input matrix product is taken out of the loop over time."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from networks.initialisers import fan_in_normal, split_seed

State = tuple[tf.Tensor, tf.Tensor]


class RecurrentCore(tf.keras.layers.Layer):
    """LSTM (Hochreiter and Schmidhuber 1997), time-major, with resets where an episode begins.

        i, f, g, o = split(x_t W + h_{t-1} R + b)
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g);   h_t = sigmoid(o) tanh(c_t)

    Gates stand in the order of `tf.keras.layers.LSTM`, whose weights therefore fit. W and R start as one
    matrix on the concatenation of x and h would, b as zeros but for the forget gate's 1.

    Args:
      units: U.
      seed: of the initial weights; None for a random one.
      name: of the layer.
    """

    def __init__(self, units: int, seed: int | None = None, name: str = "recurrent_core"):
        super().__init__(dtype="float32", name=name)
        self.units = units
        self._seeds = split_seed(seed, 2)

    def build(self, input_shape: tf.TensorShape) -> None:
        features = input_shape[-1]
        fan_in = features + self.units

        def weights(name: str, rows: int, seed: int | None) -> tf.Variable:
            initialiser = fan_in_normal(seed, scale=rows / fan_in)
            return self.add_weight(name=name, shape=(rows, 4 * self.units), initializer=initialiser)

        self.W = weights("W", features, self._seeds[0])
        self.R = weights("R", self.units, self._seeds[1])
        forget_one = tf.constant_initializer(np.repeat((0.0, 1.0, 0.0, 0.0), self.units))
        self.b = self.add_weight(name="b", shape=(4 * self.units,), initializer=forget_one)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, first: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Runs over a sequence, or over the single step that acting needs.

        Args:
          inputs: float32 [T, B, D], or [B, D] for one step without a loop.
          first: bool [T, B] or [B]: the state is set to zeros before these rows.
          state: (h, c), each float32 [B, U], before the first row.

        Returns:
          h of every row, float32 [T, B, U] or [B, U], and the state after the last row.
        """
        gates = tf.tensordot(inputs, self.W, axes=1) + self.b
        if inputs.shape.rank == 2:
            state = self._step(state, (gates, first))
            return state[0], state
        hidden, cell = tf.scan(self._step, (gates, first), initializer=state)
        return hidden, (hidden[-1], cell[-1])

    def _step(self, state: State, row: tuple[tf.Tensor, tf.Tensor]) -> State:
        gates, first = row
        # Not a multiplication by zero: an infinity left by the last episode would turn into NaN.
        hidden, cell = (tf.where(first[:, None], 0.0, part) for part in state)
        i, f, g, o = tf.split(gates + tf.matmul(hidden, self.R), 4, axis=-1)
        cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(cell), cell
