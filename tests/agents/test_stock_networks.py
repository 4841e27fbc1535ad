"""What the agent is built of: stock networks, a layer as the scaling, an optimizer of one's own."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.networks import network, q_network, q_rnn_network, sequential
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec

from agents.agent import RecurrentMultiHeadAgent
from agents.bandit import HeadBandit
from agents.heads import Heads
from agents.scalings import PopArt, ReturnBasedScaling, ReturnOut, Scaling, TwoHot
from agents.sequences import SequenceShape
from networks import AnyNetwork, RecurrentQNetwork
from rbs_tf import ReturnScaling
from tests.agents.small_agent import (
    ACTION,
    ACTIONS,
    FEATURES,
    OBSERVATION,
    PAIRS,
    SEEN,
    SHAPE,
    TIME_STEP,
    as_sequence,
    as_trajectory,
    make_agent,
    random_windows,
    some_moments,
)
from tests.agents.stock import batch_of, in_tensorflow, step_driver

ONE_HEAD = Heads([(0.9, False)])


def rnn(**options):
    sizes = {"input_fc_layer_params": (6,), "lstm_size": (5,), "output_fc_layer_params": (4,)}
    return q_rnn_network.QRnnNetwork(OBSERVATION, ACTION, **sizes, **options)


class SeesAll(network.Network):
    """A user's own: three heads, which see the previous action and reward, and one state that is no tuple."""

    def __init__(self, input_tensor_spec, heads=3, name="SeesAll"):
        super().__init__(input_tensor_spec, state_spec=tf.TensorSpec((5,), tf.float32), name=name)
        self._heads = heads
        self._rnn = tf.keras.layers.GRUCell(5)
        self._out = tf.keras.layers.Dense(heads * ACTIONS)

    def call(self, inputs, step_type=None, network_state=(), training=False):
        observation, action, reward = inputs
        features = tf.concat([observation, tf.one_hot(action, ACTIONS), reward[..., None]], axis=-1)
        single = features.shape.rank == 2
        features, step_type = (x[:, None] if single else x for x in (features, step_type))
        state, outputs = network_state, []
        for t in range(features.shape[1]):
            state = tf.where(step_type[:, t, None] == 0, tf.zeros_like(state), state)
            output, state = self._rnn(features[:, t], state)
            outputs.append(tf.reshape(self._out(output), [-1, self._heads, ACTIONS]))
        return outputs[0] if single else tf.stack(outputs, axis=1), state


def sees_all(**options):
    return SeesAll(SEEN, **options)


def built(q_network, **options):
    options = {
        "shape": SHAPE,
        "heads": ONE_HEAD,
        "train_step_counter": tf.Variable(0, dtype=tf.int64),
    } | options
    return RecurrentMultiHeadAgent(TIME_STEP, ACTION, q_network, **options)


NETWORKS = {
    "QRnnNetwork": (rnn, ONE_HEAD),
    "three heads that see all": (sees_all, Heads(PAIRS)),
    "ours": (
        lambda: RecurrentQNetwork(SEEN, ACTIONS, 3, lstm_units=5),
        Heads(PAIRS),
    ),
}


