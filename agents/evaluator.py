"""Greedy evaluation with the head that the bandit rates best."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment

from agents.policy import MultiHeadPolicy
from rbs_tf import scores


class Evaluation(NamedTuple):
    """Finished episodes of one evaluation; undiscounted, unclipped rewards."""

    returns: np.ndarray  # float64 [episodes], reward units
    lengths: np.ndarray  # int64 [episodes], environment steps


class Evaluator:
    """Plays whole episodes in a batched environment, the same number in each environment.

    (Taking the first n episodes that finish would favour short ones.) Weights do not change during `run`, so every
    episode starts with the newest ones, as in the paper's evaluation (appendix A.2).

    Args:
      environment: batched; it is reset before every evaluation, and closed by whoever made it.
      policy: a greedy `MultiHeadPolicy`, epsilons `(0.0,)`.
      max_steps: an episode still running after so many environment steps counts with its return so far.
    """

    def __init__(
        self, environment: py_environment.PyEnvironment, policy: MultiHeadPolicy, max_steps: int = 27_000
    ):
        self._environment, self._policy, self._max_steps = environment, policy, max_steps
        self._act = tf.function(policy.action, autograph=False)

    def run(
        self, episodes_per_environment: int = 1, stopped: Callable[[], bool] = lambda: False
    ) -> Evaluation | None:
        """Plays `episodes_per_environment` episodes in every environment of the batch; None once `stopped()`."""
        batch = self._environment.batch_size
        time_step = self._environment.reset()
        policy_state = self._policy.get_initial_state(batch)
        returns, lengths = [], []
        to_play = np.full(batch, episodes_per_environment)
        score, steps = np.zeros(batch), np.zeros(batch, np.int64)
        while to_play.any():
            if stopped():
                return None
            result = self._act(tf.nest.map_structure(tf.convert_to_tensor, time_step), policy_state)
            policy_state = result.state
            time_step = self._environment.step(result.action.numpy())
            first = time_step.is_first()
            score, steps = np.where(first, 0.0, score + time_step.reward), np.where(first, 0, steps + 1)
            cut = steps == self._max_steps
            finished = (time_step.is_last() | cut) & (to_play > 0)
            returns.extend(score[finished])
            lengths.extend(steps[finished])
            to_play = np.where(cut, 0, to_play - finished)
        return Evaluation(np.array(returns), np.array(lengths))


def write_summary(
    writer: tf.summary.SummaryWriter,
    step: int,
    evaluation: Evaluation,
    environment: py_environment.PyEnvironment,
    policy: MultiHeadPolicy,
) -> float:
    """Writes an evaluation of update `step` to TensorBoard; returns its mean return without the reward multiplier."""
    mean_return = float(np.mean(evaluation.returns / environment.reward_multiplier))
    with writer.as_default(step=step):
        tf.summary.scalar("episode/return", mean_return)
        tf.summary.scalar("episode/length", np.mean(evaluation.lengths))
        tf.summary.scalar("episode/best_head", int(np.argmax(policy.head_probabilities.numpy())))
        if scores.has_score(environment.game):
            normalised = scores.human_normalised_score(environment.game, mean_return)
            tf.summary.scalar("episode/human_normalised_score", normalised)
    writer.flush()
    return mean_return
