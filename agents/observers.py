"""Statistics from the steps that drivers and actors of TF-Agents show to an observer."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tf_agents.trajectories.time_step import StepType
from tf_agents.trajectories.trajectory import Trajectory

from agents.heads import Heads
from agents.policy import PolicyInfo
from agents.scalings import Scaling
from rbs_tf.moments import ReturnMoments
from rbs_tf.open_episodes import OpenEpisodes, resize_for

_ONE_STREAM = (
    "agent.observers: a step does not follow the one before it in its environment. Give agent.observers to one driver, "
    "and once; let agent.collect_policy act there, not a random policy; and carry its state from one run to the next: "
    "time_step, state = driver.run(time_step, state)"
)

_NO_STATISTICS = (
    "RecurrentMultiHeadAgent.train: no step has been observed, so that the scale of errors is unknown. Add "
    "*agent.observers to the observers of the driver or Actor that collects; with recorded episodes, call "
    "agent.observe(rbs_tf.ReturnMoments.from_episode(rewards, discounts)), [T, H] each"
)


def check_observed(scaling: Scaling) -> list[tf.Operation]:
    """Raises InvalidArgumentError if the scaling has seen no statistics; in a graph the operations do."""
    observed = scaling.observed
    if observed is True:
        return []
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(observed, [_NO_STATISTICS])]
    if not observed:
        raise tf.errors.InvalidArgumentError(None, None, _NO_STATISTICS)
    return []


class StatisticsObserver(tf.Module):
    """Takes in steps of B environments, in graphs and in Python: statistics of all heads, and episodes for the bandit.

    Rewards and discounts count at once, returns when their episode has ended, or has been left.

    Args:
      heads: what each value head sees of rewards and discounts.
      observe: takes `ReturnMoments` of tensors.
      update_bandit: takes the heads that acted, int64 [E], and the raw returns, float64 [E], of finished episodes.
    """

    def __init__(
        self,
        heads: Heads,
        observe: Callable[[ReturnMoments], None],
        update_bandit: Callable[[tf.Tensor, tf.Tensor], None],
    ):
        super().__init__(name="statistics_observer")
        self._heads = heads
        self._observe = observe
        self._update_bandit = update_bandit
        self._episodes = OpenEpisodes(len(heads), "agent.observers")
        # Of each environment: steps of the open episode, its return so far, the last action; see `OpenEpisodes`.
        self._open = tf.Variable(
            tf.zeros([3, 0], tf.float64), shape=[3, None], trainable=False, name="open_returns"
        )

    def __call__(self, trajectory: Trajectory) -> tf.Operation | None:
        """Takes in one step of each environment.

        Args:
          trajectory: of `agent.collect_policy`, [B] or [] per field, tensors or NumPy arrays. All calls go through the
            same B environments in order. Episodes that a checkpoint of another B has left open are cut.

        Raises:
          tf.errors.InvalidArgumentError: a reward or discount that is NaN or infinite; another B than before; a step
            that does not follow the one before it. Nothing has been taken in.
          ValueError: fields of another rank, or of different shapes; a B that is unknown when a graph is traced; a
            policy of another agent.
        """
        info = trajectory.policy_info
        if not isinstance(info, PolicyInfo):
            raise ValueError(
                "agent.observers takes the steps of agent.collect_policy; another policy has acted here, such as a "
                f"random one for a warm-up: its policy_info is {info}. Leave it out: agent.collect_policy explores"
            )
        columns = self._episodes.read_columns(trajectory)
        of_policy = (
            tf.reshape(tf.cast(x, tf.float64), [-1])
            for x in (info.head, info.previous_action, trajectory.action)
        )
        self._take_in(tf.concat([columns, tf.stack([*of_policy])], axis=0))
        return None if tf.executing_eagerly() else tf.no_op()

    @tf.function(reduce_retracing=True, autograph=False)
    def _take_in(self, columns: tf.Tensor) -> None:
        step_type, next_step_type, reward, discount, head, previous_action, action = tf.unstack(columns)
        before, _ = resize_for(self._open, tf.shape(reward)[0])
        steps, episode_return, last_action = tf.unstack(before)
        first = step_type == StepType.FIRST
        real = step_type != StepType.LAST
        follows = first | (steps == 0.0) | (previous_action == last_action)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(follows), [_ONE_STREAM])]):
            rewards, discounts = self._heads.rewards(reward), self._heads.discounts(discount)
        moments = self._episodes.add_step(step_type, next_step_type, rewards, discounts)
        self._observe(moments)
        steps, episode_return = (tf.where(first, tf.zeros_like(x), x) for x in (steps, episode_return))
        episode_return += tf.where(real, reward, tf.zeros_like(reward))
        ended = real & (next_step_type == StepType.LAST)
        with tf.control_dependencies([*moments]):  # nothing counts of what they refuse
            self._open.assign(tf.stack([steps + 1.0, episode_return, action]))
        heads = tf.cast(tf.boolean_mask(head, ended), tf.int64)
        returns = tf.boolean_mask(episode_return, ended)
        tf.cond(tf.reduce_any(ended), lambda: self._update_bandit(heads, returns), lambda: None)
