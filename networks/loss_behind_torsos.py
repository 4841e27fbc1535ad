"""A loss of two networks on the same sequences, where XLA compiles what follows their torsos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from networks.recurrent_core import State

MOST_COMPILED_UNITS = 128  # of the core; larger products are quicker with oneDNN (benchmarks/learner_step.py)


class Inputs(NamedTuple):
    """What the networks see of B sequences of L rows."""

    observation: Any  # [B, L, ...]
    previous_action: tf.Tensor  # int32 [B, L]
    previous_reward: tf.Tensor  # float32 [B, L]
    step_type: tf.Tensor  # int32 [B, L]
    core_state: State  # each [B, U], before the first row


class Features(NamedTuple):
    """What the torsos make of observations, float32 [B, rows, D]; of networks without one, the observations."""

    burn_in: Any  # the online network's
    online: Any  # the online network's behind the burn-in
    target: Any  # the target network's, of all rows


class LossBehindTorsos:
    """A loss of an online and a target network that see the same sequences.

    On CPUs, XLA is slow at convolutions and quick at the many small operations behind them. So torsos run first, once
    for each row, and what follows, its gradients included, is one function that XLA can compile.

    Args:
      online, target: two `RecurrentQNetwork`, or two `AnyNetwork`, all of which counts as behind the torso.
      loss: called as loss(online_q, target_q, *arguments) with the outputs [B, rows, H, A], or [B, rows, H, A, K], of
        the rows behind the burn-in; returns a named tuple with the field `loss`, float32 [].
      burn_in: rows that only warm up the state; no gradient passes through them.
      online_rows: how many of the first rows the online network sees; the target network sees all L.
      compiled: let XLA compile what is behind the torsos; an attribute, too.
    """

    def __init__(
        self, online: Any, target: Any, loss: Callable, burn_in: int, online_rows: int, compiled: bool = False
    ):
        self._online = online
        self._target = target
        self._loss = loss
        self._burn_in = slice(burn_in)
        self._training = slice(burn_in, online_rows)
        self.compiled = compiled
        self._behind_torsos = compile_function(self._gradients, compiled)

    def __call__(self, inputs: Inputs, *arguments: Any) -> Any:
        """What `loss` returns; `arguments` are nests of tensors. Not compiled."""
        return self._compute(self.features(inputs.observation), inputs, arguments)

    def features(self, observation: Any) -> Features:
        """What the torsos make of observations [B, L, ...]."""
        burn_in = _cut(observation, self._burn_in)
        training = _cut(observation, self._training)
        if not self._online.has_torso:
            return Features(burn_in, training, observation)
        online = self._online.features(training, training=True)
        burnt_in = self._online.features(burn_in) if self._burn_in.stop else ()
        return Features(burnt_in, online, self._target.features(observation))

    def gradients(
        self, features: Features, inputs: Inputs, *arguments: Any
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        """What `loss` returns, and its gradients.

        Returns:
          the loss; its gradient in the online torso's features, a list of one, empty if the torso does not learn; those
          in the online network's `variables_behind_torso`.
        """
        # What is compiled takes no arguments that it does not use: they would be copied.
        return self._behind_torsos(features, inputs._replace(observation=()), arguments)

    def compile_ahead(self, inputs: Inputs, *arguments: Any) -> None:
        """Compiles what `gradients` needs for inputs and arguments of these shapes."""
        # In a graph, as in the update: what an eager call compiles serves eager calls only.
        features = self.features(inputs.observation)
        tf.function(lambda: self.gradients(features, inputs, *arguments)[0], autograph=False)()

    def _gradients(
        self, features: Features, inputs: Inputs, arguments: tuple
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        watched = [features.online] if self._online.torso_variables else []
        with tf.GradientTape() as tape:
            tape.watch(watched)
            result = self._compute(features, inputs, arguments)
        return result, *tape.gradient(result.loss, [watched, self._online.variables_behind_torso])

    def _compute(self, features: Features, inputs: Inputs, arguments: tuple) -> Any:
        """The loss of both networks' outputs behind the burn-in, of which only the online network's state is kept."""
        burn_in = self._burn_in
        state = inputs.core_state
        target_q, _ = _unroll(self._target, features.target, inputs, slice(None), state)
        if burn_in.stop:
            _, state = _unroll(self._online, features.burn_in, inputs, burn_in, state)
            state = tf.nest.map_structure(tf.stop_gradient, state)
        online_q, _ = _unroll(self._online, features.online, inputs, self._training, state)
        return self._loss(online_q, target_q[:, burn_in.stop :], *arguments)


def choose_compiled(
    network: Any, jit_compile: bool | None, strategy: tf.distribute.Strategy
) -> Literal["update", "behind_torso", "nothing"]:
    """Chooses which part of an update of this network XLA compiles.

    Args:
      network: a `RecurrentQNetwork` or an `AnyNetwork`.
      jit_compile: True for all of it, False for nothing. None for what is quickest: all of it on a GPU; on a CPU what
        is behind the torso, if the core is small; nothing of an `AnyNetwork`, which may hold what XLA cannot compile,
        and nothing with replicas.
      strategy: with which the network learns.

    Raises:
      ValueError: jit_compile with a strategy that mirrors CPUs.
    """
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    if jit_compile and mirrored and any("CPU" in device for device in strategy.extended.worker_devices):
        raise ValueError(
            "RecurrentMultiHeadAgent.jit_compile does not go with train.strategy = 'mirrored' on CPUs: TensorFlow "
            "compiles no exchange between them. Leave out one of the two"
        )
    if jit_compile is not None:
        return "update" if jit_compile else "nothing"
    if not network.has_torso or strategy is not tf.distribute.get_strategy():
        return "nothing"
    devices = {device.device_type for device in tf.config.list_logical_devices()}
    if "GPU" in devices:
        return "update"
    small = network.state_spec[0].shape[0] <= MOST_COMPILED_UNITS
    return "behind_torso" if small and devices == {"CPU"} else "nothing"


def compile_function(function: Callable, by_xla: bool) -> Callable:
    """The function compiled by XLA, or as it is."""
    return tf.function(function, jit_compile=True, autograph=False) if by_xla else function


def _cut(observation: Any, rows: slice) -> Any:
    return tf.nest.map_structure(lambda part: part[:, rows], observation)


def _unroll(
    network: Any, features: Any, inputs: Inputs, rows: slice, state: State
) -> tuple[tf.Tensor, State]:
    """The network's outputs for these rows from their features, and the state behind them."""
    return network.run_behind_torso(
        features,
        inputs.previous_action[:, rows],
        inputs.previous_reward[:, rows],
        inputs.step_type[:, rows],
        state,
    )
