"""Return-based scaling for agents that take their loss as a function, such as TF-Agents' stock agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rbs_tf.open_episodes import OpenEpisodes
from rbs_tf.return_scaling import ReturnScaling
from rbs_tf.returns import LONGEST_EPISODE

_RECORDED = (
    "Feed recorded episodes with scaled_loss.scaling.merge_state(rbs_tf.ReturnMoments.from_episode(...))"
)
_NO_STEP = (
    "ScaledLoss: no step has been observed, so that the scale of errors is unknown. Add scaled_loss.observe to the"
    f" observers of the driver or actor that collects. {_RECORDED}"
)


class ScaledLoss(tf.Module):
    """A `td_errors_loss_fn` that divides TD errors by sigma, and the observer that keeps its statistics.

    For TF-Agents' DQN and double DQN, recurrent or not, DDPG, TD3, SAC and CQL-SAC. `CategoricalDqnAgent` takes a
    `td_errors_loss_fn` and ignores it. PPO and REINFORCE take none: use `scale_value_loss`.

        scaled_loss = rbs_tf.ScaledLoss(gamma=0.99)
        agent = DqnAgent(..., gamma=0.99, td_errors_loss_fn=scaled_loss)
        driver = DynamicStepDriver(..., observers=[replay_buffer.add_batch, scaled_loss.observe])

    The agent's checkpoints hold the statistics. Both calls work eagerly and inside `tf.function`. Under
    `tf.distribute`, create it and the agent under `strategy.scope()`.

    Args:
      gamma: the agent's discount per step (`gamma` of the agents, `discount_factor` of PPO).
      loss_fn: elementwise loss of scaled errors, called as TF-Agents does, `loss_fn(errors, zeros)`. None: half their
        square, the paper's. Thresholds are in units of sigma: `common.element_wise_huber_loss` is quadratic up to one
        sigma and linear beyond.
      sigma_v: floor of the scale, see `ReturnScaling`.
      floor_in_units: see there.
      reward_scale_factor: the agent's.
      max_report_steps: returns of longer episodes are cut every so many steps.

    Attributes:
      scaling: the `ReturnScaling` layer, of one head.

    Raises:
      ValueError: an argument outside its range.
    """

    def __init__(
        self,
        gamma: float,
        loss_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        *,
        sigma_v: float = 1e-2,
        floor_in_units: bool = False,
        reward_scale_factor: float = 1.0,
        max_report_steps: int = LONGEST_EPISODE,
    ):
        super().__init__(name="scaled_loss")
        for name, value, fits, expected in (
            ("gamma", gamma, 0.0 <= gamma <= 1.0, "the agent's discount per step, within [0, 1]"),
            ("reward_scale_factor", reward_scale_factor, np.isfinite(reward_scale_factor), "a finite number"),
            ("max_report_steps", max_report_steps, max_report_steps >= 1, "at least 1"),
        ):
            if not fits:
                raise ValueError(f"{name} must be {expected}; got {value}")
        self._gamma, self._reward_scale_factor = gamma, reward_scale_factor
        self._loss_fn = loss_fn or (lambda errors, zeros: 0.5 * tf.math.squared_difference(errors, zeros))
        self.scaling = ReturnScaling(sigma_v=sigma_v, floor_in_units=floor_in_units)
        self.scaling.advice.is_fed = True  # the call raises where the layer would warn
        self._episodes = OpenEpisodes(1, "ScaledLoss.observe", _RECORDED, max_report_steps)

    @property
    def scale(self) -> tf.Tensor:
        """Scale that errors are divided by, max(sigma, sigma_v): float64 []; sigma_v before the first step."""
        return self.scaling.scale[0]

    def __call__(self, td_targets: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """The loss of each scaled error, in the shape of both arguments.

        Raises:
          tf.errors.InvalidArgumentError: no step has been observed yet.
        """
        with tf.control_dependencies(self._check_observed()):
            errors = self.scaling(tf.subtract(td_targets, predictions))
        return self._loss_fn(errors, tf.zeros_like(errors))

    def scale_value_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """A loss of squared errors, divided by the square of the scale: for agents that square the errors themselves.

        The loss is what `value_estimation_loss` of TF-Agents' PPO and REINFORCE returns, of any shape; float64 stays,
        all others become float32. Raises as the call does.
        """
        with tf.control_dependencies(self._check_observed()):
            # Divided twice: the square of a small scale is 0 in float32.
            return self.scaling(self.scaling(tf.convert_to_tensor(loss)))

    def observe(self, trajectory: Any) -> tf.Operation | None:
        """Takes in a step of each of B environments: an observer for drivers and actors.

        Args:
          trajectory: a TF-Agents `Trajectory`, or anything with its `step_type`, `next_step_type`, `reward` and
            `discount`, all [B] or all [], of the same B environments in every call. Episodes that a checkpoint of
            another B has left open are cut.

        Raises:
          tf.errors.InvalidArgumentError: a reward or discount that is NaN or infinite; another B than in the first
            call. The statistics stay as they were.
          ValueError: fields of another rank, of different shapes, or complex; a B that is unknown when a graph is
            traced.
        """
        with self.scaling.changes():
            self._observe(self._episodes.read_columns(trajectory))
        return None if tf.executing_eagerly() else tf.no_op()

    @tf.function(reduce_retracing=True)
    def _observe(self, columns: tf.Tensor) -> None:
        step_type, next_step_type, reward, discount = tf.unstack(columns)
        rewards, discounts = self._reward_scale_factor * reward[:, None], self._gamma * discount[:, None]
        self.scaling.merge_state(self._episodes.add_step(step_type, next_step_type, rewards, discounts))

    def _check_observed(self) -> list[tf.Operation]:
        """Raises, in a graph when it runs, unless a step has been observed."""
        observed = self.scaling.moments.count[0] > 0
        if not tf.executing_eagerly():
            return [tf.debugging.Assert(observed, [_NO_STEP])]
        if not observed:
            raise tf.errors.InvalidArgumentError(None, None, _NO_STEP)
        return []
