"""Runs the agent's update under TF-Agents' own `Learner`: sample, update, hand back priorities."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tf_agents.train import learner as tf_agents_learner

from agents.agent import RecurrentMultiHeadAgent
from agents.replay import Replay
from rbs_tf import ReturnMoments
from rbs_tf.joint_moments import JointMoments


class Learner:
    """One update at a time, each after every statistic that has arrived.

    Args:
      root_dir: TensorBoard files go into its `train` folder.
      agent: updated in place.
      replay: source of sequences and statistics.
      batch_size: sequences per update.
      summary_interval: in updates; 0 writes none.
      strategy: a `tf.distribute.Strategy`, or None for the current one.
    """

    def __init__(
        self,
        root_dir: str,
        agent: RecurrentMultiHeadAgent,
        replay: Replay,
        batch_size: int,
        summary_interval: int,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self._agent, self._replay = agent, replay
        self.batch_size = batch_size

        def update_priorities(sample, loss_info):
            _, info = sample
            priorities = loss_info.extra.priorities
            # Reverb refuses NaN without saying where it comes from; `update` finds it in the loss.
            replay.update_priorities(info.key, tf.where(tf.math.is_finite(priorities), priorities, 0.0))

        self._learner = tf_agents_learner.Learner(
            root_dir,
            agent.train_step_counter,
            agent,
            experience_dataset_fn=lambda: replay.dataset(batch_size),
            after_train_strategy_step_fn=update_priorities,
            # Checkpoints span learner, replay and collector; the Learner's own would hold only one of the three.
            checkpoint_interval=2**62,
            summary_interval=summary_interval,
            strategy=strategy,
        )

    @property
    def summary_writer(self) -> tf.summary.SummaryWriter:
        """Writes into the `train` folder."""
        return self._learner.train_summary_writer

    @property
    def updates(self) -> int:
        """Updates so far, of this run and of those it resumed."""
        return int(self._agent.train_step_counter.numpy())

    def drain_statistics(self) -> None:
        """Takes everything that waits in the statistics queue into the scaling and the bandit."""
        reports = self._replay.drain_statistics()
        if not reports:
            return
        moments, n_step, joint = (
            functools.reduce(kind.merge, map(kind.from_array, arrays))
            for kind, arrays in (
                (ReturnMoments, [report.moments for report in reports]),
                (ReturnMoments, [report.n_step for report in reports]),
                (JointMoments, [report.joint for report in reports]),
            )
        )
        self._agent.observe(moments, n_step=n_step, joint=joint)
        for report in reports:
            if len(report.episodes):
                self._agent.update_bandit(report.episodes[:, 0].astype(int), report.episodes[:, 2])

    def update(self) -> tf.Tensor:
        """Drains the statistics, then does one update; returns its loss (float32 scalar).

        Raises:
          FloatingPointError: the loss is NaN or infinite, and so are the weights now.
        """
        self.drain_statistics()
        loss = self._learner.run(iterations=1).loss
        if not np.isfinite(loss):
            raise FloatingPointError(
                f"The loss of update {self.updates} is {float(loss)}. The last checkpoint is from before; a smaller "
                "RecurrentMultiHeadAgent.learning_rate may help, in a new folder"
            )
        return loss
