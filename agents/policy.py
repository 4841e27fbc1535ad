"""Epsilon-greedy acting with one of many heads. The first step of an episode draws its head and its epsilon."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.networks import network
from tf_agents.policies import tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts

from agents.checks import check, number, several
from agents.targets import add_axes

EPSILONS = several("probabilities", number(least=0, most=1))
PAPER_EPSILONS = (0.0005, 0.0015, 0.005, 0.015, 0.05, 0.15, 0.4)


class PolicyState(NamedTuple):
    """Memory of one environment's policy between steps; first steps draw head and epsilon."""

    core_state: tuple  # (h, c), each float32 [N, U], after the last row
    previous_action: tf.Tensor  # int32 [N]
    head: tf.Tensor  # int32 [N], the head that acts in this episode
    epsilon: tf.Tensor  # float32 [N], its exploration in this episode


class PolicyInfo(NamedTuple):
    """What learning from a row needs beside its observation: what led to it, and what the network made of it."""

    core_state: tuple  # (h, c), each float32 [N, U], entering this row; zeros on first rows
    previous_action: tf.Tensor  # int32 [N], as the network saw it; -1 on first rows
    previous_reward: tf.Tensor  # float32 [N], that came with the row; 0 on first rows
    previous_discount: tf.Tensor  # float32 [N], likewise; 0 on a terminal row, 1 elsewhere
    head: tf.Tensor  # int32 [N]
    epsilon: tf.Tensor  # float32 [N]
    taken_values: tf.Tensor  # float32 [N, H], network units: the action that was taken
    greedy_values: tf.Tensor  # float32 [N, H], network units: the best action of each head