@pytest.mark.parametrize(
    "name, burn_in, double_q",
    [("QRnnNetwork", 0, False), ("three heads that see all", 2, True), ("ours", 2, True)],
)
def test_any_recurrent_network_collects_and_trains_through_a_stock_buffer(name, burn_in, double_q):
    make, heads = NETWORKS[name]
    shape = SequenceShape(burn_in=burn_in, length=4, period=2, n_step=2)
    agent = built(make(), heads=heads, shape=shape, double_q=double_q, jit_compile=False)
    environments, batch = batch_of(2)
    environment = in_tensorflow(batch)
    buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(agent.collect_data_spec, 2, max_length=200)
    driver = step_driver(environment, agent, 120, [buffer.add_batch, *agent.observers])
    driver.run(environment.reset(), agent.collect_policy.get_initial_state(2))
    draws = iter(buffer.as_dataset(sample_batch_size=8, num_steps=agent.train_sequence_length))
    before = [variable.numpy() for variable in agent.network.trainable_variables]
    for _ in range(3):
        info = agent.train(next(draws)[0])
        assert np.isfinite(info.loss) and info.extra.priorities.shape == [8]
    assert agent.train_step_counter.numpy() == 3
    changed = [np.any(a != b.numpy()) for a, b in zip(before, agent.network.trainable_variables, strict=True)]
    assert all(changed)
    # What acting saw is what learning sees: unrolled from the stored state, values are the same.
    windows = next(draws)[0]
    info = windows.policy_info
    seen = windows.observation, info.previous_action, info.previous_reward
    for variable, value in zip(agent.network.trainable_variables, before, strict=True):
        variable.assign(value)
    values, _ = agent.network(seen, windows.step_type, tuple(state[:, 0] for state in info.core_state))
    np.testing.assert_allclose(tf.reduce_max(values, axis=-1), info.greedy_values, rtol=1e-4, atol=1e-5)


def one_head_trajectory(agent):
    """Windows of any rows for an agent with one head and another state."""
    made = as_trajectory(random_windows())
    values = tf.zeros((4, SHAPE.rows, len(agent.heads)))
    state = tuple(tf.zeros((4, SHAPE.rows, *spec.shape)) for spec in agent.network.state_spec)
    info = made.policy_info._replace(core_state=state, taken_values=values, greedy_values=values)
    return made._replace(policy_info=info)


def test_a_torso_of_ones_own_is_told_when_it_trains():
    class Noted(tf.keras.layers.Layer):
        def call(self, observation, training=False):
            told.append(training)
            return observation

    told = []
    network = RecurrentQNetwork(SEEN, ACTIONS, 1, torso=lambda seed: Noted(), lstm_units=5)
    agent = built(network, jit_compile=False)
    agent.observe(some_moments(ONE_HEAD.pairs))
    told.clear()
    agent.train(one_head_trajectory(agent))
    assert sorted(told) == [False, False, True], "the online network does, behind the burn-in"


def test_parts_serve_one_agent():
    network, layer, adam = rnn(), ReturnScaling(), tf.keras.optimizers.Adam(1e-3)
    built(network, scaling=layer, optimizer=adam)
    for words, other, own in (
        ("this QRnnNetwork is in another agent", network, {}),
        ("this ReturnScaling is in another agent", rnn(), {"scaling": layer}),
        ("this Adam is in another agent", rnn(), {"optimizer": adam}),
    ):
        with pytest.raises(ValueError, match=words):
            built(other, **own)


def test_networks_that_do_not_fit_are_refused():
    def refused(words, q_network, kind=ValueError, **options):
        with pytest.raises(kind, match=words):
            built(q_network, **options)

    refused(r"puts out \[3\] for a row, and the agent needs \[3, 3\].*heads=Heads", rnn(), heads=Heads(PAIRS))
    refused(r"puts out \[3\].*needs \[10, 3\]", rnn(), heads=None)
    refused(r"puts out \[3, 3\] for a row, and the agent needs \[1, 3\]", sees_all())
    refused("has no state", q_network.QNetwork(OBSERVATION, ACTION))
    refused("must be a tf_agents.networks.Network", tf.keras.layers.Dense(3), TypeError)
    other = q_rnn_network.QRnnNetwork(tf.TensorSpec((2,), tf.float32), ACTION, lstm_size=(3,))
    refused(r"sees TensorSpec\(shape=\(2,\)", other)
    ours = NETWORKS["ours"][0]()
    refused("num_heads=3, .*and the agent needs RecurrentQNetwork.*num_heads=1, ", ours)
    for scaling in (ReturnOut, PopArt, functools.partial(ReturnBasedScaling, value_bias=True), "return_out"):
        refused("rewrites the network's last layers.*take networks.Rec", rnn(), scaling=scaling)
    refused(r"puts out \[3\] for a row, and the agent needs \[1, 3, 255\]", rnn(), scaling=TwoHot)
    layer = tf.keras.layers.LSTM(4, return_state=True, return_sequences=True)
    shared = sequential.Sequential([layer, tf.keras.layers.Dense(3)], input_spec=OBSERVATION)
    built(shared)  # copies its layers
    for spec in (tf.TensorSpec((), tf.int32), tensor_spec.BoundedTensorSpec((2,), tf.int32, 0, 1)):
        with pytest.raises(ValueError, match="whole numbers from 0, one for each step"):
            RecurrentMultiHeadAgent(TIME_STEP, spec, rnn())


