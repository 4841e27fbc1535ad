"""The learner's half of the agent: recurrent multi-head Q-learning on replayed sequences, as a `TFAgent`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from agents.bandit import HeadBandit
from agents.diagnostics import batch_means, torso_activity
from agents.heads import Heads
from agents.policy import MultiHeadPolicy
from agents.tags import PROBABILITY
from agents.targets import Sequence, SequenceShape, Steps, rows_of, sequence_spec, unpacked
from agents.update import Network, TDLoss, first_priorities, td_loss, transitions
from networks.recurrent_core import State
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf import ReturnMoments
from rbs_tf.scalings import Scaling
from rbs_tf.settings import Setting, configurable

MOST_COMPILED_UNITS = 128  # of the core; larger products are quicker with oneDNN (benchmarks/learner_step.py)


class LossExtra(NamedTuple):
    """All that `train` hands out beside the loss; the means are of the batch of all replicas, for TensorBoard."""

    priorities: tf.Tensor  # float32 [B], new priorities of the sequences
    per_head: dict[str, tf.Tensor]  # tag -> float32 [H]
    scalars: dict[str, tf.Tensor]  # tag -> float32


@configurable(module="agents")
class RecurrentMultiHeadAgent(tf_agent.TFAgent):
    """R2D2 with many value heads whose TD errors pass through one exchangeable scaling.

    `agents.update` has the loss. Every head learns from all experience, with the environment's discount times its own,
    and a target network that is replaced every `target_update_period` updates.

    Under a strategy each replica trains on an equal share of the batch, inside `strategy.run`, and their losses add up
    to the batch's. What only acts and observes stays outside of it and sees the first replica's weights.

    Args:
      time_step_spec: unbatched TF-Agents time step spec.
      action_spec: unbatched, scalar int32 from 0.
      heads: the value functions; H of them.
      network: recurrent Q-network (`networks.RecurrentQNetwork`), not yet built or built.
      scaling: factory called with H: a class of `rbs_tf.scalings`.
      shape: the layout of a window: burn_in + length + n_step rows.
      train_step: int64 variable that counts updates, created under the strategy's scope.
      seed: of exploration and head choice.
      learning_rate, adam_epsilon: of Adam; no gradient clipping, no Huber loss.
      target_update_period: updates between two target networks.
      double_q: the online network chooses the bootstrap action (van Hasselt 2016); off in the paper.
      priority_eta: weight of the maximum in a sequence's priority.
      importance_exponent: beta of the importance weights.
      evaluation_epsilon: how often evaluation acts at random: 0 is greedy play (DQN, Mnih et al. 2015: 0.05).
      jit_compile: compile the update with XLA: all of it, or nothing. None: all of it on a GPU; on a CPU, where XLA is
        slow at convolutions and large products, Adam and what lies behind the torso, for a core of at most 128 units;
        nothing under a strategy, though TPUs compile all that they run.
      strategy: a `tf.distribute.Strategy`; do not build the agent inside its scope. None: no replicas.
      summary_interval: updates between two looks at the torso's units, `scalars` of `LossExtra`; 0: none.

    Raises:
      ValueError: jit_compile under a strategy that mirrors CPUs; a network of other outputs than the scaling needs, or
        one that sees rewards relative to their root mean square without a head whose statistics tell it.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: tensor_spec.BoundedTensorSpec,
        heads: Heads,
        network: RecurrentQNetwork,
        scaling: Callable[[int], Scaling],
        shape: SequenceShape,
        train_step: tf.Variable,
        seed: int = 0,
        learning_rate: Annotated[float, Setting(least=0, most=100, paper="2e-4")] = 2e-4,
        adam_epsilon: Annotated[float, Setting(above=0, paper="1e-6")] = 1e-6,
        target_update_period: Annotated[int, Setting("updates", least=1, paper="400")] = 400,
        double_q: Annotated[bool, Setting(paper="no")] = False,
        priority_eta: Annotated[float, Setting(least=0, most=1, paper="R2D2: 0.9")] = 0.9,
        importance_exponent: Annotated[float, Setting(least=0, paper="0.6")] = 0.6,
        evaluation_epsilon: Annotated[float, Setting(least=0, most=1)] = 0.0,
        jit_compile: Annotated[bool | None, Setting(example=True)] = None,
        strategy: tf.distribute.Strategy | None = None,
        summary_interval: int = 0,
    ):
        tf.Module.__init__(self, name="recurrent_multi_head_agent")
        self.strategy = strategy or tf.distribute.get_strategy()
        if jit_compile and _mirrors_cpus(self.strategy):
            raise ValueError(
                "RecurrentMultiHeadAgent.jit_compile does not go with train.strategy = 'mirrored' on CPUs: TensorFlow "
                "compiles no exchange between them. Leave out one of the two"
            )
        self.heads, self.shape = heads, shape
        self._unclipped = next((index for index, (_, clip) in enumerate(heads.pairs) if not clip), None)
        if network.reward_input is not None and self._unclipped is None:
            raise ValueError(
                'RecurrentQNetwork.reward_input = "rms" takes its statistics from a head of unclipped rewards, and '
                'Heads.pairs has none. Write (discount, False) for one of them, or leave the input at "clip"'
            )
        self.bandit = HeadBandit(len(heads))
        self.network = network
        # Policies have no part in this: under a scope, their random generators would work in `strategy.run` alone.
        with self.strategy.scope():
            self.network.create_variables()
            self.target_network = network.copy(name="target_network")
            self.target_network.create_variables()
            self.scaling: Scaling = scaling(len(heads))
            self.optimizer = tf.keras.optimizers.Adam(learning_rate, epsilon=adam_epsilon)
            self.optimizer.build(self.network.trainable_variables)
            self._initialised = tf.Variable(False, trainable=False, name="initialised")
        if network.outputs_per_action != self.scaling.outputs_per_action:
            raise ValueError(
                f"{type(self.scaling).__name__} needs a network with {self.scaling.outputs_per_action} outputs per "
                f"action, got one with {network.outputs_per_action}: give it outputs_per_action"
            )
        self._target_update_period, self._summary_interval = target_update_period, summary_interval
        self._double_q, self._eta, self._beta = double_q, priority_eta, importance_exponent
        # All that `td_loss` asks the online network for.
        self._online_rows = shape.rows if double_q else shape.burn_in + shape.length
        whole, in_part = jit_compile, False
        if jit_compile is None and self.strategy is tf.distribute.get_strategy():
            devices = {device.device_type for device in tf.config.list_logical_devices()}
            small = network.state_spec[0].shape[0] <= MOST_COMPILED_UNITS
            whole, in_part = "GPU" in devices, devices == {"CPU"} and small
        self._compiles_in_part = in_part
        self._compiled_update = _compiled(self._update, whole)
        self._compiled_gradients = _compiled(self._gradients, in_part)
        self._compiled_adam = _compiled(self.optimizer.apply_gradients, in_part)
        acting = time_step_spec, action_spec, network, len(heads)
        decode = self.scaling.decode
        collect_policy = MultiHeadPolicy(*acting, seed=seed, decode=decode)
        policy = MultiHeadPolicy(*acting, seed=seed + 1, epsilons=(evaluation_epsilon,), decode=decode)
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            collect_policy,
            train_sequence_length=shape.rows,
            training_data_spec=sequence_spec(time_step_spec.observation, network.state_spec),
            train_step_counter=train_step,
        )
        self._replace_target()

    @property
    def acting_variables(self) -> list[tf.Variable]:
        """Variables that a copy needs in order to act and to set first priorities as this agent would."""
        heads = [self.collect_policy.head_probabilities, self.policy.head_probabilities]
        return [*self.network.variables, *heads, *self.scaling.variables]

    def _initialize(self) -> None:
        """Nothing: the target network was made equal on construction, and a restored one must stay as it is."""

    def observe(self, moments: ReturnMoments) -> None:
        """Statistics of new steps and episodes, see `Scaling.observe`; call before the update that needs them."""
        self.scaling.observe(moments)
        if self.network.reward_input is None:
            return
        of_steps = moments.count, moments.reward_mean, moments.reward_variance
        count, mean, variance = (float(of_heads[self._unclipped]) for of_heads in of_steps)
        # The network sees rewards as the environment pays them. The target network sees the same: an environment's unit
        # is nothing that targets should lag behind in.
        self.network.reward_input.observe(count, (variance + mean**2) / self.heads.reward_multiplier**2)
        self.target_network.reward_input.statistics.assign(self.network.reward_input.statistics)

    def compile_ahead(self, batch_size: int) -> None:
        """Compiles what the first update with so many windows would compile otherwise, and changes nothing."""
        if not self._compiles_in_part:
            return

        def zeros(specs: Any, *outer: int) -> Any:
            return tf.nest.map_structure(lambda spec: tf.zeros((*outer, *spec.shape), spec.dtype), specs)

        spec = self.training_data_spec
        steps = zeros(spec.steps._replace(observation=()), batch_size, self.shape.rows)
        sequence = zeros(spec._replace(steps=()), batch_size)._replace(steps=steps)
        size = self.network.features(zeros(spec.steps.observation, 1)).shape[-1]
        features = [tf.zeros((batch_size, rows, size)) for rows in (self._online_rows, self.shape.rows)]
        arguments = sequence, *features, tf.constant(False)
        # From a graph, as the update calls it: what an eager call compiles serves eager calls only.
        tf.function(lambda: self._compiled_gradients(*arguments), autograph=False)()

    def update_bandit(self, heads: np.ndarray, returns: np.ndarray) -> None:
        """Finished training episodes: acting heads and raw returns. New episodes draw from what follows."""
        self.bandit.update(heads, returns)
        self.collect_policy.head_probabilities.assign(self.bandit.probabilities)
        self.policy.act_with(self.bandit.best_head)

    def initial_priorities(self, steps: Steps, taken: tf.Tensor, greedy: tf.Tensor) -> tf.Tensor:
        """Priorities of new windows, see `agents.update.first_priorities`; the observation may be None."""
        return first_priorities(steps, taken, greedy, self.scaling, self.heads, self.shape, self._eta)

    def sequence_errors(self, sequence: Sequence) -> TDLoss:
        """Loss and scaled TD errors of the training region of each window; gradients flow into the online network only.

        Changes nothing. Before the first update, the scaling has not seen values yet (sigma_v is its default).
        """
        return self._td_loss(sequence, *self._features(sequence.steps.observation))

    def _loss(self, experience: Sequence, weights: None = None, training: bool = False) -> tf_agent.LossInfo:
        return self._loss_info(self.sequence_errors(self._unpacked(experience, weights)))

    def _train(self, experience: Sequence, weights: None = None) -> tf_agent.LossInfo:
        # Ahead of XLA, which would recompile for every number of pieces.
        experience = self._unpacked(experience, weights)
        info = self._loss_info(self._compiled_update(experience))
        # Not before the batch is there: a dataset that ends instead makes no update.
        with tf.control_dependencies([info.loss]):
            self.train_step_counter.assign_add(1)
        tf.cond(self.train_step_counter % self._target_update_period == 0, self._replace_target, lambda: None)
        if self._summary_interval:
            due = self.train_step_counter % self._summary_interval == 0
            observation = experience.steps.observation
            info.extra.scalars.update(torso_activity(self.network, observation, self.shape, due))
        return info

    def _unpacked(self, sequence: Sequence, weights: None) -> Sequence:
        if weights is not None:
            raise ValueError(
                "importance weights come from the sequences' own probabilities; weights must be None"
            )
        return unpacked(sequence, self.time_step_spec.observation)

    def _update(self, sequence: Sequence) -> TDLoss:
        """One update of the online network."""
        self.scaling.before_update(self.network.heads, self.target_network.heads)
        with tf.GradientTape() as tape:
            features, target_features = self._features(sequence.steps.observation)
        # What is compiled takes no arguments that it does not use: they would be copied.
        sequence = sequence._replace(steps=sequence.steps._replace(observation=()))
        result, of_features, gradients = self._compiled_gradients(
            sequence, features, target_features, ~self._initialised
        )
        self._initialised.assign(True)
        of_torso = tape.gradient(features, self.network.torso_variables, of_features)
        variables = self.network.torso_variables + self.network.variables_behind_torso
        self._compiled_adam(list(zip(of_torso + gradients, variables, strict=True)))
        self.scaling.after_update(result.targets, result.outputs, result.mask, self.network.heads)
        return result

    def _features(self, observation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Both torsos' features of windows, float32 [B, rows, D]: the online network's first.

        These carry the gradient behind the burn-in, and end where `td_loss` asks for no more.
        """
        burn_in = self.shape.burn_in
        features = self.network.features(rows_of(observation, burn_in, self._online_rows), training=True)
        if burn_in:
            burnt_in = tf.stop_gradient(self.network.features(rows_of(observation, 0, burn_in)))
            features = tf.concat([burnt_in, features], axis=1)
        return features, self.target_network.features(observation)

    def _gradients(
        self, sequence: Sequence, features: tf.Tensor, target_features: tf.Tensor, first: tf.Tensor
    ) -> tuple[TDLoss, tf.Tensor, list[tf.Tensor]]:
        """The loss, and its gradients in the features and in all variables behind the torso."""
        with tf.GradientTape() as tape:
            tape.watch(features)
            result = self._td_loss(sequence, features, target_features, first)
        variables = self.network.variables_behind_torso
        of_features, *gradients = tape.gradient(result.loss, [features, *variables])
        return result, of_features, gradients

    def _td_loss(
        self, sequence: Sequence, features: tf.Tensor, target_features: tf.Tensor, first: Any = None
    ) -> TDLoss:
        online = _behind_torso(self.network, features, sequence.steps)
        target = _behind_torso(self.target_network, target_features, sequence.steps)
        options = {"double_q": self._double_q, "eta": self._eta, "beta": self._beta, "first": first}
        return td_loss(online, target, sequence, self.scaling, self.heads, self.shape, **options)

    def _replace_target(self) -> None:
        for variable, source in zip(self.target_network.variables, self.network.variables, strict=True):
            variable.assign(source)
        self.scaling.target_updated()

    def set_torso_from(self, sequences: list[Sequence]) -> None:
        """Sets the torsos' layers by the windows' real rows, before the first update. Eager, outside of replicas."""
        # Rows behind the burn-in that begin a transition, unpadded: [N, ...], by name or not.
        rows, real = (self.shape.burn_in, self.shape.rows - 1), []
        for sequence in sequences:
            steps = unpacked(sequence, self.time_step_spec.observation).steps
            kept = functools.partial(tf.boolean_mask, mask=tf.transpose(transitions(steps, self.shape)))
            real.append(tf.nest.map_structure(kept, rows_of(steps.observation, *rows)))
        self.network.set_torso_from(tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *real))
        self._replace_target()

    def _loss_info(self, result: TDLoss) -> tf_agent.LossInfo:
        """Packs an update as TF-Agents wants it."""
        per_head, scalars = batch_means(result)
        return tf_agent.LossInfo(result.loss, LossExtra(result.priorities, per_head, scalars))

    def state_summaries(self) -> dict[str, tf.Tensor]:
        """State of the agent for TensorBoard, beside the means of a batch: tag -> [H]. Eager, outside of replicas."""
        scaling = {f"scaling/{name}": value for name, value in self.scaling.summaries().items()}
        return {PROBABILITY: self.collect_policy.head_probabilities} | scaling


def _mirrors_cpus(strategy: tf.distribute.Strategy) -> bool:
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    return mirrored and any("CPU" in device for device in strategy.extended.worker_devices)


def _behind_torso(network: RecurrentQNetwork, features: tf.Tensor, steps: Steps) -> Network:
    """The network from its torso's features [B, rows, D] on, as `td_loss` calls it."""

    def outputs(rows: slice, state: State) -> tuple[tf.Tensor, State]:
        columns = steps.previous_action[:, rows], steps.reward[:, rows], steps.step_type[:, rows]
        return network.behind_torso(features[:, rows], *columns, state)

    return outputs


def _compiled(function: Callable, by_xla: bool | None) -> Callable:
    return tf.function(function, jit_compile=True, autograph=False) if by_xla else function
