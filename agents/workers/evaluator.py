"""Greedy evaluation with one head, the bandit's or that of a trial: returns, and how far values are from them."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment

from agents.agent import RecurrentMultiHeadAgent
from agents.bandit import successive_halving
from agents.heads import Heads
from agents.monitoring import summaries
from agents.monitoring.tags import EVALUATION, OVER_STEPS, RETURN, VALUE_ERROR
from agents.policy import MultiHeadPolicy
from agents.scalings import Scaling
from agents.storage.best import Best
from agents.storage.episodes import NAME, Episodes
from agents.workers.stepper import Stepper
from rbs_tf import discounted_returns, scores
from rbs_tf.returns import LONGEST_EPISODE


class Played(NamedTuple):
    """A finished episode."""

    episode_return: float  # the environment's own points: undiscounted, unclipped
    length: int  # environment steps
    value_errors: np.ndarray  # float64 [4, H], see `Evaluator._value_errors`


class Evaluation(NamedTuple):
    """Finished episodes of one evaluation."""

    returns: np.ndarray  # float64 [episodes]
    lengths: np.ndarray  # int64 [episodes]
    value_errors: np.ndarray  # float64 [H], see `Evaluator`; NaN for a head whose returns are all alike


class Stopped(Exception):
    """An evaluation was to end at once."""


class Evaluator:
    """Plays whole episodes, the same number in each environment: the first n to finish would be the short ones.

    Weights do not change during `run`: every episode starts with the newest ones (appendix A.2).

    Beside returns it measures values: the error of Q(s, a), of the actions taken, against the discounted return that
    followed, RMS over all steps, in standard deviations of these returns: 1 is what the best constant does (figure 6 of
    the paper). A head's values are those of its own greedy policy; another one may be acting.

    Args:
      environment: batched; reset before every evaluation, not closed here.
      policy: a `MultiHeadPolicy`, greedy but for its evaluation epsilon.
      heads: what each value head sees of rewards and discounts.
      scaling: of the agent; puts values into reward units.
      max_steps: an episode still running after so many environment steps counts with its return so far.

    Attributes:
      steps: of the batch, in all evaluations.
      playing: what the evaluation in progress has come to, in words.
      stepper: of the environment.
    """

    def __init__(
        self,
        environment: py_environment.PyEnvironment,
        policy: MultiHeadPolicy,
        heads: Heads,
        scaling: Scaling,
        max_steps: int = LONGEST_EPISODE,
    ):
        self._environment = environment
        self._policy = policy
        self._max_steps = max_steps
        self._heads, self._scaling = heads, scaling
        self._act = tf.function(policy.act_by_heads, autograph=False)
        self.stepper = Stepper(environment, "evaluation")
        self.steps = 0
        self.playing = ""

    def run(
        self, episodes_per_environment: int = 1, stopped: Callable[[], bool] = lambda: False
    ) -> Evaluation:
        """Plays `episodes_per_environment` episodes in every environment of the batch.

        Raises:
          Stopped: once `stopped()`.
          EnvironmentFault: see `Collector.run`.
        """
        acting = [self._policy.best_head] * episodes_per_environment
        played = self._play([acting] * self._environment.batch_size, stopped)
        returns, lengths, errors = zip(*itertools.chain.from_iterable(played), strict=True)
        # sqrt(E[(Q - G)^2] / V[G]). A variance below 1e-12 E[G^2] is a rounding error and counts as 0.
        steps, *sums = np.sum(errors, axis=0)
        mean, squares, square_errors = sums / steps
        variance = squares - np.square(mean)
        relative = np.sqrt(square_errors / np.where(variance > 1e-12 * squares, variance, np.nan))
        return Evaluation(np.array(returns), np.array(lengths), relative)

    def trial(self, episodes: int, stopped: Callable[[], bool] = lambda: False) -> tuple[int, int]:
        """The head that earns most, and how many episodes showed it, see `successive_halving`.

        Heads act side by side, one in each environment. Raises what `run` does.
        """
        batch = self._environment.batch_size

        def play(acting: list[int]) -> Iterator[tuple[int, float]]:
            by_environment = [acting[index::batch] for index in range(batch)]
            for heads, played in zip(by_environment, self._play(by_environment, stopped), strict=True):
                # An episode that is cut is its environment's last: other heads may be left.
                yield from zip(heads, (episode.episode_return for episode in played), strict=False)

        return successive_halving(play, len(self._heads), episodes)

    def _play(self, acting: Sequence[Sequence[int]], stopped: Callable[[], bool]) -> list[list[Played]]:
        """Plays an episode for each entry of `acting`: by environment, the heads that act in its episodes, in order."""
        environment = self._environment
        steps = 0
        time_step = self.stepper.step(steps)
        policy_state = self._policy.get_initial_state(environment.batch_size)
        to_play = [list(heads) for heads in acting]  # the first of each is the one in progress
        played: list[list[Played]] = [[] for _ in acting]
        # Of each episode in progress: reward, discount and values of its steps.
        histories: list[list] = [[] for _ in acting]
        while any(to_play):
            self.playing = (
                f"evaluating: {steps:,} steps of {len(acting)} environments, {sum(map(len, played))} episodes over, "
                f"each at most {self._max_steps:,} long"
            )
            if stopped():
                raise Stopped
            heads = tf.constant([next(iter(left), 0) for left in to_play], tf.int32)
            result = self._act(heads, tf.nest.map_structure(tf.convert_to_tensor, time_step), policy_state)
            policy_state = result.state
            steps += 1
            self.steps += 1
            time_step = self.stepper.step(steps, result.action.numpy())
            values = result.info.taken_values.numpy()
            for index in np.flatnonzero(~time_step.is_first()):
                if not to_play[index]:
                    continue
                history = histories[index]
                history.append((time_step.reward[index], time_step.discount[index], values[index]))
                cut = len(history) == self._max_steps
                if cut or time_step.is_last()[index]:
                    rewards, discounts, taken = map(np.array, zip(*history, strict=True))
                    errors = self._value_errors(rewards, discounts, taken)
                    played[index].append(Played(sum(rewards.tolist()), len(history), errors))
                    history.clear()
                    to_play[index] = [] if cut else to_play[index][1:]
        return played

    def _value_errors(self, rewards: np.ndarray, discounts: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Sums over the steps of one episode, float64 [4, H]: 1, G, G^2, (Q - G)^2."""
        returns = discounted_returns(self._heads.rewards(rewards), self._heads.discounts(discounts))
        values = self._scaling.values(tf.constant(values)).numpy().astype(np.float64)
        terms = np.ones_like(returns), returns, np.square(returns), np.square(values - returns)
        return np.sum(terms, axis=1)


