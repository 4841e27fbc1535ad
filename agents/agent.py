"""The learner's half of the agent: recurrent multi-head Q-learning on replayed sequences, as a `TFAgent`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from agents import DEAD, LOSS, PROBABILITY, SCALED, SPREAD, UNSCALED
from agents.bandit import HeadBandit
from agents.heads import Heads
from agents.policy import MultiHeadPolicy
from agents.targets import (
    Sequence,
    SequenceShape,
    Steps,
    importance_weights,
    n_step_targets,
    of_all_replicas,
    sequence_priorities,
    unpacked,
)
from networks.recurrent_core import State
from networks.recurrent_q_network import RecurrentQNetwork, swap_batch_and_time
from rbs_tf import ReturnMoments
from rbs_tf.return_scaling import summed_over_replicas
from rbs_tf.scalings import ErrorContext, Scaling

MOST_COMPILED_UNITS = 128  # of the core; larger products are quicker with oneDNN (benchmarks/learner_step.py)


class LossExtra(NamedTuple):
    """All that `train` hands out beside the loss; the means are of the batch of all replicas, for TensorBoard."""

    priorities: tf.Tensor  # float32 [B], new priorities of the sequences
    per_head: dict[str, tf.Tensor]  # tag -> float32 [H]
    scalars: dict[str, tf.Tensor]  # tag -> float32


class Features(NamedTuple):
    """What the torsos of both networks make of a batch of windows; float32 [B, rows, D]."""

    target: tf.Tensor  # all rows
    burn_in: tf.Tensor | tuple[()]  # those of the burn-in; () without one
    online: tf.Tensor  # those behind it; carries the gradient


class Values(NamedTuple):
    """Values of both networks on the rows behind the burn-in; time-major, float32.

    T rows train; R = T + n_step rows are bootstrapped from.
    """

    # [T, B, H] or [T, B, H, K], before `decode`: of the action taken; carries the gradient.
    raw: tf.Tensor | tuple[()]
    outputs: tf.Tensor  # [T or more, B, H], network units: of the action taken; carries the gradient
    greedy: tf.Tensor  # [T or R, B, H], network units: each head's highest of the online network
    target_greedy: tf.Tensor  # [R, B, H], reward units: of the target network
    bootstrap: tf.Tensor  # [R, B, H], reward units


class Errors(NamedTuple):
    """TD errors of a batch of windows and what they came from; time-major, float32."""

    scaled: tf.Tensor  # [T, B, H], carries the gradient
    losses: tf.Tensor | tuple[()]  # [T, B, H], carries the gradient; () where there were no raw outputs
    outputs: tf.Tensor  # [T, B, H], network units: the value of the action taken
    targets: tf.Tensor  # [T, B, H], reward units
    mask: tf.Tensor  # [T, B], 1 where a transition trains


@gin.configurable(module="agents")
class RecurrentMultiHeadAgent(tf_agent.TFAgent):
    """R2D2 with many value heads whose TD errors pass through one exchangeable scaling.

    loss = 1 / (B T) sum_{t, b, h} w_b 1/2 scaled_error^2, with importance weights w; T is the training length of
    a window, padding counts as zero; a scaling may have another loss than the square. Every head learns by n-step
    Q-learning from all experience, with the environment's discount times its own, its own maximum for the bootstrap,
    and a target network that is replaced every `target_update_period` updates. Both networks burn in from the stored
    state; no gradient flows there.

    Under a strategy each replica trains on an equal share of the batch, inside `strategy.run`; together they make the
    update of the whole batch, and their losses add up to its loss. What only acts and observes stays outside of it
    (`policy`, `collect_policy`, `initial_priorities`, `observe`, `update_bandit`) and sees the first replica's weights.

    Args:
      time_step_spec: unbatched TF-Agents time step spec.
      action_spec: unbatched, scalar int32 from 0.
      heads: the value functions; H of them.
      network: recurrent Q-network (`networks.RecurrentQNetwork`), not yet built or built.
      scaling: factory called with H: a class of `rbs_tf.scalings`.
      shape: the layout of a window: burn_in + length + n_step rows.
      train_step: int64 variable that counts updates, created under the strategy's scope.
      seed: of exploration and head choice.
      learning_rate, adam_epsilon: of Adam (Table 1: 2e-4 and 1e-6; no gradient clipping, no Huber loss).
      target_update_period: in updates.
      double_q: the online network chooses the bootstrap action (van Hasselt 2016); off in the paper.
      priority_eta: weight of the maximum in a sequence's priority (R2D2: 0.9).
      importance_exponent: beta of the importance weights.
      evaluation_epsilon: how often evaluation acts at random: 0 is greedy play (DQN, Mnih et al. 2015: 0.05).
      jit_compile: compile the update with XLA: all of it, or nothing; None compiles what lies behind the torso, and
        Adam, on a CPU without a strategy and for a core of at most 128 units, nothing elsewhere. On a CPU XLA is quick
        at loops over time, and slow at convolutions and large products. True does not go with MirroredStrategy on
        CPUs: TensorFlow 2.15 compiles no exchange between them.
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
        learning_rate: float = 2e-4,
        adam_epsilon: float = 1e-6,
        target_update_period: int = 400,
        double_q: bool = False,
        priority_eta: float = 0.9,
        importance_exponent: float = 0.6,
        evaluation_epsilon: float = 0.0,
        jit_compile: bool | None = None,
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
                f"action, got one with {network.outputs_per_action}. Build it with RecurrentQNetwork(..., "
                "outputs_per_action=scaling(num_heads).outputs_per_action)"
            )
        self._target_update_period, self._summary_interval = target_update_period, summary_interval
        self._double_q = double_q
        # Rows after the training region are only bootstrapped from; the online network is asked there for the choice
        # of action alone.
        self._online_rows = slice(shape.burn_in, None if double_q else shape.burn_in + shape.length)
        self._priority_eta = priority_eta
        self._importance_exponent = importance_exponent
        small = network.state_spec[0].shape[0] <= MOST_COMPILED_UNITS
        self._compiles_in_part = in_part = jit_compile is None and small and _is_one_cpu(self.strategy)
        self._compiled_update = _compiled(self._update, bool(jit_compile))
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
            training_data_spec=_sequence_spec(time_step_spec, network.state_spec),
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

    def observe(self, moments: ReturnMoments, **others: Any) -> None:
        """Statistics of new steps and episodes, see `Scaling.observe`; call before the update that needs them."""
        self.scaling.observe(moments, **others)
        self._observe_rewards(moments)

    def _observe_rewards(self, moments: ReturnMoments) -> None:
        """The same in both networks: an environment's unit is nothing that targets should lag behind in."""
        if self.network.reward_input is None:
            return
        count, mean, variance = (
            float(of_heads[self._unclipped])
            for of_heads in (moments.count, moments.reward_mean, moments.reward_variance)
        )
        # The network sees rewards as the environment pays them.
        self.network.reward_input.observe(count, (variance + mean**2) / self.heads.reward_multiplier**2)
        self.target_network.reward_input.statistics.assign(self.network.reward_input.statistics)

    def compile_ahead(self, batch_size: int) -> None:
        """Compiles what the first update with so many windows would compile otherwise, and changes nothing."""
        if not self._compiles_in_part:
            return
        rows = batch_size, self.shape.rows

        def zeros(spec: tf.TensorSpec, outer: tuple[int, ...]) -> tf.Tensor:
            return tf.zeros((*outer, *spec.shape), spec.dtype)

        spec = self.training_data_spec
        of_one = self.network.features(zeros(spec.steps.observation, (1,)))
        steps = tf.nest.map_structure(lambda column: zeros(column, rows), spec.steps._replace(observation=()))
        others = tf.nest.map_structure(lambda column: zeros(column, rows[:1]), spec._replace(steps=()))
        features = zeros(of_one[0], rows)
        burn_in = features[:, : self.shape.burn_in] if self.shape.burn_in else ()
        features = Features(features, burn_in, features[:, self._online_rows])
        arguments = others._replace(steps=steps), features, tf.constant(False)
        # From a graph, as the update calls it: what an eager call compiles serves eager calls alone.
        tf.function(lambda: self._compiled_gradients(*arguments), autograph=False)()

    def update_bandit(self, heads: np.ndarray, returns: np.ndarray) -> None:
        """Finished training episodes: acting heads and raw returns. New episodes draw from what follows."""
        self.bandit.update(heads, returns)
        self.collect_policy.head_probabilities.assign(self.bandit.probabilities)
        self.policy.head_probabilities.assign(tf.one_hot(self.bandit.best_head, len(self.heads)))

    def initial_priorities(
        self, steps: Steps, taken_values: tf.Tensor, greedy_values: tf.Tensor
    ) -> tf.Tensor:
        """Priorities of new windows from the values seen while acting; no network is run.

        Args:
          steps: rows [k, L] of k windows; the observation is not used and may be None.
          taken_values: float32 [k, L, H], network units, value of the action taken at each row.
          greedy_values: float32 [k, L, H], network units, each head's highest value at each row.

        Returns:
          float32 [k].
        """
        rows = slice(self.shape.burn_in, None)
        outputs, greedy = (swap_batch_and_time(values)[rows] for values in (taken_values, greedy_values))
        # What acted stands for both networks.
        in_reward_units = self.scaling.values(greedy)
        values = Values((), outputs, greedy, in_reward_units, bootstrap=in_reward_units)
        errors = self._errors(steps, values)
        return sequence_priorities(errors.scaled, errors.mask, self._priority_eta)

    def _train(self, experience: Sequence, weights: None = None) -> tf_agent.LossInfo:
        _refuse(weights)
        # Ahead of XLA, which would compile anew for every number of pieces.
        experience = unpacked(experience, self.time_step_spec.observation)
        loss, errors, priorities = self._compiled_update(experience)
        self.train_step_counter.assign_add(1)
        tf.cond(
            self.train_step_counter % self._target_update_period == 0,
            self._replace_target,
            lambda: None,
        )
        info = self._loss_info(loss, errors, priorities)
        extra = info.extra._replace(scalars=info.extra.scalars | self._torso_activity(experience))
        return info._replace(extra=extra)

    def _torso_activity(self, sequence: Sequence) -> dict[str, tf.Tensor]:
        """Share of dead units and spread of features on the rows that trained; 0 between summaries."""
        if not self._summary_interval:
            return {}
        names, rows = (
            self.network.torso_layers,
            slice(self.shape.burn_in, self.shape.burn_in + self.shape.length),
        )
        dead, spread = tf.cond(
            self.train_step_counter % self._summary_interval == 0,
            lambda: self.network.torso_activity(sequence.steps.observation[:, rows]),
            lambda: (tf.zeros(len(names)), 0.0),
        )
        shares = {f"{DEAD}/{name}": share for name, share in zip(names, tf.unstack(dead), strict=True)}
        return shares | {SPREAD: spread}

    def set_torso_from(self, sequences: list[Sequence]) -> None:
        """Sets the torsos' layers by the windows' real rows, before the first update. Eager, outside of replicas."""
        self.network.set_torso_from(self.real_observations(sequences))
        self._replace_target()

    def real_observations(self, sequences: list[Sequence]) -> tf.Tensor:
        """Observations [N, ...] of the rows behind the burn-in that begin a transition, without padding."""
        rows = slice(self.shape.burn_in, self.shape.rows - 1)
        return tf.concat(
            [
                tf.boolean_mask(
                    unpacked(sequence, self.time_step_spec.observation).steps.observation[:, rows],
                    sequence.steps.step_type[:, rows] != ts.StepType.LAST,
                )
                for sequence in sequences
            ],
            axis=0,
        )

    def _loss(self, experience: Sequence, weights: None = None, training: bool = False) -> tf_agent.LossInfo:
        _refuse(weights)
        experience = unpacked(experience, self.time_step_spec.observation)
        errors = self.sequence_errors(experience)
        return self._loss_info(*self._loss_and_priorities(experience, errors))

    def _update(self, sequence: Sequence) -> tuple[tf.Tensor, Errors, tf.Tensor]:
        """One update of the online network: loss, errors, and new priorities [B]."""
        self.scaling.before_update(self.network.heads, self.target_network.heads)
        with tf.GradientTape() as tape:
            features = self._features(sequence.steps.observation)
        # What is compiled takes no arguments that it does not use: they would be copied.
        sequence = sequence._replace(steps=sequence.steps._replace(observation=()))
        first = ~self._initialised
        loss, errors, priorities, of_features, gradients = self._compiled_gradients(sequence, features, first)
        self._initialised.assign(True)
        of_torso = tape.gradient(features.online, self.network.torso_variables, of_features)
        variables = self.network.torso_variables + self.network.variables_behind_torso
        self._compiled_adam(list(zip(of_torso + gradients, variables, strict=True)))
        self.scaling.after_update(
            errors.targets, errors.outputs, errors.mask, self.network.heads, self.target_network.heads
        )
        return loss, errors, priorities

    def _features(self, observation: tf.Tensor) -> Features:
        """Runs both torsos over windows [B, rows, ...]."""
        burn_in = self.shape.burn_in
        return Features(
            self.target_network.features(observation),
            self.network.features(observation[:, :burn_in]) if burn_in else (),
            self.network.features(observation[:, self._online_rows], training=True),
        )

    def _gradients(
        self, sequence: Sequence, features: Features, first: tf.Tensor
    ) -> tuple[tf.Tensor, Errors, tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Loss, errors, new priorities; gradients in `features.online` and in all variables but the torso's."""
        with tf.GradientTape() as tape:
            tape.watch(features.online)
            values = self._unroll(sequence, features)
            mask = tf.cast(self._transitions(sequence.steps)[: self.shape.length], tf.float32)
            self.scaling.initialise(values.greedy[: self.shape.length], mask, first)
            errors = self._errors(sequence.steps, values)
            loss, _, priorities = self._loss_and_priorities(sequence, errors)
        of_features, *gradients = tape.gradient(loss, [features.online, *self.network.variables_behind_torso])
        return loss, errors, priorities, of_features, gradients

    def _unroll(self, sequence: Sequence, features: Features) -> Values:
        """Runs both networks over each window: burns in from the stored state, then goes on behind the burn-in."""
        burn_in, length = self.shape.burn_in, self.shape.length
        steps, state = sequence.steps, sequence.core_state

        def run(network: RecurrentQNetwork, features: tf.Tensor, rows: slice) -> tuple[tf.Tensor, State]:
            columns = steps.previous_action[:, rows], steps.reward[:, rows], steps.step_type[:, rows]
            return network.behind_torso(features, *columns, state)

        decode = self.scaling.decode
        target_values, _ = run(self.target_network, features.target, slice(None))
        target_values = decode(swap_batch_and_time(target_values)[burn_in:])
        if burn_in:
            _, state = run(self.network, features.burn_in, slice(burn_in))
            state = tf.nest.map_structure(tf.stop_gradient, state)
        outputs, _ = run(self.network, features.online, self._online_rows)
        outputs = swap_batch_and_time(outputs)
        values = decode(outputs)

        greedy = tf.stop_gradient(tf.reduce_max(values, axis=-1))
        target_greedy = self.scaling.values(tf.reduce_max(target_values, axis=-1), target=True)
        bootstrap = target_greedy
        if self._double_q:
            chosen = tf.one_hot(tf.argmax(values, axis=-1), values.shape[-1])
            bootstrap = self.scaling.values(tf.reduce_sum(target_values * chosen, axis=-1), target=True)
        actions = tf.transpose(steps.previous_action)[burn_in + 1 : burn_in + length + 1]
        taken = _as_long(tf.one_hot(actions, values.shape[-1])[:, :, None, :], outputs)
        raw = tf.reduce_sum(outputs[:length] * taken, axis=3)
        return Values(raw, decode(raw), greedy, target_greedy, bootstrap)

    def sequence_errors(self, sequence: Sequence) -> Errors:
        """Scaled TD errors of the training region of each window; gradients flow into the online network alone.

        Changes nothing. Before the first update, the scaling has not seen values yet (sigma_v is its default).
        """
        return self._errors(
            sequence.steps, self._unroll(sequence, self._features(sequence.steps.observation))
        )

    def _errors(self, steps: Steps, values: Values) -> Errors:
        """n-step targets, and the scaled errors of `values.outputs` against them."""
        burn_in, length = self.shape.burn_in, self.shape.length
        rewards = self.scaling.rewards(self.heads.rewards(tf.transpose(steps.reward)[burn_in + 1 :]))
        discounts = self.heads.discounts(tf.transpose(steps.discount)[burn_in + 1 :])
        valid = self._transitions(steps)
        targets = n_step_targets(values.bootstrap, rewards, discounts, valid, self.shape.n_step)[:length]
        real = tf.cast(valid, tf.float32)
        # Whatever stands in padding, an infinity too, is cut off here and not merely multiplied by zero.
        keep = valid[:length, :, None]
        outputs, targets, online_values, target_values = (
            tf.where(keep, each[:length], 0.0)
            for each in (values.outputs, targets, self.scaling.values(values.greedy), values.target_greedy)
        )
        targets = tf.stop_gradient(targets)
        context = ErrorContext(
            rewards, discounts, real, online_values, target_values, n_step=self.shape.n_step
        )
        scaled = tf.where(keep, self.scaling.errors(targets, outputs, context), 0.0)
        losses = values.raw
        if tf.is_tensor(values.raw):
            raw = tf.where(_as_long(keep, values.raw), values.raw, 0.0)
            losses = self.scaling.losses(scaled, targets, raw, context)
        return Errors(scaled, losses, outputs, targets, real[:length])

    def _transitions(self, steps: Steps) -> tf.Tensor:
        """Mask of the rows behind the burn-in that begin a transition: bool [length + n_step - 1, B]."""
        return tf.transpose(steps.step_type)[self.shape.burn_in : -1] != ts.StepType.LAST

    def _loss_and_priorities(self, sequence: Sequence, errors: Errors) -> tuple[tf.Tensor, Errors, tf.Tensor]:
        weights = importance_weights(sequence.probability, sequence.table_size, self._importance_exponent)
        per_step = tf.reduce_sum(errors.losses, axis=-1) * errors.mask * weights
        # A constant divisor, not the number of unmasked steps: padding then changes nothing, on any replica. Replicas'
        # losses and gradients are added up.
        replica = tf.distribute.get_replica_context()
        replicas = 1 if replica is None else replica.num_replicas_in_sync
        loss = tf.reduce_sum(per_step) / tf.cast(replicas * tf.size(errors.mask), tf.float32)
        return loss, errors, sequence_priorities(errors.scaled, errors.mask, self._priority_eta)

    def _replace_target(self) -> None:
        for variable, source in zip(self.target_network.variables, self.network.variables, strict=True):
            variable.assign(source)
        self.scaling.target_updated()

    def shared_gradient_norms(self, sequence: Sequence) -> tf.Tensor:
        """Norm of each head's own gradient in the weights that all heads share: float32 [H].

        A diagnosis (one backward pass per head): unbalanced losses show here as one head owning the torso.
        """
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(self.sequence_errors(sequence).losses, axis=(0, 1))
        # One after the other in a loop: unrolled, ten backward passes take three times as long to trace.
        gradients = tape.jacobian(losses, self.network.shared_variables, experimental_use_pfor=False)
        squares = [tf.reduce_sum(tf.square(g), axis=tuple(range(1, len(g.shape)))) for g in gradients]
        return tf.sqrt(tf.add_n(squares))

    def _loss_info(self, loss: tf.Tensor, errors: Errors, priorities: tf.Tensor) -> tf_agent.LossInfo:
        """Packs an update as TF-Agents wants it; the means, for TensorBoard, are of the batch of all replicas."""
        values = self.scaling.values(errors.outputs)
        squares = tf.square(errors.scaled), tf.square(errors.targets - values)
        per_step = tf.stack([errors.losses, *squares, values, errors.targets])
        of_all, real, steps, sums = summed_over_replicas(
            loss,
            tf.reduce_sum(errors.mask),
            tf.cast(tf.size(errors.mask), tf.float32),
            tf.reduce_sum(per_step, axis=(1, 2)),
        )
        losses, scaled, raw, value, target = tf.unstack(sums / tf.maximum(real, 1.0))
        per_head = {
            LOSS: losses,
            UNSCALED: tf.sqrt(raw),
            SCALED: tf.sqrt(scaled),
            "value": value,
            "target": target,
        }
        gathered = of_all_replicas(priorities)
        scalars = {
            LOSS: of_all,
            "priority/mean": tf.reduce_mean(gathered),
            "priority/max": tf.reduce_max(gathered),
            "masked_fraction": 1.0 - real / steps,
        }
        return tf_agent.LossInfo(loss, LossExtra(priorities, per_head, scalars))

    def state_summaries(self) -> dict[str, tf.Tensor]:
        """State of the agent for TensorBoard, beside the means of a batch: tag -> [H]. Eager, outside of replicas."""
        scaling = {f"scaling/{name}": value for name, value in self.scaling.summaries().items()}
        return {PROBABILITY: self.collect_policy.head_probabilities} | scaling


def _mirrors_cpus(strategy: tf.distribute.Strategy) -> bool:
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    return mirrored and any("CPU" in device for device in strategy.extended.worker_devices)


def _as_long(mask: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """A mask for all but the last axis of values if it is for that many, else as it is."""
    return mask if mask.shape.rank == values.shape.rank else mask[..., None]


def _compiled(function: Callable, by_xla: bool) -> Callable:
    return tf.function(function, jit_compile=True, autograph=False) if by_xla else function


def _is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    devices = {device.device_type for device in tf.config.list_logical_devices()}
    return strategy is tf.distribute.get_strategy() and devices == {"CPU"}


def _refuse(weights: None) -> None:
    if weights is not None:
        raise ValueError(
            "importance weights come from the sequences' own probabilities; weights must be None"
        )


def _sequence_spec(time_step_spec: ts.TimeStep, state_spec: tuple) -> Sequence:
    steps = Steps(
        step_type=tf.TensorSpec((), tf.int32),
        observation=time_step_spec.observation,
        previous_action=tf.TensorSpec((), tf.int32),
        reward=tf.TensorSpec((), tf.float32),
        discount=tf.TensorSpec((), tf.float32),
    )
    return Sequence(steps, state_spec, tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.int64))
