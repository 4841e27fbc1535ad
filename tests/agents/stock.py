"""A stock pipeline's parts for a small agent: an environment that remembers its episodes, batched, in TensorFlow."""

import functools

import numpy as np
import tensorflow as tf
from tf_agents.drivers import dynamic_step_driver
from tf_agents.environments import batched_py_environment, py_environment, tf_py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from rbs_tf import ReturnMoments
from tests.agents.small_agent import ACTIONS, FEATURES


class Remembering(py_environment.PyEnvironment):
    """Random rewards; episodes of 1 to 6 steps, each second one cut off by time.

    Attributes:
      episodes: (rewards, discounts) of each that has begun, in the environment's units.
      ended: of those, how many have ended.
    """

    def __init__(self, seed):
        super().__init__(handle_auto_reset=True)
        self._rng, self.episodes, self.ended = np.random.default_rng(seed), [], 0

    def observation_spec(self):
        return array_spec.ArraySpec((FEATURES,), np.float32)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int32, 0, ACTIONS - 1)

    def _observation(self):
        return self._rng.normal(size=FEATURES).astype(np.float32)

    def _reset(self):
        self._left = int(self._rng.integers(1, 7))
        self.episodes.append(([], []))
        return ts.restart(self._observation())

    def _step(self, action):
        reward = np.float32(3.0 * self._rng.normal())
        self._left -= 1
        ends, cut = self._left == 0, len(self.episodes) % 2 == 0
        rewards, discounts = self.episodes[-1]
        rewards.append(float(reward))
        discounts.append(0.0 if ends and not cut else 1.0)
        self.ended += ends
        if not ends:
            return ts.transition(self._observation(), reward)
        return (
            ts.truncation(self._observation(), reward) if cut else ts.termination(self._observation(), reward)
        )


def batch_of(num_envs, seed=0):
    """Environments that remember, and the batch of them as PyEnvironment."""
    each = [Remembering(seed + index) for index in range(num_envs)]
    return each, batched_py_environment.BatchedPyEnvironment(each, multithreading=False)


def in_tensorflow(environment):
    return tf_py_environment.TFPyEnvironment(environment, isolation=False)


def step_driver(environment, agent, num_steps, observers=None, policy=None):
    """A stock driver of the agent's, with its observers unless others are given."""
    observers = agent.observers if observers is None else observers
    policy = policy or agent.collect_policy
    return dynamic_step_driver.DynamicStepDriver(environment, policy, observers, num_steps=num_steps)


def statistics_of(heads, environments, steps_left=True):
    """What `ReturnMoments` of the same episodes are: of those that are open only the steps, or nothing."""
    found = []
    for environment in environments:
        for index, (rewards, discounts) in enumerate(environment.episodes):
            if not rewards:
                continue
            ended = index < len(environment.episodes) - 1 or environment.ended == len(environment.episodes)
            make = ReturnMoments.from_episode if ended else ReturnMoments.from_steps
            found.append(make(heads.rewards(np.array(rewards)), heads.discounts(np.array(discounts))))
    return functools.reduce(ReturnMoments.merge, found)


def assert_statistics(agent, expected):
    for name, found, wanted in zip(vars(expected), agent.scaling.layer.moments, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=name)


def as_tensors(nest):
    return tf.nest.map_structure(tf.convert_to_tensor, nest)
