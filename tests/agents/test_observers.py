"""The statistics that `agent.observers` keep are those of the same episodes, whoever drives."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.drivers import dynamic_episode_driver, py_driver
from tf_agents.policies import py_tf_eager_policy, random_tf_policy
from tf_agents.utils import common

from agents.scalings import ReturnBasedScaling
from tests.agents.small_agent import make_agent
from tests.agents.stock import assert_statistics, batch_of, in_tensorflow, statistics_of, step_driver


def returns_of(environments):
    return sorted(sum(rewards) for each in environments for rewards, _ in each.episodes[: each.ended])


def bandits(agent):
    heads, returns = agent.bandit._window_heads.numpy(), agent.bandit._window_returns.numpy()
    return sorted(returns[heads >= 0])


def check(agent, environments):
    assert_statistics(agent, statistics_of(agent.heads, environments))
    np.testing.assert_allclose(bandits(agent), returns_of(environments), rtol=1e-6)
    for policy in (agent.policy, agent.collect_policy):
        assert float(tf.reduce_sum(policy.head_probabilities)) == pytest.approx(1.0)
    np.testing.assert_allclose(agent.collect_policy.head_probabilities, agent.bandit.probabilities, rtol=1e-6)
    assert int(tf.argmax(agent.policy.head_probabilities)) == int(tf.argmax(agent.bandit.lower_ends))


@pytest.mark.parametrize("num_envs, traced", [(1, True), (3, True), (3, False)])
def test_dynamic_step_driver(num_envs, traced):
    """In a graph, as TF-Agents' examples have it, over several runs, each of which goes on where the last one was."""
    agent, (environments, batch) = make_agent(), batch_of(num_envs)
    environment = in_tensorflow(batch)
    driver = step_driver(environment, agent, 20 * num_envs)
    run = common.function(driver.run) if traced else driver.run
    time_step, state = environment.reset(), agent.collect_policy.get_initial_state(num_envs)
    for _ in range(3):
        time_step, state = run(time_step, state)
        check(agent, environments)


def test_dynamic_episode_driver_leaves_episodes():
    """Its runs end with one environment's episode, and reset them all."""
    agent, (environments, batch) = make_agent(), batch_of(2)
    driver = dynamic_episode_driver.DynamicEpisodeDriver(
        in_tensorflow(batch), agent.collect_policy, observers=agent.observers, num_episodes=5
    )
    run = common.function(driver.run)
    for _ in range(3):
        run()
    assert_statistics(agent, statistics_of(agent.heads, environments))


@pytest.mark.parametrize("num_envs", [None, 1, 3])
def test_py_driver(num_envs):
    agent, (environments, environment) = make_agent(), batch_of(num_envs or 1)
    if num_envs is None:
        (environment,) = environments
    policy = py_tf_eager_policy.PyTFEagerPolicy(
        agent.collect_policy, use_tf_function=True, batch_time_steps=num_envs is None
    )
    driver = py_driver.PyDriver(environment, policy, agent.observers, max_steps=50)
    driver.run(environment.reset(), policy.get_initial_state(num_envs or 1))
    check(agent, environments)


def test_a_checkpoint_goes_on_with_the_statistics_and_cuts_what_was_open(tmp_path):
    agent, (environments, batch) = make_agent(), batch_of(2)

    def drive(agent, environment, num_steps):
        driver = step_driver(environment, agent, num_steps)
        driver.run(environment.reset(), agent.collect_policy.get_initial_state(environment.batch_size))

    drive(agent, in_tensorflow(batch), 25)
    path = tf.train.Checkpoint(agent=agent).write(str(tmp_path / "checkpoint"))
    open_steps = [env.episodes[-1] for env in environments if env.ended < len(env.episodes)]
    assert open_steps
    for num_envs in (2, 3):
        again, (others, batch) = make_agent(), batch_of(num_envs, seed=7)
        status = tf.train.Checkpoint(agent=again).read(path)
        again.observers  # noqa: B018  makes it
        status.assert_consumed()
        drive(again, in_tensorflow(batch), 25)
        for environment in environments:
            environment.ended = len(environment.episodes)  # cut where it was left
        assert_statistics(again, statistics_of(agent.heads, [*environments, *others]))


def test_statistics_in_a_graph_are_those_of_a_half_life_and_of_a_rewards_root_mean_square_input():
    agent, (environments, batch) = (
        make_agent(scaling=functools.partial(ReturnBasedScaling, half_life=1e9), reward_input="rms"),
        batch_of(2),
    )
    step_driver(in_tensorflow(batch), agent, 40).run()
    rewards = np.concatenate([rewards for env in environments for rewards, _ in env.episodes])
    statistics = agent.network.reward_input.statistics
    np.testing.assert_allclose(statistics, [len(rewards), np.mean(np.square(rewards))], rtol=1e-6)
    expected = statistics_of(agent.heads, environments)
    np.testing.assert_allclose(agent.scaling.layer.sigma, expected.sigma, rtol=1e-6)


def test_steps_of_two_streams_are_refused():
    """Two observers of one agent, a driver that drops the state, a policy of another agent: nothing is taken in."""
    words = "step does not follow.*Give agent.observers to one driver.*not a random policy"

    def drive(observers, policy=None, runs=1, num_envs=2):
        driver = step_driver(in_tensorflow(batch_of(num_envs)[1]), agent, 30, observers, policy)
        for _ in range(runs):
            driver.run()

    agent, nan = make_agent(epsilon_greedy=1.0), np.float32(np.nan)
    (observer,) = agent.observers
    with pytest.raises(tf.errors.InvalidArgumentError, match="rewards must be finite"):
        drive([lambda step: observer(step._replace(reward=nan * step.reward))])
    assert not np.any(agent.scaling.layer.statistics)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        drive([*agent.observers, *agent.observers])
    agent = make_agent(epsilon_greedy=1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        drive(agent.observers, runs=8)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="number of environments has changed from 2 to 3"
    ):
        drive(agent.observers, num_envs=3)
    random = random_tf_policy.RandomTFPolicy(agent.time_step_spec, agent.action_spec)
    with pytest.raises(
        ValueError, match="another policy has acted here.*Leave it out: agent.collect_policy explores"
    ):
        drive(agent.observers, random)
    like_ours = random_tf_policy.RandomTFPolicy(
        agent.time_step_spec, agent.action_spec, info_spec=agent.collect_policy.info_spec
    )
    agent = make_agent()
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        drive(agent.observers, like_ours)