class MultiHeadPolicy(tf_policy.TFPolicy):
    """Acts epsilon-greedily with respect to one head of a recurrent multi-head Q-network.

    On the first step of an episode, independently for each environment of the batch: the recurrent state is set
    to zeros, the head is drawn from `head_probabilities`, epsilon uniformly from `epsilons` (Table 1 of the
    paper). Both stay until the episode ends. One random generator, seeded and checkpointed, serves all draws.

    Args:
      time_step_spec: unbatched TF-Agents time step spec; rewards and observations in environment units.
      action_spec: unbatched, scalar whole numbers from 0.
      network: a recurrent Q-network, see `networks.RecurrentQNetwork`.
      num_heads: H.
      decode: makes values of what the network puts out, `Scaling.decode`; None: they are values.
      seed: of exploration and head choice.
      epsilons: values among which epsilon is drawn; `(0.0,)` is the greedy policy.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: tensor_spec.BoundedTensorSpec,
        network: network.Network,
        num_heads: int,
        decode: Callable[[tf.Tensor], tf.Tensor] | None = None,
        seed: int = 0,
        epsilons: Sequence[float] = PAPER_EPSILONS,
    ):
        check("MultiHeadPolicy.epsilons", epsilons, EPSILONS, example=PAPER_EPSILONS)
        self._network, self._decode = network, decode
        self.epsilons = tf.constant(epsilons, tf.float32)
        self.head_probabilities = tf.Variable(
            np.full(num_heads, 1.0 / num_heads), dtype=tf.float32, trainable=False, name="head_probabilities"
        )
        self._generator = tf.random.Generator.from_seed(seed)
        # A generator is no module: saved policies would miss its variable.
        self._random_state = self._generator.state
        scalar_int, scalar_float = tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32)
        per_head = tf.TensorSpec((num_heads,), tf.float32)
        state_spec = PolicyState(network.state_spec, scalar_int, scalar_int, scalar_float)
        info_spec = PolicyInfo(
            core_state=network.state_spec,
            previous_action=scalar_int,
            previous_reward=scalar_float,
            previous_discount=scalar_float,
            head=scalar_int,
            epsilon=scalar_float,
            taken_values=per_head,
            greedy_values=per_head,
        )
        super().__init__(
            time_step_spec,
            action_spec,
            policy_state_spec=state_spec,
            info_spec=info_spec,
            clip=False,
            automatic_state_reset=False,
            validate_args=False,
        )
        self._num_actions = num_actions(action_spec)

    @property
    def best_head(self) -> int:
        """Index of the likeliest head; of a policy that evaluates, the one that acts."""
        return int(np.argmax(self.head_probabilities.numpy()))

    def act_with(self, head: int | tf.Tensor) -> None:
        """Lets one head act in all episodes to come."""
        self.head_probabilities.assign(tf.one_hot(head, self.head_probabilities.shape[0]))

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and that takes seconds
    def _action(self, time_step: ts.TimeStep, policy_state: PolicyState, seed: Any) -> policy_step.PolicyStep:
        del seed  # The generator holds the only randomness, so that a checkpoint holds all of it.
        return self.act_by_heads(self._choose_heads(time_step, policy_state), time_step, policy_state)

    def act_by_heads(
        self, head: tf.Tensor, time_step: ts.TimeStep, policy_state: PolicyState
    ) -> policy_step.PolicyStep:
        """Acts as `action` does with these heads, int32 [N], in place of the drawn ones."""
        values, state, info = self._compute_values(head, time_step, policy_state)
        greedy = self._greedy_actions(values, head)
        batch = tf.shape(greedy)[:1]
        random = self._generator.uniform(batch, 0, self._num_actions, tf.int32)
        action = tf.where(self._generator.uniform(batch) < state.epsilon, random, greedy)
        return self._make_step(action, action, values, state, info)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and that takes seconds
    def _distribution(self, time_step: ts.TimeStep, policy_state: PolicyState) -> policy_step.PolicyStep:
        """The distribution of actions for the episode's head and epsilon; state and info are of the greedy action."""
        head = self._choose_heads(time_step, policy_state)
        values, state, info = self._compute_values(head, time_step, policy_state)
        greedy = self._greedy_actions(values, head)
        epsilon = state.epsilon[:, None]
        chances = epsilon / self._num_actions + (1.0 - epsilon) * tf.one_hot(greedy, self._num_actions)
        actions = tfp.distributions.Categorical(probs=chances, dtype=self.action_spec.dtype)
        return self._make_step(actions, greedy, values, state, info)

    def _choose_heads(self, time_step: ts.TimeStep, policy_state: PolicyState) -> tf.Tensor:
        """Chooses the head that acts in each environment, int32 [N]: draws one on first steps, keeps it on others."""
        cumulative = tf.cumsum(self.head_probabilities)
        draws = self._generator.uniform(tf.shape(time_step.step_type)[:1]) * cumulative[-1]
        drawn = tf.searchsorted(cumulative, draws, side="right")
        drawn = tf.minimum(drawn, self.head_probabilities.shape[0] - 1)
        return tf.where(time_step.is_first(), drawn, policy_state.head)

    def _compute_values(
        self, head: tf.Tensor, time_step: ts.TimeStep, policy_state: PolicyState
    ) -> tuple[tf.Tensor, PolicyState, PolicyInfo]:
        """Values [N, H, A] of a row, and its state and info, which lack the action."""
        first = time_step.is_first()
        core_state = tuple(
            tf.where(add_axes(first, state), tf.zeros_like(state), state) for state in policy_state.core_state
        )
        previous_action = tf.where(first, -1, policy_state.previous_action)
        drawn = self._generator.uniform(tf.shape(first), 0, self.epsilons.shape[0], tf.int32)
        epsilon = tf.where(first, tf.gather(self.epsilons, drawn), policy_state.epsilon)
        reward = tf.cast(time_step.reward, tf.float32)
        seen = time_step.observation, previous_action, reward
        values, next_core_state = self._network(seen, time_step.step_type, core_state)
        values = self._decode(values) if self._decode else values
        info = PolicyInfo(
            core_state=core_state,
            previous_action=previous_action,
            previous_reward=reward,
            previous_discount=tf.cast(time_step.discount, tf.float32),
            head=head,
            epsilon=epsilon,
            taken_values=(),
            greedy_values=tf.reduce_max(values, axis=-1),
        )
        return values, PolicyState(next_core_state, (), head, epsilon), info

    @staticmethod
    def _greedy_actions(values: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
        return tf.argmax(tf.gather(values, head, batch_dims=1), axis=-1, output_type=tf.int32)

    def _make_step(
        self, result: Any, action: tf.Tensor, values: tf.Tensor, state: PolicyState, info: PolicyInfo
    ) -> policy_step.PolicyStep:
        """The step of an action [N]; `result` is what is handed out for it."""
        taken = tf.gather(values, tf.repeat(action[:, None], values.shape[1], axis=1), axis=2, batch_dims=2)
        result = tf.cast(result, self.action_spec.dtype) if tf.is_tensor(result) else result
        info = info._replace(taken_values=taken)
        state = state._replace(previous_action=action)
        return policy_step.PolicyStep(result, state, info)


def num_actions(action_spec: tensor_spec.BoundedTensorSpec) -> int:
    """A, of a scalar that counts actions from 0. Raises ValueError for other actions."""
    bounded = isinstance(action_spec, tensor_spec.BoundedTensorSpec)
    if not (
        bounded and action_spec.shape.rank == 0 and action_spec.dtype.is_integer and action_spec.minimum == 0
    ):
        raise ValueError(f"actions must be whole numbers from 0, one for each step; got {action_spec}")
    return int(action_spec.maximum) + 1
