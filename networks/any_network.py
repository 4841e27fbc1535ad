"""Any recurrent TF-Agents network, in the form in which the agent calls ours."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_agents.networks import network
from tf_agents.specs import tensor_spec

from networks.recurrent_core import State
from networks.recurrent_q_network import RecurrentQNetwork


class AnyNetwork(tf.Module):
    """A recurrent `Network` of TF-Agents, such as `QRnnNetwork`, with the interface of `RecurrentQNetwork`.

    Its `input_tensor_spec` says what it sees: the observation, or a tuple of observation, previous action (-1 before
    the first) and previous reward (as the environment pays it). It has to reset its state before FIRST rows, as
    TF-Agents' own do. It is called with `training=False`. All of it counts as behind the torso, see
    `networks.loss_behind_torsos`.

    Args:
      q_network: not yet built or built; copied for the target network.
      observation_spec: of one observation.
      num_actions: A.
      num_heads: H.
      outputs_per_action: K, see `Scaling.outputs_per_action`.

    Raises:
      TypeError: it is no `Network`.
      ValueError: it has no state or sees something else.
    """

    has_torso = False
    heads = None
    reward_input = None
    torso_is_centred = False
    torso_layers: tuple[str, ...] = ()

    def __init__(
        self,
        q_network: network.Network,
        observation_spec: Any,
        num_actions: int,
        num_heads: int,
        outputs_per_action: int = 1,
    ):
        super().__init__(name="any_network")
        if not isinstance(q_network, network.Network):
            raise TypeError(f"q_network must be a tf_agents.networks.Network; got {q_network!r}")
        if not tf.nest.flatten(q_network.state_spec):
            words = "has no state: this agent takes recurrent networks, such as QRnnNetwork"
            raise ValueError(f"q_network {q_network.name} {words}")
        sees = q_network.input_tensor_spec
        # Whether it sees the previous action and reward, too.
        self._sees_all = isinstance(sees, tuple) and len(sees) == 3 and _match(sees[0], observation_spec)
        if not self._sees_all and sees is not None and not _match(sees, observation_spec):
            raise ValueError(
                f"q_network {q_network.name} sees {sees}; this agent has the observation, {observation_spec}, or the "
                "tuple (observation, previous action, previous reward)"
            )
        self._network = q_network
        self._observation_spec = observation_spec
        self.num_actions = num_actions
        self.num_heads = num_heads
        self.outputs_per_action = outputs_per_action
        self.state_spec = tuple(tf.nest.flatten(q_network.state_spec))
        self._shape = (num_heads, num_actions, outputs_per_action)[: 3 if outputs_per_action > 1 else 2]

    @property
    def variables(self) -> list[tf.Variable]:
        return list(self._network.variables)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        return list(self._network.trainable_variables)

    @property
    def torso_variables(self) -> list[tf.Variable]:
        return []

    @property
    def variables_behind_torso(self) -> list[tf.Variable]:
        return self.trainable_variables

    def create_variables(self) -> None:
        """Makes the variables, by a call on zeros. Raises ValueError as `run_behind_torso` does."""
        observation = tensor_spec.zero_spec_nest(self._observation_spec, outer_dims=(1, 1))
        outer = tf.zeros((1, 1), tf.int32)
        state = tuple(tf.zeros((1, *spec.shape), spec.dtype) for spec in self.state_spec)
        self.run_behind_torso(observation, outer, tf.zeros((1, 1)), outer, state)

    def copy(self, name: str) -> AnyNetwork:
        """Builds one with weights of its own. Raises ValueError if it shares them."""
        copy = self._network.copy(name=name)
        copied = AnyNetwork(
            copy, self._observation_spec, self.num_actions, self.num_heads, self.outputs_per_action
        )
        copied.create_variables()
        if {v.ref() for v in self.variables} & {v.ref() for v in copied.variables}:
            raise ValueError(
                f"a copy of q_network {self._network.name}, for the target network, shares weights with it: have its "
                "layers made in its constructor, not handed to it once they are built"
            )
        return copied

    def __call__(
        self, inputs: tuple, step_type: tf.Tensor | None = None, network_state: State | tuple[()] = ()
    ) -> tuple[tf.Tensor, State]:
        """As `RecurrentQNetwork.call`."""
        observation, previous_action, previous_reward = inputs
        return self.run_behind_torso(observation, previous_action, previous_reward, step_type, network_state)

    def run_behind_torso(
        self,
        features: Any,
        action: tf.Tensor,
        reward: tf.Tensor,
        step_type: Any = None,
        network_state: Any = (),
    ) -> tuple[tf.Tensor, State]:
        """The network on observations [B, ...] or [B, T, ...]: [B, H, A] or [B, T, H, A], or [..., A, K].

        Raises:
          ValueError: its outputs for a row are not [H, A], or [H, A, K].
        """
        inputs = features
        if self._sees_all:
            _, action_spec, reward_spec = self._network.input_tensor_spec
            inputs = features, tf.cast(action, action_spec.dtype), tf.cast(reward, reward_spec.dtype)
        state = tf.nest.pack_sequence_as(self._network.state_spec, network_state) if network_state else ()
        outputs, state = self._network(inputs, step_type=step_type, network_state=state)
        found = tuple(outputs.shape[len(action.shape) :])
        if found not in (self._shape, self._shape[self.num_heads == 1 :]):
            needs = f"{[*self._shape]}: {self.num_heads} heads, {self.num_actions} actions"
            raise ValueError(
                f"q_network {self._network.name} puts out {[*found]} for a row, and the agent needs {needs}. A network "
                "without an axis of heads has one: write for example heads=Heads([(0.99, False)])"
            )
        values = tf.reshape(tf.cast(outputs, tf.float32), tf.concat([tf.shape(action), self._shape], axis=0))
        return values, tuple(tf.nest.flatten(state))


def build_networks(
    q_network: network.Network,
    observation_spec: Any,
    num_actions: int,
    num_heads: int,
    outputs_per_action: int,
    rewrites_outputs: bool,
) -> tuple[Any, Any]:
    """The online and the target network as an agent calls them, with equal shapes and weights of their own.

    Ours are used as they are, any other as `AnyNetwork`; arguments as there.

    Args:
      rewrites_outputs: whether the scaling calls `heads.rescale_outputs` of them.

    Raises:
      TypeError, ValueError: as `AnyNetwork`; a `RecurrentQNetwork` of another number of heads, actions or outputs; one
        without such heads.
    """
    online: Any = q_network
    if not isinstance(q_network, RecurrentQNetwork):
        online = AnyNetwork(q_network, observation_spec, num_actions, num_heads, outputs_per_action)
    elif not _match(sees := q_network.input_tensor_spec[0], observation_spec):
        raise ValueError(f"q_network sees observations {sees}, and the environment has {observation_spec}")
    needs = {"num_actions": num_actions, "num_heads": num_heads, "outputs_per_action": outputs_per_action}
    if any(getattr(online, name) != number for name, number in needs.items()):
        has = ", ".join(f"{name}={getattr(online, name)}" for name in needs)
        asked = ", ".join(f"{name}={number}" for name, number in needs.items())
        raise ValueError(f"q_network has {has}, and the agent needs RecurrentQNetwork(..., {asked})")
    if rewrites_outputs and online.heads is None:
        raise ValueError(
            f"the scaling rewrites the network's last layers, which {q_network.name} does not offer: take "
            "networks.RecurrentQNetwork, or scaling='return'"
        )
    online.create_variables()
    target = online.copy(name="target_network")
    target.create_variables()
    return online, target


def _match(sees: Any, spec: Any) -> bool:
    try:
        tf.nest.assert_same_structure(sees, spec)
    except (TypeError, ValueError):
        return False
    pairs = zip(tf.nest.flatten(sees), tf.nest.flatten(spec), strict=True)
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
