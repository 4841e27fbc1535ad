"""Every stock TF-Agents agent that takes a loss for TD errors learns with `ScaledLoss`, on Gymnasium environments."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from packaging.version import Version
from tf_agents.agents.cql import cql_sac_agent
from tf_agents.agents.ddpg import actor_network, critic_network, ddpg_agent
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.agents.td3 import td3_agent
from tf_agents.drivers import dynamic_step_driver, py_driver
from tf_agents.environments import tf_py_environment, wrappers
from tf_agents.networks import (
    actor_distribution_network,
    q_network,
    q_rnn_network,
    value_network,
)
from tf_agents.policies import py_tf_eager_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.utils import common

from rbs_tf import ReturnMoments, ScaledLoss, environments

GAMMA, NUM_ENVS, LENGTH = 0.9, 3, 3
Adam = tf.keras.optimizers.legacy.Adam


def dqn(kind, network):
    def build(time_steps, actions, loss):
        make, sizes = {
            "dense": (q_network.QNetwork, {"fc_layer_params": (8,)}),
            "recurrent": (
                q_rnn_network.QRnnNetwork,
                {"input_fc_layer_params": (8,), "lstm_size": (8,), "output_fc_layer_params": (8,)},
            ),
        }[network]
        q = make(time_steps.observation, actions, **sizes)
        return kind(time_steps, actions, q, Adam(1e-3), gamma=GAMMA, td_errors_loss_fn=loss)

    return build


def actor_and_critic(time_steps, actions):
    actor = actor_network.ActorNetwork(time_steps.observation, actions, fc_layer_params=(8,))
    critic = critic_network.CriticNetwork((time_steps.observation, actions), joint_fc_layer_params=(8,))
    return actor, critic


def ddpg(time_steps, actions, loss):
    networks = actor_and_critic(time_steps, actions)
    return ddpg_agent.DdpgAgent(
        time_steps, actions, *networks, Adam(1e-3), Adam(1e-3), gamma=GAMMA, td_errors_loss_fn=loss
    )


def td3(time_steps, actions, loss):
    networks = actor_and_critic(time_steps, actions)
    return td3_agent.Td3Agent(
        time_steps, actions, *networks, Adam(1e-3), Adam(1e-3), gamma=GAMMA, td_errors_loss_fn=loss
    )


def sac(kind):
    return lambda time_steps, actions, loss: build_sac(kind, time_steps, actions, loss)


def build_sac(kind, time_steps, actions, loss):
    actor = actor_distribution_network.ActorDistributionNetwork(
        time_steps.observation,
        actions,
        fc_layer_params=(8,),
        continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
    )
    _, critic = actor_and_critic(time_steps, actions)
    optimizers = {f"{name}_optimizer": Adam(1e-3) for name in ("actor", "critic", "alpha")}
    return kind(time_steps, actions, critic, actor, gamma=GAMMA, td_errors_loss_fn=loss, **optimizers)


CQL = {
    "cql_alpha": 0.1,
    "num_cql_samples": 2,
    "include_critic_entropy_term": True,
    "use_lagrange_cql_alpha": False,
}
AGENTS = {
    "DQN": (dqn(dqn_agent.DqnAgent, "dense"), "CartPole-v1"),
    "recurrent double DQN": (dqn(dqn_agent.DdqnAgent, "recurrent"), "CartPole-v1"),
    "DDPG": (ddpg, "Pendulum-v1"),
    "TD3": (td3, "Pendulum-v1"),
    "SAC": (sac(sac_agent.SacAgent), "Pendulum-v1"),
    "CQL-SAC": (sac(functools.partial(cql_sac_agent.CqlSacAgent, **CQL)), "Pendulum-v1"),
}
GO_THE_WAY_OF_DDPG = {"TD3", "SAC", "CQL-SAC"}


def statistics(trajectories, gamma=GAMMA):
    """From recorded trajectories, [T, B] per field, in NumPy."""
    moments = ReturnMoments.empty(1)
    for env in range(trajectories.reward.shape[1]):
        rewards, discounts = [], []
        fields = (
            trajectories.step_type,
            trajectories.next_step_type,
            trajectories.reward,
            trajectories.discount,
        )
        for step_type, next_step_type, reward, discount in zip(
            *(np.array(f)[:, env] for f in fields), strict=True
        ):
            if step_type == 2:
                continue
            rewards.append(reward)
            discounts.append(gamma * float(discount))  # NumPy 2 keeps float32
            if next_step_type == 2:
                moments = moments.merge(moments, ReturnMoments.from_episode(rewards, discounts))
                rewards, discounts = [], []
        if rewards:
            moments = moments.merge(moments, ReturnMoments.from_steps(rewards, discounts))
    return moments


class Hundredfold(wrappers.PyEnvironmentBaseWrapper):
    """Pays rewards a hundred times as large."""

    def _step(self, action):
        time_step = self._env.step(action)
        return time_step._replace(reward=np.float32(100.0) * time_step.reward)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in GO_THE_WAY_OF_DDPG else name for name in AGENTS],
)
def test_every_stock_agent_learns_from_errors_in_units_of_sigma(name, tmp_path):
    build, environment = AGENTS[name]
    env = tf_py_environment.TFPyEnvironment(
        Hundredfold(environments.make(environment, NUM_ENVS, seed=1, max_episode_steps=12))
    )
    scaled_loss = ScaledLoss(gamma=GAMMA)
    tf.random.set_seed(1)
    agent = build(env.time_step_spec(), env.action_spec(), scaled_loss)
    agent.initialize()
    replay = tf_uniform_replay_buffer.TFUniformReplayBuffer(agent.collect_data_spec, NUM_ENVS, max_length=100)
    driver = dynamic_step_driver.DynamicStepDriver(
        env,
        agent.collect_policy,
        observers=[replay.add_batch, scaled_loss.observe],
        num_steps=60 * NUM_ENVS,
    )
    driver.run()

    recorded = replay.gather_all()  # [B, T]
    recorded = tf.nest.map_structure(lambda x: np.swapaxes(x, 0, 1), recorded)
    expected = statistics(recorded)
    np.testing.assert_allclose(scaled_loss.scaling.statistics, expected.to_array(), rtol=1e-9, atol=1e-9)
    sigma = expected.sigma[0]
    assert sigma > 10 and expected.return_count[0] > 0

    experience, _ = replay.get_next(8, num_steps=LENGTH if "recurrent" in name else 2)
    values = {}
    for kind, loss in (
        ("plugged in", scaled_loss),
        ("by hand", lambda targets, values: 0.5 * tf.square((targets - values) / sigma)),
        ("unscaled", lambda targets, values: 0.5 * tf.square(targets - values)),
    ):
        agent._td_errors_loss_fn = loss
        tf.random.set_seed(5)  # SAC's actions and TD3's noise
        values[kind] = critic_loss(agent, experience)
    np.testing.assert_allclose(values["plugged in"], values["by hand"], rtol=1e-4)
    np.testing.assert_allclose(values["unscaled"], values["by hand"] * sigma**2, rtol=1e-4)

    agent._td_errors_loss_fn = scaled_loss
    train, before = common.function(agent.train), [v.numpy() for v in agent.trainable_variables]
    losses = [
        train(replay.get_next(8, num_steps=LENGTH if "recurrent" in name else 2)[0]).loss for _ in range(10)
    ]
    assert np.isfinite(losses).all() and np.mean(losses) < 100  # unscaled: more than 1000
    assert any((a != b.numpy()).any() for a, b in zip(before, agent.trainable_variables, strict=True))

    # The agent's checkpoint holds the statistics.
    path = tf.train.Checkpoint(agent=agent).write(str(tmp_path / "checkpoint"))
    scaled_loss.scaling.reset_state()
    tf.train.Checkpoint(agent=agent).read(path)
    np.testing.assert_allclose(scaled_loss.scaling.statistics, expected.to_array(), rtol=1e-9, atol=1e-9)


def critic_loss(agent, experience):
    if isinstance(agent, cql_sac_agent.CqlSacAgent):  # whose `loss` is SAC's
        transition = agent._as_transition(experience)
        arguments = transition.time_step, transition.action_step.action, transition.next_time_step
        loss = agent._td_errors_loss_fn
        return float(agent._critic_loss_with_optional_entropy_term(*arguments, loss, gamma=GAMMA))
    if isinstance(agent, td3_agent.Td3Agent):  # which has no `loss`
        time_steps, policy_steps, next_time_steps = agent._as_transition(experience)
        return float(agent.critic_loss(time_steps, policy_steps.action, next_time_steps))
    info = agent.loss(experience)
    return float(getattr(info.extra, "critic_loss", info.loss))


def scaled(kind):
    """The documented way, for a kind of agent."""

    class Scaled(kind):
        def value_estimation_loss(self, *args, **kwargs):
            return self.scaled_loss.scale_value_loss(super().value_estimation_loss(*args, **kwargs))

    return Scaled


def with_value_network(kind, specs):
    observations, actions = specs.observation_spec(), specs.action_spec()
    actor = actor_distribution_network.ActorDistributionNetwork(observations, actions, fc_layer_params=(8,))
    value = value_network.ValueNetwork(observations, fc_layer_params=(8,))
    if issubclass(kind, reinforce_agent.ReinforceAgent):
        return kind(specs.time_step_spec(), actions, actor, Adam(1e-3), value_network=value, gamma=GAMMA)
    return kind(
        specs.time_step_spec(),
        actions,
        optimizer=Adam(1e-3),
        actor_net=actor,
        value_net=value,
        discount_factor=GAMMA,
        num_epochs=1,
        normalize_rewards=False,
    )


@pytest.mark.skipif(
    Version(np.__version__) >= Version("2.4"),
    reason="TF-Agents' networks of distributions over actions cannot be built: they make a number of an array",
)
@pytest.mark.parametrize("kind", [ppo_clip_agent.PPOClipAgent, reinforce_agent.ReinforceAgent])
def test_a_value_loss_is_divided_by_the_square_of_sigma(kind, tmp_path):
    env = Hundredfold(environments.make("CartPole-v1", 1, seed=1))
    specs = tf_py_environment.TFPyEnvironment(env)
    scaled_loss = ScaledLoss(gamma=GAMMA)
    agent, stock = with_value_network(scaled(kind), specs), with_value_network(kind, specs)
    agent.scaled_loss = scaled_loss
    for each in (agent, stock):
        each.initialize()
    for ours, theirs in zip(networks(agent), networks(stock), strict=True):
        ours.assign(theirs)

    # A driver in Python, which hands NumPy arrays to its observers.
    rows = []
    driver = py_driver.PyDriver(
        env,
        py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True),
        [rows.append, scaled_loss.observe],
        max_steps=150,  # some episodes; without a terminal step, sigma would be 0
    )
    driver.run(env.reset())
    recorded = tf.nest.map_structure(lambda *column: np.stack(column), *rows)  # [T, 1]
    expected = statistics(recorded)
    np.testing.assert_allclose(scaled_loss.scaling.statistics, expected.to_array(), rtol=1e-9, atol=1e-9)

    experience = tf.nest.map_structure(lambda x: tf.constant(np.swapaxes(x, 0, 1)), recorded)
    ours, theirs = (each.train(experience).extra for each in (agent, stock))
    np.testing.assert_allclose(
        ours.value_estimation_loss, theirs.value_estimation_loss / expected.sigma[0] ** 2, rtol=1e-5
    )
    np.testing.assert_allclose(ours.policy_gradient_loss, theirs.policy_gradient_loss, rtol=1e-5)

    # In graphs, with TF-Agents' and with TensorFlow's way to make them.
    for train in (common.function(agent.train), tf.function(agent.train)):
        before = [variable.numpy() for variable in networks(agent)]
        losses = [float(train(experience).extra.value_estimation_loss) for _ in range(3)]
        np.testing.assert_allclose(losses, ours.value_estimation_loss, rtol=0.2)  # values have hardly moved
        assert any((a != b.numpy()).any() for a, b in zip(before, networks(agent), strict=True))

    path = tf.train.Checkpoint(agent=agent).write(str(tmp_path / "checkpoint"))
    scaled_loss.scaling.reset_state()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Add scaled_loss.observe to"):
        train(experience)
    tf.train.Checkpoint(agent=agent).read(path)
    np.testing.assert_allclose(scaled_loss.scaling.statistics, expected.to_array(), rtol=1e-9, atol=1e-9)


def networks(agent):
    if isinstance(agent, reinforce_agent.ReinforceAgent):
        return [*agent._actor_network.variables, *agent._value_network.variables]
    return [*agent.actor_net.variables, *agent._value_net.variables]
