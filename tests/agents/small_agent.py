"""A small agent and windows of random experience, for the tests of several modules."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.trajectory import Trajectory

from agents.agent import RecurrentMultiHeadAgent
from agents.heads import Heads
from agents.policy import PolicyInfo
from agents.scalings import ReturnBasedScaling
from agents.scalings.making import make as make_scaling
from agents.sequences import Sequence, SequenceShape, Steps
from networks.recurrent_q_network import RecurrentQNetwork
from networks.torsos import MlpTorso
from rbs_tf import ReturnMoments

SHAPE = SequenceShape(burn_in=2, length=4, period=2, n_step=3)
PAIRS = ((0.0, True), (0.9, False), (1.0, False))
ACTIONS, FEATURES = 3, 4
OBSERVATION = tf.TensorSpec((FEATURES,), tf.float32)
TIME_STEP = ts.time_step_spec(OBSERVATION)
ACTION = tensor_spec.BoundedTensorSpec((), tf.int32, 0, ACTIONS - 1)
SEEN = (
    OBSERVATION,
    tf.TensorSpec((), tf.int32),
    tf.TensorSpec((), tf.float32),
)  # by a network: with action and reward


def make_agent(
    pairs=PAIRS,
    scaling=ReturnBasedScaling,
    shape=SHAPE,
    seed=1,
    train_step=None,
    reward_input="clip",
    **options,
):
    if hasattr(tf.keras, "ops"):
        pytest.skip("TF-Agents' networks need Keras 2")
    network = RecurrentQNetwork(
        SEEN,
        num_actions=ACTIONS,
        num_heads=len(pairs),
        torso=lambda seed: MlpTorso((5,), seed=seed),
        lstm_units=4,
        post_lstm_units=4,
        head_hidden=3,
        reward_input=reward_input,
        seed=seed,
        outputs_per_action=make_scaling(scaling, len(pairs)).outputs_per_action,
    )
    if train_step is None:
        train_step = tf.Variable(0, dtype=tf.int64)
    options.setdefault("jit_compile", False)  # compiling takes seconds
    return RecurrentMultiHeadAgent(
        TIME_STEP,
        ACTION,
        network,
        heads=Heads(pairs),
        scaling=scaling,
        shape=shape,
        train_step_counter=train_step,
        **options,
    )


def random_windows(seed=0, shape=SHAPE, reward_scale=3.0, units=4):
    """Four windows: in mid-episode, first of an episode, terminated early, timed out early; NumPy arrays [B, L]."""
    rng = np.random.default_rng(seed)
    batch, rows = 4, shape.rows
    step_type = np.full((batch, rows), 1, np.int32)
    discount = np.ones((batch, rows))
    step_type[1, : shape.burn_in] = 2  # padding before an episode's first row
    step_type[1, shape.burn_in] = 0
    for sequence, end, last_discount in ((2, shape.burn_in + 2, 0.0), (3, rows - 2, 1.0)):
        step_type[sequence, end:] = 2
        discount[sequence, end] = last_discount
    previous_action = rng.integers(0, ACTIONS, (batch, rows)).astype(np.int32)
    previous_action[1, : shape.burn_in + 1] = -1
    windows = {
        "step_type": step_type,
        "observation": rng.normal(size=(batch, rows, FEATURES)).astype(np.float32),
        "previous_action": previous_action,
        "reward": (reward_scale * rng.normal(size=(batch, rows))).astype(np.float32),
        "discount": discount.astype(np.float32),
        "h": rng.normal(size=(batch, units)).astype(np.float32),
        "c": rng.normal(size=(batch, units)).astype(np.float32),
        "probability": rng.uniform(0.01, 0.1, batch).astype(np.float32),
        "table_size": np.full(batch, 50, np.int64),
    }
    windows["reward"][step_type == 0] = 0.0
    return windows


def as_sequence(windows):
    tensors = {name: tf.constant(values) for name, values in windows.items()}
    return Sequence(
        Steps(*(tensors[name] for name in Steps._fields)),
        (tensors["h"], tensors["c"]),
        tensors["probability"],
        tensors["table_size"],
    )


def as_trajectory(windows):
    """The rows of `as_sequence` as a stock `Trajectory`, [B, L].

    The states of later rows, and what follows the last one, are anything.
    """
    rng, batch = np.random.default_rng(7), len(windows["step_type"])

    def following(name):
        column = windows[name]
        return np.concatenate(
            [column[:, 1:], rng.integers(0, ACTIONS, (batch, 1)).astype(column.dtype)], axis=1
        )

    def states(name):
        rows = rng.normal(size=(batch, windows["step_type"].shape[1], windows[name].shape[1]))
        rows[:, 0] = windows[name]
        return rows.astype(np.float32)

    led_to = windows["previous_action"], windows["reward"], windows["discount"]
    values = rng.normal(size=(*windows["reward"].shape, len(PAIRS))).astype(np.float32)
    of_episode = np.zeros_like(windows["step_type"]), np.zeros_like(windows["reward"])
    info = PolicyInfo((states("h"), states("c")), *led_to, *of_episode, values, values)
    action, reward, discount = map(following, ("previous_action", "reward", "discount"))
    of_row = windows["step_type"], windows["observation"], np.maximum(action, 0), info
    return tf.nest.map_structure(tf.constant, Trajectory(*of_row, following("step_type"), reward, discount))


def outputs_of(network, sequence):
    """[B, L, H, A], and of distributions a last axis [K]."""
    steps = sequence.steps
    inputs = (steps.observation, steps.previous_action, steps.reward)
    return network(inputs, steps.step_type, sequence.core_state)[0]


def parameters(network):
    """The network's weights as float64 arrays, named as `numpy_step` wants them."""
    torso, core, linear, heads = network._torso._stages[-1], network._core, network._linear, network.heads
    variables = {
        "torso_w": torso.kernel,
        "torso_b": torso.bias,
        "lstm_x": core.W,
        "lstm_h": core.R,
        "lstm_b": core.b,
        "post_w": linear.kernel,
        "post_b": linear.bias,
        "w1": heads.W1,
        "b1": heads.b1,
        "wv": heads.Wv,
        "bv": heads.bv,
        "wa": heads.Wa,
        "ba": heads.ba,
    }
    return variables, {name: variable.numpy().astype(np.float64) for name, variable in variables.items()}


