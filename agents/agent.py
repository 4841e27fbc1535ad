"""The learner's half of the agent: recurrent multi-head Q-learning on replayed sequences, as a `TFAgent`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.trajectory import Trajectory
from tf_agents.utils import eager_utils

from agents.bandit import HeadBandit
from agents.experience import sequences_of
from agents.heads import Heads, PairsOfHeads
from agents.monitoring.diagnostics import batch_means, torso_activity
from agents.monitoring.tags import PROBABILITY
from agents.observers import StatisticsObserver
from agents.policy import MultiHeadPolicy, num_actions
from agents.scalings import ReturnBasedScaling, Scaling
from agents.scalings.making import Choice
from agents.scalings.making import make as make_scaling
from agents.sequences import Sequence, SequenceShape, Steps, rows_of, sequence_spec
from agents.targets import transitions
from agents.update import LossOptions, TDLoss, first_priorities, td_loss
from networks.any_network import adapted
from networks.loss_behind_torsos import LossBehindTorsos
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf import ReturnMoments
from rbs_tf.settings import Setting, configurable

_NO_STATISTICS = (
    "RecurrentMultiHeadAgent.train: no step has been observed, so that the scale of errors is unknown. Add "
    "*agent.observers to the observers of the driver or Actor that collects; with recorded episodes, call "
    "agent.observe(rbs_tf.ReturnMoments.from_episode(rewards, discounts)), [T, H] each"
)


_PARTS = tf.Module, tf.keras.optimizers.Optimizer
# The agent that each network, layer and optimizer is in: two that trained the same one would undo each other's work.
_agents: weakref.WeakKeyDictionary[Any, weakref.ref] = weakref.WeakKeyDictionary()


class LossExtra(NamedTuple):
    """All that `train` hands out beside the loss; the means are of the batch of all replicas, for TensorBoard."""

    priorities: tf.Tensor  # float32 [B], new priorities of the sequences
    per_head: dict[str, tf.Tensor]  # tag -> float32 [H]
    scalars: dict[str, tf.Tensor]  # tag -> float32


@configurable(module="agents")
class RecurrentMultiHeadAgent(tf_agent.TFAgent):
    """R2D2 with many value heads whose TD errors pass through one exchangeable scaling.

        agent = RecurrentMultiHeadAgent(env.time_step_spec(), env.action_spec(), q_network)
        driver = DynamicStepDriver(env, agent.collect_policy, [buffer.add_batch, *agent.observers], num_steps=100)
        agent.train(trajectory)      # [B, L, ...], L = agent.train_sequence_length

    `agents.update` has the loss. Every head learns from all experience, with the environment's discount times its own,
    and a target network that is replaced every `target_update_period` updates. `train` takes sequences as `Trajectory`
    of `collect_data_spec`, or as `Sequence` of our own replay; [B] `weights` multiply the loss of each sequence. Rows
    behind an episode's end train as the next episode. `observers` keep the statistics that the scaling needs, and
    choose the head that acts: until an episode has ended, all heads are equally likely, also in `policy`.

    Under a strategy each replica trains on an equal share of the batch, inside `strategy.run`, and their losses add up
    to the batch's. What only acts and observes stays outside of it and sees the first replica's weights.

    Args:
      time_step_spec: unbatched TF-Agents time step spec.
      action_spec: unbatched, a scalar that counts actions from 0.
      q_network: recurrent, with H heads: `networks.RecurrentQNetwork`, or any of TF-Agents, see `networks.AnyNetwork`;
        not yet built or built.
      optimizer: of Keras; None: Adam, without clipping.
      heads: the value functions; H of them, or their pairs (discount, whether rewards are clipped). None: `Heads()`,
        the paper's ten.
      scaling: a class of `agents.scalings` or another factory called with H, a `ReturnScaling` layer of H heads, a name
        such as "return_out", or None for no scaling. See `agents.scalings.making`.
      shape: the layout of a sequence: burn_in + length + n_step rows. None: `SequenceShape()`.
      epsilon_greedy: how often the collect policy acts at random, or a tuple from which each episode draws it. None:
        that of `MultiHeadPolicy`.
      bandit_window: episodes that choose the acting head. None: that of `HeadBandit`.
      seed: of exploration and head choice.
      learning_rate, adam_epsilon: of Adam, where no optimizer is given.
      target_update_period: updates between two target networks.
      double_q: the online network chooses the bootstrap action (van Hasselt 2016); off in the paper.
      priority_eta: weight of the maximum in a sequence's priority.
      importance_exponent: beta of the importance weights of a `Sequence`.
      evaluation_epsilon: how often evaluation acts at random: 0 is greedy play (DQN, Mnih et al. 2015: 0.05).
      gradient_clipping: largest norm of each variable's gradient; None: no limit, the only choice with replicas.
      jit_compile: compile the update with XLA: all of it, or nothing. None: for `RecurrentQNetwork`, all of it on a
        GPU; on a CPU, where XLA is slow at convolutions and large products, Adam and what lies behind the torso, for a
        core of at most 128 units; nothing under a strategy, though TPUs compile all that they run.
      strategy: a `tf.distribute.Strategy`; do not build the agent inside its scope. None: no replicas.
      summary_interval: updates between two looks at the torso's units, `scalars` of `LossExtra`; 0: none.
      debug_summaries: write what `LossExtra` holds as summaries.
      summarize_grads_and_vars: write gradients and variables as summaries.
      train_step_counter: int64 variable that counts updates, created in the strategy's scope. None: the global step.
      name: of the agent.

    Raises:
      TypeError: a q_network, scaling or shape of another type.
      ValueError: built inside a strategy's scope; gradient_clipping with more than one replica; jit_compile under a
        strategy that mirrors CPUs, or with `summarize_grads_and_vars`; actions that are no scalar from 0; a network of
        other inputs or outputs than heads, actions and scaling need; one whose outputs the scaling cannot rewrite; an
        optimizer that averages weights which the scaling rewrites; a network that sees rewards relative to their root
        mean square without a head whose statistics tell it; a network, layer or optimizer of another agent.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: tensor_spec.BoundedTensorSpec,
        q_network: network.Network,
        optimizer: tf.keras.optimizers.Optimizer | None = None,
        *,
        heads: Heads | PairsOfHeads | None = None,
        scaling: Choice = ReturnBasedScaling,
        shape: SequenceShape | None = None,
        epsilon_greedy: float | tuple[float, ...] | None = None,
        bandit_window: int | None = None,
        seed: int = 0,
        learning_rate: Annotated[float, Setting(least=0, most=100, paper="2e-4")] = 2e-4,
        adam_epsilon: Annotated[float, Setting(above=0, paper="1e-6")] = 1e-6,
        target_update_period: Annotated[int, Setting("updates", least=1, paper="400")] = 400,
        double_q: Annotated[bool, Setting(paper="no")] = False,
        priority_eta: Annotated[float, Setting(least=0, most=1, paper="R2D2: 0.9")] = 0.9,
        importance_exponent: Annotated[float, Setting(least=0, paper="0.6")] = 0.6,
        evaluation_epsilon: Annotated[float, Setting(least=0, most=1)] = 0.0,
        gradient_clipping: float | None = None,
        jit_compile: Annotated[bool | None, Setting(example=True)] = None,
        strategy: tf.distribute.Strategy | None = None,
        summary_interval: int = 0,
        debug_summaries: bool = False,
        summarize_grads_and_vars: bool = False,
        train_step_counter: tf.Variable | None = None,
        name: str | None = None,
    ):
        tf.Module.__init__(self, name=name or "recurrent_multi_head_agent")
        if tf.distribute.has_strategy():
            raise ValueError(
                "build RecurrentMultiHeadAgent outside of strategy.scope(), and hand it strategy=strategy: it makes "
                "what trains in the scope, and what acts outside of it"
            )
        self.strategy = strategy or tf.distribute.get_strategy()
        if jit_compile and _mirrors_cpus(self.strategy):
            raise ValueError(
                "RecurrentMultiHeadAgent.jit_compile does not go with train.strategy = 'mirrored' on CPUs: TensorFlow "
                "compiles no exchange between them. Leave out one of the two"
            )
        if gradient_clipping is not None and self.strategy.num_replicas_in_sync > 1:
            raise ValueError(
                f"RecurrentMultiHeadAgent.gradient_clipping = {gradient_clipping} would clip the gradients of each of "
                f"{self.strategy.num_replicas_in_sync} replicas, before they are added up. Leave it out, and hand the "
                "agent an optimizer that clips their sum, made in strategy.scope(): "
                f"optimizer=tf.keras.optimizers.Adam(..., clipnorm={gradient_clipping})"
            )
        if jit_compile and summarize_grads_and_vars:
            raise ValueError("XLA compiles no summaries: leave out jit_compile or summarize_grads_and_vars")
        time_step_spec, action_spec = map(tensor_spec.from_spec, (time_step_spec, action_spec))
        self.heads = heads if isinstance(heads, Heads) else Heads() if heads is None else Heads(heads)
        self.shape = SequenceShape() if shape is None else shape
        if not isinstance(self.shape, SequenceShape):
            raise TypeError(f"shape must be a SequenceShape, as SequenceShape(length=20); got {shape!r}")
        parts = [part for part in (q_network, scaling, optimizer) if isinstance(part, _PARTS)]
        for part in parts:
            if (other := _agents.get(part, lambda: None)()) is not None:
                words = f"{type(part).__name__} {part.name} is in the agent {other.name} already"
                raise ValueError(f"{words}: make one for each agent")
        self.bandit = HeadBandit(
            len(self.heads), **({} if bandit_window is None else {"window": bandit_window})
        )
        # Policies stay outside: in a scope, their random generators would work in `strategy.run` only.
        with self.strategy.scope():
            self.scaling: Scaling = make_scaling(scaling, len(self.heads))
            outputs = self.scaling.outputs_per_action
            sees = time_step_spec.observation, num_actions(action_spec)
            self.network = adapted(q_network, *sees, len(self.heads), outputs)
            self.network.create_variables()
            self.target_network = self.network.copy(name="target_network")
            self.target_network.create_variables()
            if optimizer is None:
                optimizer = tf.keras.optimizers.Adam(learning_rate, epsilon=adam_epsilon)
            self.optimizer = optimizer
            if hasattr(self.optimizer, "build"):  # others make their variables in the first update
                self.optimizer.build(self.network.trainable_variables)
            self._initialised = tf.Variable(False, trainable=False, name="initialised")
        self._check_network()
        self._target_update_period, self._summary_interval = target_update_period, summary_interval
        self._loss_options = LossOptions(double_q, priority_eta, importance_exponent)
        self._gradient_clipping = gradient_clipping
        ours, on_cpu = isinstance(self.network, RecurrentQNetwork), False
        self._shows_torso = ours and summary_interval > 0
        if jit_compile is None and ours and self.strategy is tf.distribute.get_strategy():
            devices = {device.device_type for device in tf.config.list_logical_devices()}
            jit_compile, on_cpu = "GPU" in devices and not summarize_grads_and_vars, devices == {"CPU"}
        how = {
            "scaling": self.scaling,
            "heads": self.heads,
            "shape": self.shape,
            "options": self._loss_options,
        }
        self._td_loss = LossBehindTorsos(
            self.network,
            self.target_network,
            functools.partial(td_loss, **how),
            self.shape.burn_in,
            self.shape.rows if double_q else self.shape.burn_in + self.shape.length,
            compiled=on_cpu,
        )
        self._compiled_update = _compiled(self._update, jit_compile)
        compiles_adam = self._td_loss.compiled and hasattr(self.optimizer, "build")
        self._compiled_adam = _compiled(self.optimizer.apply_gradients, compiles_adam)
        acting = time_step_spec, action_spec, self.network, len(self.heads)
        decode, exploring = self.scaling.decode, {}
        if epsilon_greedy is not None:
            exploring["epsilons"] = np.atleast_1d(epsilon_greedy).tolist()
        collect_policy = MultiHeadPolicy(*acting, seed=seed, decode=decode, **exploring)
        policy = MultiHeadPolicy(*acting, seed=seed + 1, epsilons=(evaluation_epsilon,), decode=decode)
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            collect_policy,
            train_sequence_length=self.shape.rows,
            debug_summaries=debug_summaries,
            summarize_grads_and_vars=summarize_grads_and_vars,
            train_step_counter=train_step_counter,
        )
        self._observer: StatisticsObserver | None = None
        self._replace_target()
        _agents.update(dict.fromkeys(parts, weakref.ref(self)))

    def _check_network(self) -> None:
        """Raises ValueError for a network that does not go with scaling or heads."""
        scaling, of_network = type(self.scaling).__name__, self.network.outputs_per_action
        if of_network != self.scaling.outputs_per_action:
            raise ValueError(
                f"{scaling} needs a network with {self.scaling.outputs_per_action} outputs per action, got one with "
                f"{of_network}: give it outputs_per_action"
            )
        if self.scaling.rewrites_outputs and self.network.heads is None:
            raise ValueError(
                f"{scaling} rewrites the network's last layers, and this one has no `heads` with rescale_outputs: take "
                "networks.RecurrentQNetwork, or scaling='return'"
            )
        if self.scaling.rewrites_outputs and getattr(self.optimizer, "use_ema", False):
            raise ValueError(
                f"{scaling} rewrites the network's last layers, and the optimizer's averages (use_ema=True) would stay "
                "in the units from before: leave use_ema out"
            )
        self._unclipped = next((index for index, (_, clip) in enumerate(self.heads.pairs) if not clip), None)
        if self.network.reward_input is not None and self._unclipped is None:
            raise ValueError(
                'RecurrentQNetwork.reward_input = "rms" takes its statistics from a head of unclipped rewards, and '
                'Heads.pairs has none. Write (discount, False) for one of them, or leave the input at "clip"'
            )

    @property
    def sequence_spec(self) -> Sequence:
        """Of one row and one sequence in our own form, without batch and time."""
        return sequence_spec(self.time_step_spec.observation, self.network.state_spec)

    @property
    def observers(self) -> list[StatisticsObserver]:
        """For the `observers` of one driver or `Actor` that collects: keeps the statistics, and chooses heads."""
        if self._observer is None:
            self._observer = StatisticsObserver(self.heads, self.observe, self.update_bandit)
        return [self._observer]

    @property
    def acting_variables(self) -> list[tf.Variable]:
        """Variables that a copy needs in order to act and to set first priorities as this agent would."""
        heads = [self.collect_policy.head_probabilities, self.policy.head_probabilities]
        return [*self.network.variables, *heads, *self.scaling.variables]

    def _initialize(self) -> None:
        """Nothing: the target network was made equal on construction, and a restored one must stay as it is."""

    def observe(self, moments: ReturnMoments) -> None:
        """Feeds new statistics to scaling and reward input; call before `train`. `observers` call it in drivers."""
        self.scaling.observe(moments)
        if self.network.reward_input is None:
            return
        of_steps = moments.count, moments.reward_mean, moments.reward_variance
        count, mean, variance = (of_heads[self._unclipped] for of_heads in of_steps)
        # The network sees rewards as the environment pays them. The target network sees the same: an environment's unit
        # is nothing that targets should lag behind in.
        self.network.reward_input.observe(count, (variance + mean**2) / self.heads.reward_multiplier**2)
        self.target_network.reward_input.statistics.assign(self.network.reward_input.statistics)

    def compile_ahead(self, batch_size: int) -> None:
        """Compiles the update for batches of this size ahead of the first one; changes nothing else."""
        if not self._td_loss.compiled:
            return

        def zeros(specs: Any, *outer: int) -> Any:
            return tf.nest.map_structure(lambda spec: tf.zeros((*outer, *spec.shape), spec.dtype), specs)

        spec: Any = self.sequence_spec
        sequence = zeros(spec._replace(steps=()), batch_size)
        sequence = sequence._replace(steps=zeros(spec.steps, batch_size, self.shape.rows))
        arguments = _arguments(sequence, None, tf.constant(False))
        # In a graph, as in the update: what an eager call compiles serves eager calls only.
        tf.function(lambda: self._td_loss.with_gradients(*arguments)[0], autograph=False)()

    def update_bandit(self, heads: np.ndarray | tf.Tensor, returns: np.ndarray | tf.Tensor) -> None:
        """Takes heads and raw returns of finished training episodes; sets the probabilities of heads."""
        self.bandit.update(heads, returns)
        self.collect_policy.head_probabilities.assign(tf.cast(self.bandit.probabilities, tf.float32))
        self.policy.act_with(tf.argmax(self.bandit.lower_ends))

    def initial_priorities(self, steps: Steps, taken: tf.Tensor, greedy: tf.Tensor) -> tf.Tensor:
        """Priorities of new sequences, see `agents.update.first_priorities`; the observation may be None."""
        return first_priorities(
            steps, taken, greedy, self.scaling, self.heads, self.shape, self._loss_options.eta
        )

    def sequence_errors(self, sequence: Sequence, weights: tf.Tensor | None = None) -> TDLoss:
        """Loss and scaled TD errors of the training rows; gradients flow into the online network only.

        Changes nothing. Before the first update, the scaling has not seen values yet (sigma_v is its default).
        """
        return self._td_loss(*_arguments(sequence, weights, None))

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and that takes seconds
    def _loss(
        self, experience: Trajectory | Sequence, weights: tf.Tensor | None = None, training: bool = False
    ) -> tf_agent.LossInfo:
        sequence = self.sequences(experience)
        return self._loss_info(self.sequence_errors(sequence, _per_sequence(weights, sequence)))

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and that takes seconds
    def _train(
        self, experience: Trajectory | Sequence, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        # Ahead of XLA, which would recompile for every number of pieces.
        sequence = self.sequences(experience)
        weights = _per_sequence(weights, sequence)
        with tf.control_dependencies(self._statistics_checked()):
            steps = sequence.steps._replace(step_type=tf.identity(sequence.steps.step_type))
        info = self._loss_info(self._compiled_update(sequence._replace(steps=steps), weights))
        # Not before the batch is there: a dataset that ends instead makes no update.
        with tf.control_dependencies([info.loss]):
            self.train_step_counter.assign_add(1)
        tf.cond(self.train_step_counter % self._target_update_period == 0, self._replace_target, lambda: None)
        if self._shows_torso:
            due = self.train_step_counter % self._summary_interval == 0
            observation = sequence.steps.observation
            info.extra.scalars.update(torso_activity(self.network, observation, self.shape, due))
        if self.debug_summaries:
            self._summarise(info.extra)
        return info

    def sequences(self, experience: Trajectory | Sequence) -> Sequence:
        """Experience for `train` as a `Sequence`; raises ValueError where it does not fit."""
        return sequences_of(experience, self.collect_data_spec, self.shape)

    def _statistics_checked(self) -> list[tf.Operation]:
        """Raises, in a graph when it runs, if the scaling has seen no statistics."""
        observed = self.scaling.observed
        if observed is True:
            return []
        if not tf.executing_eagerly():
            return [tf.debugging.Assert(observed, [_NO_STATISTICS])]
        if not observed:
            raise tf.errors.InvalidArgumentError(None, None, _NO_STATISTICS)
        return []

    def _update(self, sequence: Sequence, weights: tf.Tensor | None) -> TDLoss:
        """One update of the online network."""
        self.scaling.before_update(self.network.heads, self.target_network.heads)
        result, pairs = self._td_loss.with_gradients(*_arguments(sequence, weights, ~self._initialised))
        if self._gradient_clipping is not None:
            pairs = eager_utils.clip_gradient_norms(pairs, self._gradient_clipping)
        if self.summarize_grads_and_vars:
            eager_utils.add_variables_summaries(pairs, self.train_step_counter)
            eager_utils.add_gradients_summaries(pairs, self.train_step_counter)
        # Not before the loss is there: what is refused changes nothing.
        with tf.control_dependencies([result.loss]):
            self._initialised.assign(True)
            self._compiled_adam(pairs)
        self.scaling.after_update(result.targets, result.outputs, result.mask, self.network.heads)
        return result

    def _replace_target(self) -> None:
        for variable, source in zip(self.target_network.variables, self.network.variables, strict=True):
            variable.assign(source)
        self.scaling.target_updated()

    def set_torso_from(self, sequences: list[Sequence]) -> None:
        """Sets the torsos' layers by the sequences' real rows, before the first update. Eager, outside of replicas."""
        # Rows behind the burn-in that begin a transition, unpadded: [N, ...], by name or not.
        rows, real = (self.shape.burn_in, self.shape.rows - 1), []
        for sequence in sequences:
            steps = self.sequences(sequence).steps
            kept = functools.partial(
                tf.boolean_mask, mask=tf.transpose(transitions(steps, self.heads, self.shape).mask)
            )
            real.append(tf.nest.map_structure(kept, rows_of(steps.observation, *rows)))
        self.network.set_torso_from(tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *real))
        self._replace_target()

    def _loss_info(self, result: TDLoss) -> tf_agent.LossInfo:
        """Packs an update as TF-Agents wants it."""
        per_head, scalars = batch_means(result)
        return tf_agent.LossInfo(result.loss, LossExtra(result.priorities, per_head, scalars))

    def _summarise(self, extra: LossExtra) -> None:
        """Writes the means of an update as TF-Agents' agents write theirs: by the writer in force."""
        for tag, value in extra.scalars.items():
            tf.summary.scalar(tag, value, self.train_step_counter)
        for tag, values in extra.per_head.items():
            for name, value in zip(self.heads.names, tf.unstack(values), strict=True):
                tf.summary.scalar(f"{tag}/{name}", value, self.train_step_counter)

    def state_summaries(self) -> dict[str, tf.Tensor]:
        """State of the agent for TensorBoard, beside the means of a batch: tag -> [H]. Eager, outside of replicas."""
        scaling = {f"scaling/{name}": value for name, value in self.scaling.summaries().items()}
        return {PROBABILITY: self.collect_policy.head_probabilities} | scaling


