"""The learner's half of the agent: recurrent multi-head Q-learning on replayed sequences, as a `TFAgent`."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.networks import network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.trajectory import Trajectory

from agents.bandit import HeadBandit
from agents.checks import check, number
from agents.experience import read_sequences, read_weights
from agents.heads import Heads, PairsOfHeads
from agents.monitoring.diagnostics import summarise_loss
from agents.observers import StatisticsObserver, check_observed
from agents.policy import PAPER_EPSILONS, MultiHeadPolicy, num_actions
from agents.scalings import ReturnBasedScaling, Scaling
from agents.scalings.making import Choice
from agents.scalings.making import make as make_scaling
from agents.sequences import Sequence, SequenceShape, Steps
from agents.update import LossOptions, TDLoss, first_priorities, td_loss
from networks.any_network import build_networks
from networks.loss_behind_torsos import Inputs, LossBehindTorsos, choose_compiled, compile_function
from rbs_tf import ReturnMoments

LEARNING_RATE = number(least=0, most=100)


class RecurrentMultiHeadAgent(tf_agent.TFAgent):
    """R2D2 with many value heads whose TD errors pass through one exchangeable scaling.

        agent = RecurrentMultiHeadAgent(env.time_step_spec(), env.action_spec(), q_network)
        driver = DynamicStepDriver(env, agent.collect_policy, [buffer.add_batch, *agent.observers], num_steps=100)
        agent.train(trajectory)      # [B, L, ...], L = agent.train_sequence_length

    `agents.update` has the loss. Every head learns from all experience. Discounts are the environment's times its own.
    `train` takes sequences as `Trajectory` of `collect_data_spec`, or as `Sequence` of our own replay; `weights` [B]
    multiply the loss of each sequence. Rows behind an episode's end train as the next episode. `observers` keep the
    scaling's statistics and choose the head that acts. All heads are equally likely until an episode has ended.

    Under a strategy each replica trains on an equal share of the batch, inside `strategy.run`, and their losses add up
    to the batch's. Policies and observers stay outside of it and see the first replica's weights.

    Args:
      time_step_spec, action_spec: of TF-Agents, unbatched; an action is a scalar that counts from 0.
      q_network: recurrent, with H heads: `networks.RecurrentQNetwork`, or any of TF-Agents, see `networks.AnyNetwork`.
      optimizer: of Keras, made in the strategy's scope; it may clip (`clipnorm`). None: Adam.
      heads: the value functions, or H pairs (discount, whether rewards are clipped). None: `Heads()`, the paper's ten.
      scaling: a class of `agents.scalings` or another factory called with H, a `ReturnScaling` layer of H heads, a name
        such as "return_out", or None for no scaling. See `agents.scalings.making`.
      shape: the layout of a sequence: burn_in + length + n_step rows. None: `SequenceShape()`.
      epsilon_greedy: how often the collect policy acts at random, or the values that an episode draws it from.
      bandit_window: how many finished episodes count when the acting head is chosen.
      seed: of exploration and head choice.
      learning_rate: of Adam. It does not count where an optimizer is given, nor does adam_epsilon.
      adam_epsilon: of Adam.
      target_update_period: updates between two target networks.
      double_q: the online network chooses the bootstrap action (van Hasselt 2016); off in the paper.
      priority_eta: weight of the maximum in a sequence's priority.
      importance_exponent: beta of the importance weights of a `Sequence`.
      evaluation_epsilon: how often evaluation acts at random: 0 is greedy play (DQN, Mnih et al. 2015: 0.05).
      jit_compile: compile the update with XLA: all of it, or nothing. None: all of it on a GPU; on a CPU, where XLA is
        slow at convolutions and large products, Adam and what lies behind the torso, for a core of at most 128 units;
        nothing under a strategy, though TPUs compile all that they run.
      strategy: a `tf.distribute.Strategy`; do not build the agent inside its scope. None: no replicas.
      train_step_counter: int64 variable that counts updates, created in the strategy's scope. None: the global step.

    Raises:
      TypeError: a q_network or scaling of another type.
      ValueError: the agent is built inside a strategy's scope; jit_compile under a strategy that mirrors CPUs; actions
        that do not count from 0; a learning rate below 0; parts of another agent, or that do not fit each other.
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
        epsilon_greedy: float | tuple[float, ...] = PAPER_EPSILONS,
        bandit_window: int = 200,
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
        train_step_counter: tf.Variable | None = None,
    ):
        tf.Module.__init__(self)  # TFAgent's own does not
        # What was given: parts that no other agent has, as objects of our own.
        if tf.distribute.has_strategy():
            raise ValueError(
                "build RecurrentMultiHeadAgent outside of strategy.scope(), and hand it strategy=strategy: it makes "
                "what trains in the scope, and what acts outside of it"
            )
        for part in (q_network, scaling, optimizer):
            if getattr(part, "in_agent", False):
                raise ValueError(
                    f"this {type(part).__name__} is in another agent, and two would undo each other's work"
                )
        time_step_spec, action_spec = map(tensor_spec.from_spec, (time_step_spec, action_spec))
        self.strategy = strategy or tf.distribute.get_strategy()
        heads = Heads() if heads is None else heads
        self.heads = heads if isinstance(heads, Heads) else Heads(heads)
        self.shape = SequenceShape() if shape is None else shape

        # What trains is made in the scope, so that each replica has variables of its own.
        with self.strategy.scope():
            self.scaling: Scaling = make_scaling(scaling, len(self.heads))
            self.network, self.target_network = build_networks(
                q_network,
                time_step_spec.observation,
                num_actions(action_spec),
                len(self.heads),
                self.scaling.outputs_per_action,
                self.scaling.rewrites_outputs,
            )
            if optimizer is None:
                check("RecurrentMultiHeadAgent.learning_rate", learning_rate, LEARNING_RATE, example=2e-4)
                optimizer = tf.keras.optimizers.Adam(learning_rate, epsilon=adam_epsilon)
            if self.scaling.rewrites_outputs and getattr(optimizer, "use_ema", False):
                raise ValueError("averages would stay in units from before: leave use_ema=True out")
            self.optimizer = optimizer
            if hasattr(optimizer, "build"):  # others make their variables in the first update
                optimizer.build(self.network.trainable_variables)
            self._initialised = tf.Variable(False, trainable=False, name="initialised")
        if self.network.reward_input is not None and self.heads.unclipped is None:
            raise ValueError(
                'RecurrentQNetwork.reward_input = "rms" takes its statistics from a head of unclipped rewards, and '
                'Heads.pairs has none. Write (discount, False) for one of them, or leave the input at "clip"'
            )

        # How it trains. XLA compiles the whole update, or the loss behind the torso and Adam, or nothing.
        self._target_update_period = target_update_period
        self._options = LossOptions(double_q, priority_eta, importance_exponent)
        loss = functools.partial(
            td_loss, scaling=self.scaling, heads=self.heads, shape=self.shape, options=self._options
        )
        online_rows = self.shape.rows if double_q else self.shape.burn_in + self.shape.length
        compiled = choose_compiled(self.network, jit_compile, self.strategy)
        behind_torso = compiled == "behind_torso"
        self._td_loss = LossBehindTorsos(
            self.network, self.target_network, loss, self.shape.burn_in, online_rows, compiled=behind_torso
        )
        self._run_update = compile_function(self._update, compiled == "update")
        self._apply_gradients = compile_function(
            optimizer.apply_gradients, behind_torso and hasattr(optimizer, "build")
        )

        # What acts is made outside of the scope: in it, random generators would work in `strategy.run` only.
        self.bandit = HeadBandit(len(self.heads), bandit_window)
        acts = functools.partial(
            MultiHeadPolicy, time_step_spec, action_spec, self.network, len(self.heads), self.scaling.decode
        )
        super().__init__(
            time_step_spec,
            action_spec,
            acts(seed=seed + 1, epsilons=(evaluation_epsilon,)),
            acts(seed=seed, epsilons=np.atleast_1d(epsilon_greedy).tolist()),
            train_sequence_length=self.shape.rows,
            train_step_counter=train_step_counter,
        )
        self._observer: StatisticsObserver | None = None
        self.replace_target()

        # Only now, so that parts of an agent that was refused can be used again.
        for part in (q_network, scaling, optimizer):
            if isinstance(part, tf.Module | tf.keras.optimizers.Optimizer):
                part.in_agent = True

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
        reward_input = self.network.reward_input
        if reward_input is None:
            return
        head = self.heads.unclipped
        # The input is in the environment's own rewards. Both networks get the same unit at once, so that targets do not
        # lag behind.
        mean_square = moments.reward_variance[head] + moments.reward_mean[head] ** 2
        reward_input.observe(moments.count[head], mean_square / self.heads.reward_multiplier**2)
        self.target_network.reward_input.statistics.assign(reward_input.statistics)

    def update_bandit(self, heads: np.ndarray | tf.Tensor, returns: np.ndarray | tf.Tensor) -> None:
        """Takes heads and raw returns of finished training episodes; sets the probabilities of heads."""
        self.bandit.update(heads, returns)
        self.collect_policy.head_probabilities.assign(tf.cast(self.bandit.probabilities, tf.float32))
        self.policy.act_with(tf.argmax(self.bandit.lower_ends))

    def initial_priorities(self, steps: Steps, taken: tf.Tensor, greedy: tf.Tensor) -> tf.Tensor:
        """Priorities of new sequences, see `agents.update.first_priorities`; the observation may be None."""
        return first_priorities(steps, taken, greedy, self.scaling, self.heads, self.shape, self._options.eta)

    def sequences(self, experience: Trajectory | Sequence) -> Sequence:
        """Experience for `train` as a `Sequence`; raises ValueError where it does not fit."""
        return read_sequences(experience, self.collect_data_spec, self.shape)

    def sequence_errors(self, sequence: Sequence, weights: tf.Tensor | None = None) -> TDLoss:
        """Loss and scaled TD errors of the training rows; changes nothing. Before an update, sigma_v is a default."""
        inputs, rest = _split_inputs(sequence)
        return self._td_loss(inputs, rest, weights, None)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and that takes seconds
    def _loss(
        self, experience: Trajectory | Sequence, weights: tf.Tensor | None = None, training: bool = False
    ) -> tf_agent.LossInfo:
        sequence = self.sequences(experience)
        result = self.sequence_errors(sequence, read_weights(weights, sequence))
        return tf_agent.LossInfo(result.loss, summarise_loss(result))

    @tf.autograph.experimental.do_not_convert  # nothing to convert, and that takes seconds
    def _train(
        self, experience: Trajectory | Sequence, weights: tf.Tensor | None = None
    ) -> tf_agent.LossInfo:
        # Observations are unpacked ahead of XLA, which would recompile for every number of pieces.
        sequence = self.sequences(experience)
        weights = read_weights(weights, sequence)
        with tf.control_dependencies(check_observed(self.scaling)):
            steps = sequence.steps._replace(step_type=tf.identity(sequence.steps.step_type))
        result = self._run_update(sequence._replace(steps=steps), weights)
        info = tf_agent.LossInfo(result.loss, summarise_loss(result))
        # The update counts once it has been made: a dataset that ends instead of giving a batch makes none.
        with tf.control_dependencies([info.loss]):
            self.train_step_counter.assign_add(1)
        tf.cond(self.train_step_counter % self._target_update_period == 0, self.replace_target, lambda: None)
        return info

    def _update(self, sequence: Sequence, weights: tf.Tensor | None) -> TDLoss:
        """One update of the online network."""
        self.scaling.before_update(self.network.heads, self.target_network.heads)
        inputs, rest = _split_inputs(sequence)
        # The torso runs here, once for each row. What is behind it has a tape of its own, and XLA may compile it.
        with tf.GradientTape() as tape:
            features = self._td_loss.features(inputs.observation)
        result, of_features, gradients = self._td_loss.gradients(
            features, inputs, rest, weights, ~self._initialised
        )
        torso = self.network.torso_variables
        if torso:
            gradients = tape.gradient([features.online], torso, of_features) + gradients
        pairs = [*zip(gradients, torso + self.network.variables_behind_torso, strict=True)]
        # The weights change once the loss is there: a batch that is refused changes nothing.
        with tf.control_dependencies([result.loss]):
            self._initialised.assign(True)
            self._apply_gradients(pairs)
        self.scaling.after_update(result.targets, result.outputs, result.mask, self.network.heads)
        return result

    def compile_ahead(self, batch_size: int) -> None:
        """Compiles the loss behind the torso for batches of this size, where it is compiled; changes nothing else."""
        if self._td_loss.compiled:
            zeros = tensor_spec.zero_spec_nest(self.collect_data_spec, (batch_size, self.shape.rows))
            inputs, rest = _split_inputs(self.sequences(zeros))
            self._td_loss.compile_ahead(inputs, rest, None, tf.constant(False))

    def replace_target(self) -> None:
        """Makes the target network a copy of the online network; `train` does so every `target_update_period`."""
        for variable, source in zip(self.target_network.variables, self.network.variables, strict=True):
            variable.assign(source)
        self.scaling.target_updated()


def _split_inputs(sequence: Sequence) -> tuple[Inputs, Sequence]:
    """Splits a batch into what the networks see and what the loss takes, which is all but the observation."""
    steps = sequence.steps
    inputs = Inputs(
        steps.observation, steps.previous_action, steps.reward, steps.step_type, sequence.core_state
    )
    return inputs, sequence._replace(steps=steps._replace(observation=()))
