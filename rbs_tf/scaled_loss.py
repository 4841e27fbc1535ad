"""Return-based scaling for agents that take their loss as a function, such as TF-Agents' stock agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling, real_tensor
from rbs_tf.returns import LONGEST_EPISODE

_FIRST, _LAST = 0, 2  # TF-Agents' StepType
_FIELDS = ("step_type", "next_step_type", "reward", "discount")  # of a Trajectory
_RECORDED = (
    "Feed recorded episodes with"
    " scaled_loss.scaling.merge_state(rbs_tf.ReturnMoments.from_episode(rewards, discounts))"
)
_NO_STEP = (
    "ScaledLoss: no step has been observed, so that the scale of errors is unknown. Add scaled_loss.observe"
    f" to the observers of the driver or actor that collects. {_RECORDED}"
)


class ScaledLoss(tf.Module):
    """A `td_errors_loss_fn` that divides TD errors by sigma, and the observer that keeps its statistics.

    For the TF-Agents agents that use their `td_errors_loss_fn`: DQN and double DQN, recurrent or not, DDPG, TD3, SAC
    and CQL-SAC. `CategoricalDqnAgent` takes one and ignores it. PPO and REINFORCE take none: `scale_value_loss` is for
    them.

        scaled_loss = rbs_tf.ScaledLoss(gamma=0.99)
        agent = DqnAgent(..., gamma=0.99, td_errors_loss_fn=scaled_loss)
        driver = DynamicStepDriver(..., observers=[replay_buffer.add_batch, scaled_loss.observe])

    The agent holds it, so that its checkpoints hold the statistics. Both calls work eagerly and inside `tf.function`.
    Under `tf.distribute`, create it and the agent under `strategy.scope()`.

    Rewards and discounts count at once, returns when their episode has ended. Until one has, errors are divided by
    max(std(R), sigma_v).

    Args:
      gamma: the agent's discount per step (`gamma` of the agents, `discount_factor` of PPO).
      loss_fn: elementwise loss of scaled errors, called as TF-Agents does, `loss_fn(errors, zeros)`. None: half their
        square, the paper's. Thresholds are in units of sigma: `common.element_wise_huber_loss` is quadratic up to one
        sigma and linear beyond.
      sigma_v: floor of the scale, see `ReturnScaling`.
      reward_scale_factor: the agent's.
      max_report_steps: the returns of an episode that goes on for longer are cut after so many steps.

    Attributes:
      scaling: the `ReturnScaling` layer, of one head.

    Raises:
      ValueError: a gamma outside [0, 1], a reward_scale_factor that is not finite, fewer than one step to report.
    """

    def __init__(
        self,
        gamma: float,
        loss_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        *,
        sigma_v: float = 1e-2,
        reward_scale_factor: float = 1.0,
        max_report_steps: int = LONGEST_EPISODE,
    ):
        super().__init__(name="scaled_loss")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be within [0, 1], got {gamma}. Give the agent's discount per step")
        if not np.isfinite(reward_scale_factor):
            raise ValueError(f"reward_scale_factor must be finite, got {reward_scale_factor}")
        if max_report_steps < 1:
            raise ValueError(f"max_report_steps must be at least 1, got {max_report_steps}")
        self._gamma, self._reward_scale_factor = gamma, reward_scale_factor
        self._loss_fn = loss_fn or (lambda errors, zeros: 0.5 * tf.math.squared_difference(errors, zeros))
        self._max_report_steps = max_report_steps
        self.scaling = ReturnScaling(sigma_v=sigma_v)
        self.scaling._fed_or_warned = True  # What is missing is said here, in the words of `observe`.
        # Of each environment's open episode, see `extend_returns`; a checkpoint may hold more or fewer.
        self._num_envs: int | None = None
        self._open = tf.Variable(
            tf.zeros([6, 0], tf.float64),
            shape=[6, None],
            trainable=False,
            name="open_episodes",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @property
    def scale(self) -> tf.Tensor:
        """Scale that errors are divided by, max(sigma, sigma_v): float64 []; sigma_v before the first step."""
        return tf.maximum(self.scaling.sigma, self.scaling.sigma_v)[0]

    def __call__(self, td_targets: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        """The loss of each scaled error, in the shape of both arguments.

        Raises:
          tf.errors.InvalidArgumentError: no step has been observed yet.
        """
        with tf.control_dependencies(self._checked()):
            errors = self.scaling(tf.subtract(td_targets, predictions))
        return self._loss_fn(errors, tf.zeros_like(errors))

    def scale_value_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """A loss of squared errors, divided by the square of the scale: for agents that square the errors themselves.

        Args:
          loss: any shape: what `value_estimation_loss` of TF-Agents' PPO and REINFORCE returns.

        Returns:
          The shape of `loss`; float64 for a float64 loss, float32 for all others. Raises as the call does.
        """
        with tf.control_dependencies(self._checked()):
            # Once for each power. The square of a small scale is 0 in float32.
            return self.scaling(self.scaling(tf.convert_to_tensor(loss)))

    def observe(self, trajectory: Any) -> tf.Operation | None:
        """Takes in a step of each of B environments: an observer for drivers and actors.

        Args:
          trajectory: a TF-Agents `Trajectory`, or anything with its `step_type`, `next_step_type`, `reward` and
            `discount`, all [B] or all [], tensors or NumPy arrays. All calls go through the same B environments in
            order. Episodes that a checkpoint of another B has left open are cut.

        Raises:
          tf.errors.InvalidArgumentError: a reward or discount that is NaN or infinite; another B than in the first
            call. The statistics stay as they were.
          ValueError: fields of another rank, or of different shapes; complex numbers.
        """
        fields = {name: getattr(trajectory, name) for name in _FIELDS}
        tensors = {name: real_tensor(name, value) for name, value in fields.items()}
        shape = tensors["reward"].shape
        if shape.rank not in (0, 1) or not all(x.shape.is_compatible_with(shape) for x in tensors.values()):
            shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items())
            raise ValueError(
                f"ScaledLoss.observe takes one step of each environment, [B] or [] per field; got {shapes}. {_RECORDED}"
            )
        if (num_envs := shape.num_elements()) is not None:
            if self._num_envs not in (None, num_envs):
                words = f"the number of environments has changed from {self._num_envs} to {num_envs}"
                words = f"ScaledLoss.observe: {words}; give each set of environments a ScaledLoss of its own"
                raise tf.errors.InvalidArgumentError(None, None, words)
            self._num_envs = num_envs
        # Stacked, they cannot differ in what is known only when a graph runs.
        steps = tf.reshape(tf.stack([tf.cast(x, tf.float64) for x in tensors.values()]), [4, -1])
        with self.scaling._changes():
            self._observe(steps)
        return None if tf.executing_eagerly() else tf.no_op()

    @tf.function(reduce_retracing=True)
    def _observe(self, steps: tf.Tensor) -> None:
        step_type, next_step_type, reward, discount = tf.unstack(steps)
        # From one episode's last step to the next one's first nothing happens.
        real = step_type != _LAST
        reward = self._reward_scale_factor * reward
        discount = self._gamma * discount
        fresh = tf.zeros([6, tf.shape(reward)[0]], tf.float64)
        # What a checkpoint of more or fewer environments has left open is cut. A condition would upset replicas.
        num_envs = tf.shape(reward, tf.int64)[0]
        # Counted, because TensorFlow takes the shape that is assigned below for the one that is read here.
        fits = tf.cast(tf.math.count_nonzero(self._open[0] >= 0.0) == num_envs, tf.float64)
        before = tf.concat([fits * self._open, fresh], axis=1)[:, :num_envs]
        cut = (1.0 - fits) * tf.reduce_sum(self._open, axis=1)
        self.scaling.update_state(reward, discount, real)
        # An episode that was left before its end is cut there, like one that ran out of time.
        left = (step_type == _FIRST) & (before[0] > 0)
        after = extend_returns(tf.where(left, fresh, before), reward, discount)
        after = tf.where(real, after, before)
        ended = real & ((next_step_type == _LAST) | (after[0] >= self._max_report_steps))
        finite = tf.reduce_all(tf.math.is_finite(after))
        complete = tf.where(left, before, fresh) + tf.where(ended, after, fresh)
        count, total, squares = (cut[row] + tf.reduce_sum(complete[row], keepdims=True) for row in (0, 4, 5))
        nothing, divisor = tf.zeros(1, tf.float64), tf.maximum(count, 1.0)
        returns = ReturnMoments(*(nothing,) * 5, count, total / divisor, tf.maximum(squares, 0.0) / divisor)
        self.scaling.merge_state(returns)
        self._open.assign(tf.where(finite, tf.where(ended, fresh, after), before))

    def _checked(self) -> list[tf.Operation]:
        """Raises, in a graph when it runs, unless a step has been observed."""
        observed = self.scaling.moments.count[0] > 0
        if not tf.executing_eagerly():
            return [tf.debugging.Assert(observed, [_NO_STEP])]
        if not observed:
            raise tf.errors.InvalidArgumentError(None, None, _NO_STEP)
        return []


def extend_returns(episodes: Any, rewards: Any, discounts: Any) -> Any:
    """The moments of all returns of open episodes, one more step later, without a memory of their steps.

    G_t gains w_t R, where w_t is the product of all discounts since step t. Sums over t follow from sums over t:
    sum G_t' = sum G_t + R sum w_t, and sum G_t'^2 = sum G_t^2 + 2 R sum w_t G_t + R^2 sum w_t^2.

    Args:
      episodes: float64 [6, B] tensor: steps, sums of w, w^2, w G, G and G^2 over the steps of each; zeros at its start.
      rewards, discounts: float64 [B] of the step: R, and gamma or 0 at a terminal one.

    Returns:
      The same, float64 [6, B], with the step.
    """
    steps, w, w2, wg, g, g2 = tf.unstack(episodes)
    # The step itself joins with w = 1 and G = 0, then its reward reaches all.
    w, w2 = w + 1.0, w2 + 1.0
    g2 = g2 + rewards * (2.0 * wg + rewards * w2)
    wg = wg + rewards * w2
    g = g + rewards * w
    return tf.stack([steps + 1.0, discounts * w, discounts**2 * w2, discounts * wg, g, g2])
