"""Stock TF-Agents agents learn with `ScaledLoss` on Gymnasium environments. All with a critic call it as SAC does."""

import numpy as np
import pytest
import tensorflow as tf
from packaging.version import Version
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.drivers import dynamic_step_driver, py_driver
from tf_agents.environments import tf_py_environment, wrappers
from tf_agents.networks import actor_distribution_network, q_network, sequential, value_network
from tf_agents.policies import py_tf_eager_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.utils import common

from rbs_tf import ReturnMoments, ScaledLoss, UnitDense, environments

GAMMA, NUM_ENVS = 0.9, 3
Adam = tf.keras.optimizers.legacy.Adam


def dqn(time_steps, actions, loss):
    q = q_network.QNetwork(time_steps.observation, actions, fc_layer_params=(8,))
    return dqn_agent.DqnAgent(time_steps, actions, q, Adam(1e-3), gamma=GAMMA, td_errors_loss_fn=loss)


def critic_of(time_steps, actions):
    return critic_network.CriticNetwork((time_steps.observation, actions), joint_fc_layer_params=(8,))


def sac(time_steps, actions, loss):
    actor = actor_distribution_network.ActorDistributionNetwork(
        time_steps.observation,
        actions,
        fc_layer_params=(8,),
        continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
    )
    networks = critic_of(time_steps, actions), actor
    optimizers = {f"{name}_optimizer": Adam(1e-3) for name in ("actor", "critic", "alpha")}
    return sac_agent.SacAgent(
        time_steps, actions, *networks, gamma=GAMMA, td_errors_loss_fn=loss, **optimizers
    )


AGENTS = {"DQN": (dqn, "CartPole-v1"), "SAC": (sac, "Pendulum-v1")}


def statistics(trajectories):
    """From recorded trajectories, [T, B] per field, in NumPy."""
    moments = ReturnMoments.empty(1)
    for env in range(trajectories.reward.shape[1]):
        names = ("step_type", "next_step_type", "reward", "discount")
        kinds, following, rewards, discounts = (np.array(getattr(trajectories, n))[:, env] for n in names)
        real = kinds != 2
        rewards, discounts = rewards[real], GAMMA * discounts[real].astype(float)
        start = 0
        for end in np.flatnonzero(following[real] == 2) + 1:
            episode = ReturnMoments.from_episode(rewards[start:end], discounts[start:end])
            moments, start = moments.merge(moments, episode), end
        moments = moments.merge(moments, ReturnMoments.from_steps(rewards[start:], discounts[start:]))
    return moments


class Hundredfold(wrappers.PyEnvironmentBaseWrapper):
    """Pays rewards a hundred times as large."""

    def _step(self, action):
        time_step = self._env.step(action)
        return time_step._replace(reward=np.float32(100.0) * time_step.reward)


@pytest.mark.parametrize("name", AGENTS)
def test_stock_agents_learn(name, tmp_path):
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
    common.function(driver.run)()

    recorded = replay.gather_all()  # [B, T]
    recorded = tf.nest.map_structure(lambda x: np.swapaxes(x, 0, 1), recorded)
    expected = statistics(recorded)
    np.testing.assert_allclose(scaled_loss.scaling.statistics, expected.to_array(), rtol=1e-9, atol=1e-9)
    sigma = expected.sigma[0]
    assert sigma > 10 and expected.return_count[0] > 0

    experience, _ = replay.get_next(8, num_steps=2)
    values = {}
    for kind, loss in (
        ("plugged in", scaled_loss),
        ("by hand", lambda targets, values: 0.5 * tf.square((targets - values) / sigma)),
    ):
        agent._td_errors_loss_fn = loss
        tf.random.set_seed(5)  # SAC's actions
        info = agent.loss(experience)
        values[kind] = float(getattr(info.extra, "critic_loss", info.loss))
    np.testing.assert_allclose(values["plugged in"], values["by hand"], rtol=1e-4)

    agent._td_errors_loss_fn = scaled_loss
    before = [v.numpy() for v in agent.trainable_variables]
    losses = [agent.train(replay.get_next(8, num_steps=2)[0]).loss for _ in range(5)]
    assert np.isfinite(losses).all() and np.mean(losses) < 100  # unscaled: more than 1000
    assert any((a != b.numpy()).any() for a, b in zip(before, agent.trainable_variables, strict=True))

    # The agent's checkpoint holds the statistics.
    path = tf.train.Checkpoint(agent=agent).write(str(tmp_path / "checkpoint"))
    scaled_loss.scaling.reset_state()
    tf.train.Checkpoint(agent=agent).read(path)
    np.testing.assert_allclose(scaled_loss.scaling.statistics, expected.to_array(), rtol=1e-9, atol=1e-9)


