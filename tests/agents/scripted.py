"""Environments and a policy whose every step is known beforehand, and a collector that plays them."""

import contextlib
import functools

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec, tensor_spec
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.policy import PolicyInfo
from agents.replay.backends import LOCAL
from agents.sequences import SequenceShape
from agents.workers.collector import Collector
from rbs_tf import ReturnMoments
from tests.agents.replay.streams import make_replay

PAPER = SequenceShape()
SMALL = SequenceShape(burn_in=2, length=4, period=2, n_step=2)
HEADS = Heads(((0.9, True), (1.0, False)))
STATE = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((2,), tf.float32))


def reward_of(index: int, episode: int, t: int) -> np.float32:
    """Reward that arrives with row t."""
    return np.float32(0 if t == 0 else 100 * index + 10 * episode + np.sin(t))


class ScriptedEnvironment(py_environment.PyEnvironment):
    """Environment i plays episodes of the lengths scripts[i] over and over; odd ones end by a time-out.

    Observations are (environment, episode, row), float32, in a buffer that every step overwrites.
    """

    def __init__(self, scripts: list[list[int]]):
        super().__init__()
        self._scripts = scripts
        self._episode, self._t = [0] * len(scripts), [0] * len(scripts)
        self._observation = np.zeros((len(scripts), 3), np.float32)
        self._steps = 0

    batched = True
    batch_size = property(lambda self: len(self._scripts))

    def observation_spec(self):
        return array_spec.ArraySpec((3,), np.float32)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int32, 0, 4)

    def length(self, index: int) -> int:
        script = self._scripts[index]
        return script[self._episode[index] % len(script)]

    def _reset(self):
        self._episode, self._t = [0] * self.batch_size, [0] * self.batch_size
        return self._time_step()

    def _step(self, action):
        self._steps += 1
        for index in range(self.batch_size):
            if self._t[index] == self.length(index):
                self._episode[index], self._t[index] = self._episode[index] + 1, 0
            else:
                self._t[index] += 1
        return self._time_step()

    def _time_step(self):
        step_type, reward, discount = [], [], []
        for index, (episode, t) in enumerate(zip(self._episode, self._t, strict=True)):
            last = t == self.length(index)
            step_type.append(StepType.FIRST if t == 0 else StepType.LAST if last else 1)
            reward.append(reward_of(index, episode, t))
            discount.append(0.0 if last and episode % 2 == 0 else 1.0)
            self._observation[index] = index, episode, t
        return ts.TimeStep(
            np.array(step_type, np.int32),
            np.array(reward, np.float32),
            np.array(discount, np.float32),
            self._observation,
        )


class ScriptedPolicy:
    """Takes action t mod 5 in row t; its state counts the rows since the episode's start."""

    def __init__(self, values: float = 1.0):
        self._values = values

    def get_initial_state(self, batch_size):
        return tf.fill((batch_size, 2), -7.0), tf.fill((batch_size,), -7)

    best_head = 1

    def action(self, time_step, policy_state):
        return self.act_by_heads(tf.cast(time_step.observation[:, 1], tf.int32), time_step, policy_state)

    def act_by_heads(self, head, time_step, policy_state):
        rows, previous_action = policy_state
        first = time_step.is_first()
        rows = tf.where(first[:, None], 0.0, rows)
        t = tf.cast(time_step.observation[:, 2], tf.int32)
        values = self._values * tf.stack([rows[:, 0], -rows[:, 0]], axis=1)
        info = PolicyInfo(
            core_state=(rows, -rows),
            previous_action=tf.where(first, -1, previous_action),
            previous_reward=time_step.reward,
            previous_discount=time_step.discount,
            head=head,
            epsilon=tf.fill(tf.shape(t), 0.25),
            taken_values=values,
            greedy_values=values + 1.0,
        )
        return policy_step.PolicyStep(t % 5, (rows + 1.0, t % 5), info)


def constant_priorities(steps, taken_values, greedy_values):
    return tf.ones_like(steps.reward[:, 0])


@contextlib.contextmanager
def collecting():
    """Gives a function that makes a collector and its replay; both are closed in the end."""
    with contextlib.ExitStack() as closing:

        def start(
            environment, policy=None, shape=PAPER, priorities=constant_priorities, heads=HEADS, state=STATE,
            backend=LOCAL, **settings,
        ):  # fmt: skip
            defaults = {"capacity": 100_000, "min_sequences": 1}
            observation = tensor_spec.from_spec(environment.observation_spec())
            replay = make_replay(backend, shape, observation, state, len(heads), **(defaults | settings))
            closing.callback(replay.stop)
            policy = policy or ScriptedPolicy()
            collector = Collector(environment, policy, heads, replay, shape, priorities)
            closing.callback(collector.close)
            return collector, replay

        yield start


def merged(reports, kind=ReturnMoments):
    return functools.reduce(kind.merge, (kind.from_array(report["moments"]) for report in reports))
