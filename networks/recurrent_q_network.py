"""The paper's value function: torso, LSTM, linear layer, many dueling heads (appendix and Table 1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories.time_step import StepType

from networks.dueling_heads import DuelingHeads
from networks.initialisers import fan_in_normal, split_seed
from networks.recurrent_core import RecurrentCore, State
from networks.reward_input import RewardInput
from networks.torsos import PartsTorso, Torso, choose_torso


class RecurrentQNetwork(network.Network):
    """Q-values of H heads and A actions from observations, previous actions and previous rewards.

    The core sees the torso's features, the previous action one-hot (-1, before the first action, as zeros) and the
    previous reward. Heads share everything up to and including the linear layer after the core. An observation that its
    spec bounds to uint8 in [0, 1] holds flags, not pixels: the torso gets booleans.

    Args:
      input_tensor_spec: tuple of three specs: observation (or those of arrays by name), previous action (int32
        scalar), previous reward (float32 scalar).
      num_actions: A.
      num_heads: H.
      torso: factory of a layer from observations [N, ...] to float32 [N, D], see `networks.torsos`. None chooses by the
        observation's shape, see `choose_torso`; for arrays by name a torso for each, see `PartsTorso`.
      normalise_torso: "centre": each layer of the torso sees its inputs less their mean over the first observations,
        which keeps its units alive.
      lstm_units: of the core: U.
      post_lstm_units: of the linear layer (relu) between core and heads.
      head_hidden: hidden units of each head's value and advantage stream.
      scale_gradient: multiply the gradient into the shared part by 1/sqrt(H).
      reward_input: "clip": the core sees the previous reward clipped to [-1, 1]; "rms": relative to the root mean
        square of all rewards so far, see `networks.RewardInput`.
      seed: of all initial weights; None for a random one.
      outputs_per_action: K; more than 1 for the logits of a categorical scaling, `Scaling.outputs_per_action`.
      name: of the network.

    Attributes:
      heads: the `DuelingHeads`.
      reward_input: the `RewardInput`, whose statistics the trainer has to keep; None under "clip".

    Raises:
      ValueError: an argument that does not fit.
      TypeError: a torso that is a layer already.
    """

    has_torso = True
    _network_output_spec: Any  # of the class above; None until there are variables

    def __init__(
        self,
        input_tensor_spec: tuple,
        num_actions: int,
        num_heads: int,
        torso: Callable[..., tf.keras.layers.Layer] | None = None,
        normalise_torso: str = "none",
        lstm_units: int = 512,
        post_lstm_units: int = 256,
        head_hidden: int = 256,
        scale_gradient: bool = True,
        reward_input: str = "clip",
        seed: int | None = None,
        outputs_per_action: int = 1,
        name: str = "RecurrentQNetwork",
    ):
        if not isinstance(input_tensor_spec, tuple) or len(input_tensor_spec) != 3:
            raise ValueError(
                "input_tensor_spec must be a tuple of specs (observation, previous action, previous reward), got "
                f"{input_tensor_spec}"
            )
        if isinstance(torso, tf.keras.layers.Layer):
            raise TypeError(
                f"torso must be a factory of a layer, got the layer {torso.name!r}, which the target network would "
                "share. Write torso=networks.atari_torso, or torso=lambda seed: your_layer(...)"
            )
        if normalise_torso not in ("none", "centre"):
            raise ValueError(f"normalise_torso = {normalise_torso!r}: expected 'none' or 'centre'")
        if reward_input not in ("clip", "rms"):
            raise ValueError(f"reward_input = {reward_input!r}: expected 'clip' or 'rms'")
        state = tf.TensorSpec((lstm_units,), tf.float32)
        super().__init__(input_tensor_spec, state_spec=(state, state), name=name)
        self.num_actions = num_actions
        self.num_heads = num_heads
        self.outputs_per_action = outputs_per_action
        torso_seed, core_seed, linear_seed, heads_seed = split_seed(seed, 4)
        observation = input_tensor_spec[0]
        if torso is None and isinstance(observation, Mapping):
            names = sorted(observation)
            seeds = dict(zip(names, split_seed(torso_seed, len(names)), strict=True))
            self._torso = PartsTorso(
                {part: choose_torso(observation[part])(seed=seeds[part]) for part in names}
            )
        else:
            self._torso = (torso or choose_torso(observation))(seed=torso_seed)
        kind = type(self._torso).__name__
        if isinstance(observation, Mapping) and isinstance(self._torso, Torso) and kind != "PartsTorso":
            raise ValueError(
                f"RecurrentQNetwork.torso is a {kind}, which takes one array, and observations have the parts "
                f"{', '.join(sorted(observation))}. Leave it out: each gets its own"
            )
        if normalise_torso == "centre":
            if not isinstance(self._torso, Torso):
                raise ValueError(
                    f"RecurrentQNetwork.normalise_torso = {normalise_torso!r} is for the torsos of networks.torsos, "
                    f"and this one is a {kind}. Write RecurrentQNetwork.normalise_torso = 'none'"
                )
            self._torso.centre()
        self._torso_asks_for_training = "training" in inspect.signature(self._torso.call).parameters
        self.reward_input = RewardInput() if reward_input == "rms" else None
        self._core = RecurrentCore(lstm_units, core_seed)
        initialiser = fan_in_normal(linear_seed)
        self._linear = tf.keras.layers.Dense(
            post_lstm_units, "relu", kernel_initializer=initialiser, dtype="float32", name="linear"
        )
        self.heads = DuelingHeads(
            num_heads, num_actions, head_hidden, scale_gradient, heads_seed, outputs_per_action
        )

    def create_variables(self, input_tensor_spec: Any = None, **kwargs: Any) -> tf.TensorSpec:
        """Makes the variables; returns the Q-values' spec, float32 [H, A] or [H, A, K].

        By a call on zeros: TF-Agents would draw random pixels, and under NumPy 2 their bound, 255 + 1, is 0.
        """
        if self._network_output_spec is None:
            zeros = tensor_spec.zero_spec_nest(self.input_tensor_spec, outer_dims=(1,))
            values, _ = self(zeros, network_state=self.get_initial_state(1), **kwargs)
            self._network_output_spec = tf.TensorSpec(values.shape[1:], values.dtype)
        return self._network_output_spec

    @property
    def torso_variables(self) -> list[tf.Variable]:
        """Trainable variables of the torso."""
        return self._torso.trainable_variables

    @property
    def variables_behind_torso(self) -> list[tf.Variable]:
        """Trainable variables of everything else."""
        return [each for part in (self._core, self._linear, self.heads) for each in part.trainable_variables]

    def call(
        self,
        inputs: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        step_type: tf.Tensor | None = None,
        network_state: State | tuple[()] = (),
        training: bool = False,
    ) -> tuple[tf.Tensor, State]:
        """One step of B environments, or T steps of B sequences.

        Args:
          inputs: observation [B, ...] or [B, T, ...]; previous action int32 and previous reward float32, each
            [B] or [B, T].
          step_type: int32 [B] or [B, T]; before a FIRST row the state is set to zeros. None for no such row.
          network_state: (h, c), each float32 [B, U], before the first row; () for zeros.
          training: for torsos that ask for it.

        Returns:
          Q-values float32 [B, H, A] or [B, T, H, A], and the state after the last row. With K > 1 outputs per
          action, instead of each value K logits: [..., H, A, K].
        """
        observation, previous_action, previous_reward = inputs
        features = self.features(observation, training)
        return self.run_behind_torso(features, previous_action, previous_reward, step_type, network_state)

    def features(self, observation: tf.Tensor, training: bool = False) -> tf.Tensor:
        """What the torso makes of observations [B, ...] or [B, T, ...]: float32 [B, D] or [B, T, D]."""
        # Observations are by far the largest tensors: batch and time are merged where they lie, and only the
        # features are turned time-major for the core.
        merged = self._merge_observation(observation)
        part, merged_part = (tf.nest.flatten(of)[0] for of in (observation, merged))
        outer = tf.shape(part)[: part.shape.rank - merged_part.shape.rank + 1]
        asks = {"training": training} if self._torso_asks_for_training else {}
        features = self._torso(merged, **asks)
        return tf.reshape(features, tf.concat([outer, features.shape[1:]], axis=0))

    def _merge_observation(self, observation: Any) -> Any:
        """[B, ...] or [B, T, ...] -> [N, ...], as the torso takes them."""
        return tf.nest.map_structure(_merge_batch_and_time, observation, self.input_tensor_spec[0])

    @property
    def torso_layers(self) -> list[str]:
        """Names of the torso's layers if it is a `networks.torsos.Torso`, else only of its features."""
        return self._torso.layer_names if isinstance(self._torso, Torso) else ["features"]

    def torso_activity(self, observation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """How much of the torso is in use on observations [B, ...] or [B, T, ...].

        Returns:
          share of dead units, which put out 0 everywhere, for each of `torso_layers`: float32 [layers]; and the
          standard deviation of its features over the observations, mean over units: float32.
        """
        merged = self._merge_observation(observation)
        outputs = self._torso.activations(merged) if isinstance(self._torso, Torso) else [self._torso(merged)]
        features = self._torso(merged) if isinstance(self._torso, PartsTorso) else outputs[-1]
        dead = [tf.reduce_all(tf.equal(x, 0.0), axis=range(len(x.shape) - 1)) for x in outputs]
        spread = tf.reduce_mean(tf.math.reduce_std(tf.cast(features, tf.float32), axis=0))
        return tf.stack([tf.reduce_mean(tf.cast(x, tf.float32)) for x in dead]), spread

    @property
    def torso_is_centred(self) -> bool:
        """Whether `set_torso_from` is to be called before the first update."""
        return isinstance(self._torso, Torso) and self._torso.is_centred

    def set_torso_from(self, observation: tf.Tensor) -> None:
        """Sets the torso by observations [B, ...] or [B, T, ...], see `networks.torsos.Torso.centre`. Eager."""
        self._torso.activations(self._merge_observation(observation), setting=True)

    def run_behind_torso(
        self,
        features: tf.Tensor,
        previous_action: tf.Tensor,
        previous_reward: tf.Tensor,
        step_type: tf.Tensor | None = None,
        network_state: State | tuple[()] = (),
    ) -> tuple[tf.Tensor, State]:
        """The network's values and state from the torso's features; otherwise as `call`."""
        outer = tf.shape(previous_action)
        first = tf.zeros(outer, tf.bool) if step_type is None else tf.equal(step_type, StepType.FIRST)
        if self.reward_input is None:
            reward = tf.clip_by_value(previous_reward, -1.0, 1.0)
        else:
            reward = self.reward_input(previous_reward)
        action = tf.one_hot(previous_action, self.num_actions)
        features = tf.concat([features, action, reward[..., None]], axis=-1)
        sequences = previous_action.shape.rank == 2
        if sequences:
            features = swap_batch_and_time(features)
            first = swap_batch_and_time(first)
        state = network_state or self.get_initial_state(outer[0])
        hidden, state = self._core(features, first, state)
        q_values = self.heads(self._linear(hidden))
        return swap_batch_and_time(q_values) if sequences else q_values, state


def _merge_batch_and_time(observation: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    own = observation.shape[observation.shape.rank - spec.shape.rank :]
    merged = tf.reshape(observation, (-1, *own))
    bounded = isinstance(spec, tensor_spec.BoundedTensorSpec) and spec.dtype == tf.uint8
    return tf.cast(merged, tf.bool) if bounded and np.all(spec.maximum <= 1) else merged


def swap_batch_and_time(tensor: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tensor, (1, 0, *range(2, tensor.shape.rank)))