def shake(network, seed=5):
    """Other weights than those at initialisation, whose zero biases put units exactly on the kink of relu."""
    rng = np.random.default_rng(seed)
    for variable in network.trainable_variables:
        variable.assign_add(rng.normal(size=variable.shape).astype(np.float32) * 0.3)


@contextlib.contextmanager
def unchanged(variables):
    """Nothing inside changes these variables."""
    before = [variable.numpy() for variable in variables]
    yield
    for value, variable in zip(before, variables, strict=True):
        np.testing.assert_array_equal(value, variable, err_msg=variable.name)


def shaken(**options):
    """An agent whose weights are anything, whose target network has others, and whose statistics are known."""
    agent = make_agent(**options)
    shake(agent.network, seed=4)
    shake(agent.target_network, seed=5)
    agent.observe(some_moments())
    return agent


def some_moments(heads=PAIRS, seed=3):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(30, len(heads)))
    discounts = np.array([discount for discount, _ in heads]) * (np.arange(30) < 29)[:, None]
    return ReturnMoments.from_episode(rewards, discounts)


def observe_rewards(agent, windows):
    """Statistics of the windows, each as an episode of its own."""
    heads, columns = agent.heads, zip(windows["reward"], windows["discount"], strict=True)
    episodes = (ReturnMoments.from_episode(heads.rewards(r), heads.discounts(d)) for r, d in columns)
    agent.observe(functools.reduce(ReturnMoments.merge, episodes))


def measure_sigma_v(agent, sequence):
    """Lets the scaling see its first batch; an update without a step, so that weights stay."""
    rate = agent.optimizer.learning_rate.numpy()
    agent.optimizer.learning_rate.assign(0.0)
    agent.train(sequence)
    agent.optimizer.learning_rate.assign(rate)