class Scaled(ppo_clip_agent.PPOClipAgent):
    """The documented way."""

    def value_estimation_loss(self, *args, **kwargs):
        return self.scaled_loss.scale_value_loss(super().value_estimation_loss(*args, **kwargs))


def ppo(kind, specs):
    observations, actions = specs.observation_spec(), specs.action_spec()
    actor = actor_distribution_network.ActorDistributionNetwork(observations, actions, fc_layer_params=(8,))
    value = value_network.ValueNetwork(observations, fc_layer_params=(8,))
    networks = {"optimizer": Adam(1e-3), "actor_net": actor, "value_net": value}
    options = {"discount_factor": GAMMA, "num_epochs": 1, "normalize_rewards": False}
    return kind(specs.time_step_spec(), actions, **networks, **options)


@pytest.mark.skipif(
    Version(np.__version__) >= Version("2.4"),
    reason="TF-Agents' networks of distributions over actions cannot be built: they make a number of an array",
)
def test_value_losses():
    env = Hundredfold(environments.make("CartPole-v1", 1, seed=1))
    specs = tf_py_environment.TFPyEnvironment(env)
    scaled_loss = ScaledLoss(gamma=GAMMA)
    agent, stock = (ppo(kind, specs) for kind in (Scaled, ppo_clip_agent.PPOClipAgent))
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


def networks(agent):
    return [*agent.actor_net.variables, *agent._value_net.variables]


def played(times, updates=25):
    """A double DQN's actions, with soft copies, and its values: rewards times `times`, one update a step."""
    tf.keras.utils.set_random_seed(0)
    env = tf_py_environment.TFPyEnvironment(environments.make("CartPole-v1", NUM_ENVS, seed=1))
    last_layers = [UnitDense(2) for _ in range(2)]
    online, target = (
        sequential.Sequential([tf.keras.layers.Dense(16, "relu"), last], input_spec=env.observation_spec())
        for last in last_layers
    )
    loss = ScaledLoss(gamma=GAMMA, floor_in_units=True)
    agent = dqn_agent.DdqnAgent(
        env.time_step_spec(),
        env.action_spec(),
        online,
        Adam(1e-3),
        gamma=GAMMA,
        target_q_network=target,
        target_update_tau=0.01,
        td_errors_loss_fn=loss,
    )
    agent.initialize()
    collected = []

    def collect(trajectory):
        collected.append(trajectory._replace(reward=times * trajectory.reward))
        loss.observe(collected[-1])

    policy = py_tf_eager_policy.PyTFEagerPolicy(
        agent.collect_policy, use_tf_function=True, batch_time_steps=False
    )
    driver = py_driver.PyDriver(env.pyenv, policy, [collect], max_steps=NUM_ENVS)
    train, rng = common.function(agent.train), np.random.default_rng(0)
    step, state = env.pyenv.reset(), ()
    for update in range(updates + 10):
        step, state = driver.run(step, state)
        if update >= 10:
            for last in last_layers:
                last.to_unit(loss.scaling.unit)
            first = rng.integers(len(collected) - 1)
            pair = collected[first : first + 2]
            train(tf.nest.map_structure(lambda *steps: tf.stack(steps, axis=1), *pair))
    return [each.action.numpy().tolist() for each in collected], online(tf.eye(4))[0]


def test_actions_are_free_of_the_rewards_size():
    (actions, values), (others, larger) = played(1.0), played(1024.0)
    assert actions == others
    np.testing.assert_array_equal(1024.0 * values, larger)
    assert np.abs(values).mean() > 0.3, "it has learned values"
