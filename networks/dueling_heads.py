"""Many dueling value heads in one layer."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from networks.initialisers import fan_in_normal, split_seed


class DuelingHeads(tf.keras.layers.Layer):
    """H dueling heads (Wang et al. 2016) on one input: Q = V + A - mean_a A, a hidden layer each for V and A.

    The weights of all heads are packed. W1 and b1 hold the hidden layers of the H value streams, then those
    of the H advantage streams:

        W1 [2H, in, hidden], b1 [2H, hidden]; Wv [H, hidden, 1], bv [H, 1]; Wa [H, hidden, A], ba [H, A]

    Each head starts as if it were alone: with variances by its own fan-in, and with draws of its own.
    The gradient into the input is multiplied by 1/sqrt(H) (appendix, multi-head experiments).

    With K > 1 outputs per action, Q is one of K logits (Bellemare et al. 2017), dueling for each on its own (Hessel et
    al. 2018, Rainbow). Last layers have K columns instead of one, those of the first action first; they start
    at 0, so that every distribution starts uniform.

    Args:
      num_heads: H.
      num_actions: A.
      hidden: units of the one hidden layer of each stream.
      scale_gradient: False leaves the gradient into the input as it is.
      seed: of the initial weights; None for a random one.
      outputs_per_action: K.
    """

    def __init__(
        self,
        num_heads: int,
        num_actions: int,
        hidden: int = 256,
        scale_gradient: bool = True,
        seed: int | None = None,
        outputs_per_action: int = 1,
    ):
        super().__init__(dtype="float32", name="dueling_heads")
        self.num_heads = num_heads
        self.num_actions = num_actions
        self.hidden = hidden
        self.outputs_per_action = outputs_per_action
        self._gradient_scale = num_heads**-0.5 if scale_gradient else 1.0
        self._seeds = split_seed(seed, 3)

    def build(self, input_shape: tf.TensorShape) -> None:
        def add_layer(
            name: str, matrices: int, rows: int, columns: int, seed: int | None, zero: bool = False
        ) -> tuple[tf.Variable, tf.Variable]:
            # Keras counts the packed axis into the fan-in; the scale takes it out again.
            initialiser = "zeros" if zero else fan_in_normal(seed, scale=matrices)
            return (
                self.add_weight(name=f"W{name}", shape=(matrices, rows, columns), initializer=initialiser),
                self.add_weight(name=f"b{name}", shape=(matrices, columns), initializer="zeros"),
            )

        heads = self.num_heads
        outputs = self.outputs_per_action
        zero = outputs > 1
        self.W1, self.b1 = add_layer("1", 2 * heads, input_shape[-1], self.hidden, self._seeds[0])
        self.Wv, self.bv = add_layer("v", heads, self.hidden, outputs, self._seeds[1], zero)
        self.Wa, self.ba = add_layer(
            "a", heads, self.hidden, self.num_actions * outputs, self._seeds[2], zero
        )
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """float32 [..., in] -> Q-values float32 [..., H, A], or logits [..., H, A, K]."""
        shared = _scale_gradient(tf.reshape(inputs, (-1, inputs.shape[-1])), self._gradient_scale)
        # One product per head: a batched one costs two to four times as much in the backward pass on CPUs.
        streams = [
            tf.nn.relu(tf.matmul(shared, weights) + bias)
            for weights, bias in zip(tf.unstack(self.W1), tf.unstack(self.b1), strict=True)
        ]
        value = _last_layer(streams[: self.num_heads], self.Wv, self.bv)
        advantage = _last_layer(streams[self.num_heads :], self.Wa, self.ba)
        if self.outputs_per_action > 1:
            value = value[:, :, None]
            advantage = tf.reshape(advantage, (-1, self.num_heads, self.num_actions, self.outputs_per_action))
        q_values = value + advantage - tf.reduce_mean(advantage, axis=2, keepdims=True)
        return tf.reshape(q_values, tf.concat([tf.shape(inputs)[:-1], q_values.shape[1:]], axis=0))

    def rescale_outputs(self, ratio: tf.Tensor, shift: tf.Tensor) -> None:
        """Rewrites the last layers so that every output Q becomes ratio Q + shift, head by head.

        The value stream takes ratio and shift, float [H], the advantage stream only the ratio. Works in graphs. A ratio
        closer to 1 than float32 resolves, 6e-8, changes nothing: let small changes add up before calling.
        """
        ratio, shift = (tf.cast(number, self.Wv.dtype)[:, None] for number in (ratio, shift))
        self.Wv.assign(self.Wv * ratio[..., None])
        self.bv.assign(self.bv * ratio + shift)
        self.Wa.assign(self.Wa * ratio[..., None])
        self.ba.assign(self.ba * ratio)


def _last_layer(streams: list[tf.Tensor], weights: tf.Variable, biases: tf.Variable) -> tf.Tensor:
    """H streams [N, hidden] -> [N, H, outputs]."""
    products = [tf.matmul(x, matrix) for x, matrix in zip(streams, tf.unstack(weights), strict=True)]
    return tf.stack(products, axis=1) + biases


def _scale_gradient(inputs: tf.Tensor, scale: float) -> tf.Tensor:
    """The identity, bit for bit, with its gradient multiplied by `scale`."""

    @tf.custom_gradient
    def identity(tensor: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return tf.identity(tensor), lambda upstream: upstream * scale

    return identity(inputs)
