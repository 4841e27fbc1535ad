"""The work that the speed benchmarks share: networks of both sizes, our agent, and batches of windows for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_rnn_network
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

import networks
from agents.agent import RecurrentMultiHeadAgent
from agents.heads import TEN_HEADS, Heads
from agents.scalings import ReturnBasedScaling
from agents.sequences import Sequence, SequenceShape, Steps
from rbs_tf import ReturnMoments

ONE_HEAD = ((0.99, False),)


@dataclasses.dataclass(frozen=True)
class Work:
    """A network and windows for it.

    Attributes:
      name: for tables.
      observation: shape of one, height, width, channels; the paper's are pixels, small ones are flags 0 and 1.
      actions: A.
      torso: factory of the network's torso, called with `compute_dtype` and `seed`.
      lstm_units, post_lstm_units, head_hidden: of `networks.RecurrentQNetwork`.
      batch: windows per update.
      shape: their layout.
    """

    name: str
    observation: tuple[int, int, int]
    actions: int
    torso: Callable[..., tf.keras.layers.Layer]
    lstm_units: int
    post_lstm_units: int
    head_hidden: int
    batch: int
    shape: SequenceShape

    @property
    def flags(self) -> bool:
        return self.observation[0] < 42

    @property
    def observation_spec(self) -> tensor_spec.BoundedTensorSpec:
        return tensor_spec.BoundedTensorSpec(self.observation, tf.uint8, 0, 1 if self.flags else 255)

    @property
    def time_step_spec(self) -> ts.TimeStep:
        return ts.time_step_spec(self.observation_spec)

    @property
    def action_spec(self) -> tensor_spec.BoundedTensorSpec:
        return tensor_spec.BoundedTensorSpec((), tf.int32, 0, self.actions - 1)


# The paper's network; its windows of 20 + 80 + 5 rows and batch of 32 take 30 times as long as these, frame for frame
# the same.
PAPER = Work(
    "paper's network", (210, 160, 3), 18, networks.atari_torso, 512, 256, 256, 4, SequenceShape(10, 40, 20, 5)
)
# MinAtar's frames and windows, and a network twice the quickstart's.
SMALL = Work(
    "small network", (10, 10, 6), 6, networks.small_torso, 128, 64, 64, 16, SequenceShape(5, 20, 10, 5)
)
# configs/quickstart.gin and configs/atari_small.gin, but that the latter has 128 units behind its core.
QUICKSTART = Work(
    "quickstart", (10, 10, 6), 6, networks.small_torso, 64, 64, 32, 8, SequenceShape(5, 20, 10, 5)
)
ATARI_SMALL = Work(
    "atari_small", (84, 84, 2), 6, networks.dqn_torso, 128, 64, 64, 16, SequenceShape(5, 20, 20, 5)
)


def native_bfloat16() -> bool:
    """Says whether this CPU computes in bfloat16; others emulate it, many times slower than float32."""
    return bool({"avx512_bf16", "amx_bf16"} & set(Path("/proc/cpuinfo").read_text().split()))


def network(
    work: Work,
    num_heads: int = 10,
    compute_dtype: str = "float32",
    seed: int = 0,
    outputs_per_action: int = 1,
) -> networks.RecurrentQNetwork:
    """Ours, not yet built."""
    return networks.RecurrentQNetwork(
        (work.observation_spec, tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32)),
        num_actions=work.actions,
        num_heads=num_heads,
        torso=lambda seed: work.torso(compute_dtype=compute_dtype, seed=seed),
        lstm_units=work.lstm_units,
        post_lstm_units=work.post_lstm_units,
        head_hidden=work.head_hidden,
        seed=seed,
        outputs_per_action=outputs_per_action,
    )


def agent(
    work: Work,
    num_heads: int = 10,
    compute_dtype: str = "float32",
    scaling: Callable = ReturnBasedScaling,
    **options,
) -> RecurrentMultiHeadAgent:
    """Ours with ten heads or one, and with statistics of some steps, so that scalings have something to scale by."""
    built = RecurrentMultiHeadAgent(
        work.time_step_spec,
        work.action_spec,
        network(work, num_heads, compute_dtype, outputs_per_action=scaling(num_heads).outputs_per_action),
        heads=Heads({1: ONE_HEAD, 10: TEN_HEADS}[num_heads]),
        scaling=scaling,
        shape=work.shape,
        train_step_counter=tf.Variable(0, dtype=tf.int64),
        **options,
    )
    random = np.random.default_rng(0)
    rewards, discounts = random.normal(size=(1000, num_heads)), np.full((1000, num_heads), 0.99)
    built.observe(ReturnMoments.from_episode(rewards, discounts))
    return built


def stock_agent(work: Work) -> dqn_agent.DqnAgent:
    """`DqnAgent` + `QRnnNetwork` on plain Keras layers of our torso's sizes: TF-Agents' own pad differently."""
    *convolutions, _, linear = work.torso(seed=0)._stages
    torso = tf.keras.Sequential(
        [
            tf.keras.layers.Rescaling(1.0 if work.flags else 1 / 255),  # uint8 -> float32
            *(
                tf.keras.layers.Conv2D(c.filters, c.kernel_size, c.strides, "same", activation="relu")
                for c in convolutions
            ),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(linear.units, "relu"),
        ]
    )
    network = q_rnn_network.QRnnNetwork(
        work.observation_spec,
        work.action_spec,
        preprocessing_layers=torso,
        input_fc_layer_params=None,
        lstm_size=(work.lstm_units,),
        output_fc_layer_params=(work.post_lstm_units,),
    )
    agent = dqn_agent.DqnAgent(
        work.time_step_spec,
        work.action_spec,
        q_network=network,
        optimizer=tf.keras.optimizers.Adam(2e-4, epsilon=1e-6),
        target_update_period=400,
        gamma=0.99,
        td_errors_loss_fn=common.element_wise_squared_loss,
        train_step_counter=tf.Variable(0, dtype=tf.int64),
    )
    agent.initialize()
    return agent


def windows(work: Work, seed: int = 0) -> Sequence:
    """A batch [B, L] in mid-episode; random observations, as what the network computes does not depend on them."""
    random = np.random.default_rng(seed)
    size = work.batch, work.shape.rows
    most = work.observation_spec.maximum
    steps = Steps(
        tf.ones(size, tf.int32),
        tf.constant(random.integers(0, most, (*size, *work.observation), np.uint8, endpoint=True)),
        tf.constant(random.integers(0, work.actions, size, np.int32)),
        tf.constant(random.normal(size=size), tf.float32),
        tf.ones(size),
    )
    state = (tf.zeros((work.batch, work.lstm_units)),) * 2
    return Sequence(
        steps, state, tf.fill((work.batch,), 0.01), tf.fill((work.batch,), tf.constant(100, tf.int64))
    )


def operations(work: Work) -> float:
    """Floating point operations of one update with ten heads: of matrix products and convolutions only.

    The target network runs forward on all rows of a window, the online one on the burn-in and the training rows, and on
    these backward: once for the weights and, behind the first layer, once for its input.
    """
    shape = work.shape
    forward = shape.rows + shape.burn_in + shape.length
    products = []  # of a row, forward: operations
    features = tf.zeros((1, *work.observation))
    for stage in work.torso(seed=0)._stages:
        features = stage(features)
        if stage.trainable_variables:
            positions = int(tf.size(features)) / stage.kernel.shape[-1]
            products.append(2.0 * positions * int(tf.size(stage.kernel)))
    built = network(work)
    built.create_variables()
    products += [2.0 * int(tf.size(v)) for v in built.variables_behind_torso if len(v.shape) > 1]
    rows = sum(products) * (forward + 2 * shape.length) - products[0] * shape.length
    return work.batch * rows