def test_a_layer_is_the_scaling():
    """The user's object, whose statistics the observers feed and whose scale divides the errors."""
    layer = ReturnScaling(num_heads=3)
    agent, other = make_agent(scaling=layer), make_agent()
    assert agent.scaling.layer is layer
    sequence = as_sequence(random_windows())
    for each in (agent, other):
        each.observe(some_moments())
    for _ in range(2):
        a, b = agent.train(sequence), other.train(sequence)
        assert float(a.loss) == float(b.loss)
    np.testing.assert_array_equal(layer.sigma_v, other.scaling.layer.sigma_v)
    assert (layer.sigma_v.numpy() != 1e-2).all() and (layer.sigma.numpy() > 0).all()


def test_a_layers_sigma_v_is_measured_unless_the_user_has_set_it():
    given, assigned = ReturnScaling(num_heads=3, sigma_v=[0.5, 1e-2, 0.25]), ReturnScaling(num_heads=3)
    agents = make_agent(scaling=given), make_agent(scaling=assigned), make_agent()
    assigned.sigma_v.assign([3.0, 1e-2, 1e-2])
    for agent in agents:
        agent.observe(some_moments())
        agent.train(as_sequence(random_windows()))
    measured = agents[-1].scaling.layer.sigma_v.numpy()
    np.testing.assert_array_equal(given.sigma_v, [0.5, measured[1], 0.25])
    np.testing.assert_array_equal(assigned.sigma_v, [3.0, *measured[1:]])


def test_a_scaling_goes_by_its_name_or_is_none():
    assert type(make_agent(scaling="return_out").scaling) is ReturnOut
    assert type(make_agent(scaling="return").scaling) is ReturnBasedScaling
    assert type(make_agent(scaling="return_based").scaling) is ReturnBasedScaling
    assert type(make_agent(scaling=None).scaling) is Scaling
    with pytest.raises(ValueError, match="there is no scaling 'popart': write one of .*pop_art"):
        make_agent(scaling="popart")
    with pytest.raises(
        ValueError, match=r"layer has 10 heads and the agent 3: write ReturnScaling\(num_heads=3\)"
    ):
        make_agent(scaling=ReturnScaling(num_heads=10))
    with pytest.raises(
        TypeError, match="must be a class of agents.scalings, a ReturnScaling layer, a name, or None"
    ):
        built(rnn(), scaling=3)