def describe_returns(returns: np.ndarray, lengths: np.ndarray) -> str:
    """Counts episodes, and those that differ: a greedy game with fixed starts may repeat itself."""
    different = len(set(zip(returns.tolist(), lengths.tolist(), strict=True)))
    return f"{len(returns)} episodes" + ("" if different == len(returns) else f", {different} different")


class Evaluations:
    """A run's evaluations: played, shown by TensorBoard, and the weights of the best one kept.

    Args:
      root_dir: the run folder; TensorBoard's files go into its `eval` folder, and so does a table of all episodes.
      environment: batched; see `Evaluator`.
      agent: its `policy` plays.
    """

    def __init__(
        self,
        root_dir: str | os.PathLike,
        environment: py_environment.PyEnvironment,
        agent: RecurrentMultiHeadAgent,
    ):
        self.evaluator = Evaluator(environment, agent.policy, agent.heads, agent.scaling)
        self.best = Best(root_dir)
        self._agent = agent
        self._game = environment.game
        path = pathlib.Path(root_dir, EVALUATION, NAME)
        self._episodes = Episodes(path, ("update", "head", "return", "steps"), most=sys.maxsize)
        self._writer = tf.summary.create_file_writer(os.path.join(root_dir, EVALUATION))
        self.last: Evaluation | None = None
        self.last_return = float("nan")  # mean of the last one
        self.last_words = ""  # its episodes, and the head that acted
        self.best_words = ""  # the best evaluation, if that is another one

    def run(
        self,
        update: int,
        rounds: int,
        stopped: Callable[[], bool],
        loss_scales: summaries.LossScales | None = None,
        trial_episodes: int = 0,
    ) -> float | None:
        """Plays `rounds` episodes in every environment; returns their mean return, None once `stopped()`.

        Args:
          update: that the weights are of.
          loss_scales: of the learner's latest updates, for a figure and environment steps; None: neither.
          trial_episodes: 0: the policy's head acts; otherwise the best of a trial of so many episodes, from now on. If
            that is another one, the policy's plays as well, for comparison.
        """
        with contextlib.suppress(Stopped):
            self.last = self._play(update, rounds, stopped, trial_episodes)
            self._write(update, self.last, loss_scales)
            self.best.offer(update, self.last.returns, self._agent.acting_variables)
            best = self.best.found
            self.best_words = ""
            if best and best.update != update:
                self.best_words = (
                    f"{best.mean_return:.4g} per episode, {best.episodes} episodes, update {best.update:,}"
                )
            return self.last_return
        return None

    def _play(self, update: int, rounds: int, stopped: Callable[[], bool], trial_episodes: int) -> Evaluation:
        """Plays, and keeps the episodes, without those of an earlier start at this update or later."""
        policy = self._agent.policy
        names = self._agent.heads.names
        bandits = policy.best_head
        why = "the bandit's best"
        played = []
        if trial_episodes and len(names) > 1:
            start = time.monotonic()
            head, episodes = self.evaluator.trial(trial_episodes, stopped)
            why = f"the best of a trial of {episodes} episodes, {time.monotonic() - start:.0f} s"
            if head != bandits:
                rival = self.evaluator.run(rounds, stopped)
                played.append((names[bandits], rival))
                why += f"; the bandit's, {names[bandits]}, earns {np.mean(rival.returns):.4g}"
            policy.act_with(head)
        evaluation = self.evaluator.run(rounds, stopped)
        head_name = names[policy.best_head]
        self._episodes.keep(update - 1)
        for name, each in (*played, (head_name, evaluation)):
            ended = zip(each.returns.tolist(), each.lengths.tolist(), strict=True)
            self._episodes.append((update, name, points, steps) for points, steps in ended)
        self.last_return = float(np.mean(evaluation.returns))
        words = describe_returns(evaluation.returns, evaluation.lengths)
        self.last_words = f"{words}, greedy, head {head_name} ({why})"
        return evaluation

    def _write(self, update: int, evaluation: Evaluation, loss_scales: summaries.LossScales | None) -> None:
        names = self._agent.heads.names
        with self._writer.as_default(step=update):
            tf.summary.scalar(RETURN, self.last_return)
            if loss_scales:
                tf.summary.scalar(f"{RETURN}{OVER_STEPS}", self.last_return, step=loss_scales.steps)
            tf.summary.scalar("episode/length", np.mean(evaluation.lengths))
            tf.summary.scalar("episode/best_head", self._agent.policy.best_head)
            if scores.has_score(self._game):
                normalised = scores.human_normalised_score(self._game, self.last_return)
                tf.summary.scalar("episode/human_normalised_score", normalised)
            known = np.isfinite(evaluation.value_errors)
            for name, error in zip(np.array(names)[known], evaluation.value_errors[known], strict=True):
                tf.summary.scalar(f"{VALUE_ERROR}/{name}", error)
            if known.any():
                tf.summary.scalar(f"{VALUE_ERROR}/mean", np.mean(evaluation.value_errors[known]))
            figure = summaries.loss_scales_figure(names, loss_scales) if loss_scales else None
            if figure is not None:
                tf.summary.image(summaries.FIGURE, figure[None])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