def _mirrors_cpus(strategy: tf.distribute.Strategy) -> bool:
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    return mirrored and any("CPU" in device for device in strategy.extended.worker_devices)


def _per_sequence(weights: Any, sequence: Sequence) -> tf.Tensor | None:
    """Weights as float32 [B] or []; raises ValueError for another shape."""
    if weights is None:
        return None
    weights, sequences = tf.cast(weights, tf.float32), sequence.probability
    if weights.shape.rank == 0:
        return weights
    wanted = "weights must have shape [B], one number per sequence"
    if not weights.shape.is_compatible_with(sequences.shape):
        raise ValueError(f"{wanted}, {sequences.shape} here; got {weights.shape}")
    # What is known only when a graph runs must not spread either.
    fits = tf.debugging.assert_equal(tf.size(weights), tf.size(sequences), wanted)
    with tf.control_dependencies([] if fits is None else [fits]):
        return tf.identity(weights)


def _arguments(sequence: Sequence, *others: tf.Tensor | None) -> tuple:
    """Of `LossBehindTorsos`: what the networks see, and what else `td_loss` takes."""
    observation, steps = sequence.steps.observation, sequence.steps._replace(observation=())
    seen = observation, steps.previous_action, steps.reward
    # What is compiled takes no arguments that it does not use: they would be copied.
    return seen, steps.step_type, sequence._replace(steps=steps), *others


def _compiled(function: Callable, by_xla: bool | None) -> Callable:
    return tf.function(function, jit_compile=True, autograph=False) if by_xla else function
