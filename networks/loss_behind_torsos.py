"""A loss of an online and a target network, with their torsos apart from what XLA compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from networks.recurrent_core import State

MOST_COMPILED_UNITS = 128  # of the core; larger products are quicker with oneDNN (benchmarks/learner_step.py)


class LossBehindTorsos:
    """A loss of two networks that see the same sequences [B, L].

    On CPUs, XLA is slow at convolutions and quick at the many small operations behind them. So torsos run first, and
    what follows, its gradients included, is one function that XLA can compile.

    Args:
      online, target: two `RecurrentQNetwork`, or two `AnyNetwork`, all of which counts as behind the torso.
      loss: called as loss(online, target, *arguments); a named tuple with the field `loss`, float32 []. Each network is
        (rows, state) -> outputs [B, rows, H, A] or [B, rows, H, A, K], and the state after them.
      burn_in: first rows, from which no gradient reaches the torso.
      rows: first rows, beyond which `loss` does not ask the online network.
      compiled: let XLA compile it; a core of more than `MOST_COMPILED_UNITS` is left as it is.

    Attributes:
      compiled: whether XLA does.
    """

    def __init__(
        self, online: Any, target: Any, loss: Callable, burn_in: int, rows: int, compiled: bool = False
    ):
        self._online, self._target, self._loss = online, target, loss
        self._burn_in, self._rows = burn_in, rows
        self.compiled = compiled and online.state_spec[0].shape[0] <= MOST_COMPILED_UNITS
        self._behind_torsos = self._gradients
        if self.compiled:
            self._behind_torsos = tf.function(self._gradients, jit_compile=True, autograph=False)

    def __call__(self, inputs: tuple, step_type: tf.Tensor, *arguments: Any) -> Any:
        """What `loss` returns, of inputs as the networks take them, [B, L, ...], and of `arguments`, its tensors."""
        observation, *columns = *inputs, step_type
        return self._of_features(self._features(observation), columns, arguments)

    def with_gradients(
        self, inputs: tuple, step_type: tf.Tensor, *arguments: Any
    ) -> tuple[Any, list[tuple[tf.Tensor, tf.Variable]]]:
        """What `loss` returns, and the gradient in each trainable variable of the online network; see `__call__`."""
        observation, *columns = *inputs, step_type
        of_torso = self._online.torso_variables
        with tf.GradientTape() as tape:
            features = self._features(observation)
        result, of_features, gradients = self._behind_torsos(features, columns, arguments)
        if of_torso:
            gradients = tape.gradient(features[0], of_torso, *of_features) + gradients
        return result, list(zip(gradients, of_torso + self._online.variables_behind_torso, strict=True))

    def _features(self, observation: Any) -> tuple[Any, Any]:
        """What the torsos make of sequences, float32 [B, rows, D]; of networks without one, the observations."""
        online, burn_in = self._online, self._burn_in
        if not online.has_torso:
            return observation, observation
        features = online.features(_cut(observation, slice(burn_in, self._rows)), training=True)
        if burn_in:  # its gradient is 0 without this, too, but costs a backward pass
            burnt_in = tf.stop_gradient(online.features(_cut(observation, slice(burn_in))))
            features = tf.concat([burnt_in, features], axis=1)
        return features, self._target.features(observation)

    def _gradients(
        self, features: tuple[Any, Any], columns: list[tf.Tensor], arguments: tuple
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        """The loss, and its gradients in the online torso's features, if it has a torso, and in what is behind it."""
        of_torso = list(features[:1]) if self._online.has_torso else []
        with tf.GradientTape() as tape:
            tape.watch(of_torso)
            result = self._of_features(features, columns, arguments)
        return result, *tape.gradient(result.loss, [of_torso, self._online.variables_behind_torso])

    def _of_features(self, features: tuple[Any, Any], columns: list[tf.Tensor], arguments: tuple) -> Any:
        def behind_torso(network: Any, of_torso: Any) -> Callable:
            def outputs(rows: slice, state: State) -> tuple[tf.Tensor, State]:
                return network.behind_torso(*_cut([of_torso, *columns], rows), state)

            return outputs

        networks = map(behind_torso, (self._online, self._target), features)
        return self._loss(*networks, *arguments)


def _cut(nest: Any, rows: slice) -> Any:
    """Rows of all parts [B, L, ...] of a nest."""
    return tf.nest.map_structure(lambda part: part[:, rows], nest)