def test_defaults_are_the_papers_and_every_setting_is_an_argument():
    ten = RecurrentQNetwork(SEEN, ACTIONS, 10, lstm_units=3)
    agent = RecurrentMultiHeadAgent(TIME_STEP, ACTION, ten)
    assert len(agent.heads) == 10 and agent.train_sequence_length == 105
    assert type(agent.scaling) is ReturnBasedScaling
    assert float(agent.optimizer.learning_rate) == pytest.approx(2e-4)
    assert agent.bandit._window_heads.shape == HeadBandit(3)._window_heads.shape
    agent = make_agent(bandit_window=7, epsilon_greedy=0.5)
    assert agent.bandit._window_heads.shape == [7]
    np.testing.assert_allclose(agent.collect_policy.epsilons, [0.5])
    np.testing.assert_allclose(make_agent(epsilon_greedy=(0.1, 0.2)).collect_policy.epsilons, [0.1, 0.2])
    np.testing.assert_allclose(make_agent(evaluation_epsilon=0.4).policy.epsilons, [0.4])
    with pytest.raises(ValueError, match="MultiHeadPolicy.epsilons"):
        make_agent(epsilon_greedy=2.0)
    with pytest.raises(ValueError, match="learning_rate = -1: expected a number from 0 to 100"):
        make_agent(learning_rate=-1)
    averaging = tf.keras.optimizers.Adam(use_ema=True)
    with pytest.raises(ValueError, match="averages would stay in units from before: leave use_ema=True out"):
        make_agent(scaling="return_out", optimizer=averaging)
    make_agent(optimizer=averaging)


@pytest.mark.parametrize("optimizer", [tf.keras.optimizers.legacy.Adam, tf.compat.v1.train.AdamOptimizer])
def test_an_optimizer_of_ones_own(optimizer):
    """Compiled in part, without the optimizer."""
    agent = make_agent(ONE_HEAD.pairs, optimizer=optimizer(0.1), jit_compile=None)
    agent.observe(some_moments(ONE_HEAD.pairs))
    before = [variable.numpy() for variable in agent.network.trainable_variables]
    train = tf.function(agent.train)
    for _ in range(2):
        train(as_sequence(random_windows()))
    assert any(np.any(a != b) for a, b in zip(before, agent.network.trainable_variables, strict=True))


def test_an_adapter_hands_on_the_previous_action_and_reward():
    """Each output is that of the network itself on the same three inputs, of which each matters."""
    network = sees_all()
    adapted, rng = AnyNetwork(network, OBSERVATION, ACTIONS, 3), np.random.default_rng(0)
    adapted.create_variables()
    observations = rng.normal(size=(4, 7, FEATURES)).astype(np.float32)
    actions, rewards = rng.integers(ACTIONS, size=(4, 7)), rng.normal(size=(4, 7)).astype(np.float32)
    step_type, state = tf.ones((4, 7), tf.int32), (tf.zeros((4, 5)),)
    values, _ = adapted((observations, actions, rewards), step_type, state)
    inputs = observations, tf.cast(actions, tf.int32), tf.constant(rewards)
    np.testing.assert_array_equal(values, network(inputs, step_type=step_type, network_state=state[0])[0])
    for other in ((1 - observations, actions, rewards), (observations, 0 * actions, rewards)):
        assert np.any(values != adapted(other, step_type, state)[0])
    assert np.any(values != adapted((observations, actions, 0 * rewards), step_type, state)[0])


def test_heads_may_be_their_pairs_and_other_arguments_are_refused_in_words():
    agent = built(rnn(), heads=[(0.9, False)])
    assert agent.heads.names == ("unclipped_0.9",)
    with pytest.raises(
        ValueError, match=r"Heads.pairs = 2: expected a tuple of heads.*\(\(0.997, False\),\)"
    ):
        built(rnn(), heads=2)
    with pytest.raises(
        ValueError, match="SequenceShape.length = .*expected a whole number from 1 to 1,000,000"
    ):
        SequenceShape(length=2**61)


def test_an_adapter_is_a_network_as_ours_is():
    adapted = AnyNetwork(rnn(), OBSERVATION, ACTIONS, 1)
    adapted.create_variables()
    rows = tf.zeros((4, 7, FEATURES)), tf.zeros((4, 7), tf.int32), tf.zeros((4, 7))
    values, state = adapted(rows, tf.ones((4, 7), tf.int32))
    assert values.shape == [4, 7, 1, ACTIONS] and [x.shape for x in state] == [[4, 5]] * 2
    copied = adapted.copy("target")
    assert {v.ref() for v in copied.variables}.isdisjoint({v.ref() for v in adapted.variables})
