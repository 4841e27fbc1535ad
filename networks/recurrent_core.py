"""An LSTM with resets inside a sequence; its input matrix product is taken out of the loop over time."""

from __future__ import annotations

from collections.abc import Callable

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
    """

    def __init__(self, units: int, seed: int | None = None):
        super().__init__(dtype="float32", name="recurrent_core")
        self.units = units
        self._seeds = split_seed(seed, 2)

    def build(self, input_shape: tf.TensorShape) -> None:
        features = input_shape[-1]
        fan_in = features + self.units

        def add_matrix(name: str, rows: int, seed: int | None) -> tf.Variable:
            initialiser = fan_in_normal(seed, scale=rows / fan_in)
            return self.add_weight(name=name, shape=(rows, 4 * self.units), initializer=initialiser)

        self.W = add_matrix("W", features, self._seeds[0])
        self.R = add_matrix("R", self.units, self._seeds[1])
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
            state = _step(self.R, state, (gates, first))[:2]
            return state[0], state
        hidden, cell = _unroll(gates, tf.convert_to_tensor(self.R), first, *state)
        return hidden, (hidden[-1], cell[-1])


def _step(recurrent: tf.Tensor, state: State, row: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
    """The state behind one row, and its gates after their sigmoid or tanh, [B, 4 U]."""
    gates, first = row
    # Not a multiplication by zero: an infinity left by the last episode would turn into NaN.
    hidden, cell = (tf.where(first[:, None], 0.0, part) for part in state)
    i, f, g, o = tf.split(gates + tf.matmul(hidden, recurrent), 4, axis=-1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    cell = f * cell + i * g
    return o * tf.tanh(cell), cell, tf.concat([i, f, g, o], axis=-1)


@tf.custom_gradient
def _unroll(
    gates: tf.Tensor, recurrent: tf.Tensor, first: tf.Tensor, hidden: tf.Tensor, cell: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor | None, ...]]]:
    """Hidden and cell states of all rows, [T, B, U] each, of `gates` [T, B, 4 U] and the state before them, [B, U].

    TensorFlow's own gradient of a loop keeps `recurrent` once per row and adds up its gradient row by row; here one
    matrix product makes it of all rows.
    """
    outside = tf.zeros_like(gates[0])
    hiddens, cells, activations = tf.scan(
        lambda state, row: _step(recurrent, state[:2], row), (gates, first), (hidden, cell, outside)
    )

    def gradient(of_hiddens: tf.Tensor, of_cells: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        before = tf.where(first[..., None], 0.0, tf.concat([hidden[None], hiddens[:-1]], axis=0))
        cells_before = tf.where(first[..., None], 0.0, tf.concat([cell[None], cells[:-1]], axis=0))

        def step_back(later: tuple[tf.Tensor, ...], row: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
            of_hidden, of_cell, activation, first, cell, cell_before = row
            i, f, g, o = tf.split(activation, 4, axis=-1)
            of_hidden = of_hidden + later[0]
            squashed = tf.tanh(cell)
            of_cell = of_cell + later[1] + of_hidden * o * (1.0 - tf.square(squashed))
            of_gates = tf.concat(
                [
                    of_cell * g * i * (1.0 - i),
                    of_cell * cell_before * f * (1.0 - f),
                    of_cell * i * (1.0 - tf.square(g)),
                    of_hidden * squashed * o * (1.0 - o),
                ],
                axis=-1,
            )
            earlier = tf.matmul(of_gates, recurrent, transpose_b=True), of_cell * f
            return *(tf.where(first[:, None], 0.0, part) for part in earlier), of_gates

        rows = of_hiddens, of_cells, activations, first, cells, cells_before
        zeros = tf.zeros_like(hidden), tf.zeros_like(cell), outside
        of_hidden, of_cell, of_gates = tf.scan(step_back, rows, zeros, reverse=True)
        of_recurrent = tf.einsum("tbu,tbg->ug", before, of_gates)
        return of_gates, of_recurrent, None, of_hidden[0], of_cell[0]

    return (hiddens, cells), gradient
