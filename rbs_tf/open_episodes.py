"""Statistics of open episodes in TensorFlow graphs, without a memory of their steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import LONGEST_EPISODE, extend_episodes
from rbs_tf.tensor_moments import check_finite, check_real, step_fields

_FIRST, _LAST = 0, 2  # TF-Agents' StepType
_FIELDS = ("step_type", "next_step_type", "reward", "discount")  # of a Trajectory


class OpenEpisodes(tf.Module):
    """Turns the steps of B environments into `ReturnMoments` of H heads, in `tf.function` and eagerly.

    Rewards and discounts count at once, returns when their episode has ended. An episode that is left before its end,
    because the next step is a first one, is cut there, like one that ran out of time.

    Args:
      num_heads: H.
      who: the observer's name, for messages.
      remedy: what to do instead, for messages.
      max_report_steps: returns of longer episodes are cut every so many steps.
    """

    def __init__(self, num_heads: int, who: str, remedy: str = "", max_report_steps: int = LONGEST_EPISODE):
        super().__init__(name="open_episodes")
        self._num_heads = num_heads
        self._who = who
        self._remedy = remedy
        self._max_report_steps = max_report_steps
        self._num_envs: int | None = None
        # Of each environment's open episode, see `extend_episodes`; a checkpoint may hold more or fewer.
        self._open = tf.Variable(
            tf.zeros([6, 0, num_heads], tf.float64),
            shape=[6, None, num_heads],
            trainable=False,
            name="open_episodes",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def read_columns(self, trajectory: Any) -> tf.Tensor:
        """float64 [4, B]: the step types, reward and discount of a `Trajectory`, each [B] or [].

        Raises ValueError for other shapes, complex numbers, and a B that is unknown when a graph is traced;
        tf.errors.InvalidArgumentError for another B than before.
        """
        fields = {name: check_real(name, tf.convert_to_tensor(getattr(trajectory, name))) for name in _FIELDS}
        shape = fields["reward"].shape
        if shape.rank not in (0, 1) or not all(x.shape.is_compatible_with(shape) for x in fields.values()):
            shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in fields.items())
            takes = "takes one step of each environment, [B] or [] per field"
            raise ValueError(f"{self._who} {takes}; got {shapes}. {self._remedy}")
        if (num_envs := shape.num_elements()) is None:
            # A change of it would cut the open episodes without a word.
            raise ValueError(
                f"{self._who} must know the number of environments when a graph is traced; got reward {shape}. Give "
                "the function an input_signature with that number, or call tf.ensure_shape"
            )
        if self._num_envs not in (None, num_envs):
            changed = f"the number of environments has changed from {self._num_envs} to {num_envs}"
            raise tf.errors.InvalidArgumentError(
                None, None, f"{self._who}: {changed}: take one for each set of them"
            )
        self._num_envs = num_envs
        # Stacking checks sizes that are known only when a graph runs.
        return tf.reshape(tf.stack([tf.cast(x, tf.float64) for x in fields.values()]), [4, -1])

    def add_step(
        self, step_type: tf.Tensor, next_step_type: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor
    ) -> ReturnMoments:
        """Takes in a step of every environment; returns what it adds to the statistics, moments of tensors.

        Args:
          step_type, next_step_type: float64 [B]. From a last step to the next first one nothing happens.
          rewards, discounts: float64 [B, H]; discounts are gamma, or 0 where the episode terminates.

        Raises:
          tf.errors.InvalidArgumentError: a reward or discount that is NaN or infinite; nothing has been taken in.
        """
        real = (step_type != _LAST)[:, None]
        rewards, discounts = tf.where(real, rewards, 0.0), tf.where(real, discounts, 0.0)
        steps = step_fields(rewards, discounts, real)
        # Sums over replicas first: one that raises would leave others waiting.
        with tf.control_dependencies(steps):
            checks = check_finite("rewards", rewards, self._who) + check_finite(
                "discounts", discounts, self._who
            )
        with tf.control_dependencies(checks):
            steps = [tf.identity(field) for field in steps]
            # Episodes from a checkpoint of another number of environments are cut.
            before, cut = resize_for(self._open, tf.shape(rewards)[0])
        fresh = tf.zeros_like(before)
        left = (step_type == _FIRST)[:, None] & (before[0] > 0.0)
        after = tf.stack(extend_episodes(tf.unstack(tf.where(left, fresh, before)), rewards, discounts))
        after = tf.where(real, after, before)
        ended = real & ((next_step_type == _LAST)[:, None] | (after[0] >= self._max_report_steps))
        finite = tf.reduce_all(tf.math.is_finite(after))
        complete = tf.where(left, before, fresh) + tf.where(ended, after, fresh)
        cut = tf.reduce_sum(cut, axis=1)
        count, total, squares = (cut[row] + tf.reduce_sum(complete[row], axis=0) for row in (0, 4, 5))
        divisor = tf.maximum(count, 1.0)
        mean_square = tf.maximum(squares, 0.0) / divisor
        self._open.assign(tf.where(finite, tf.where(ended, fresh, after), before))
        return ReturnMoments(*[*steps, count, total / divisor, mean_square])


def resize_for(kept: tf.Variable, num_envs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads what a variable keeps of each environment, for `num_envs` of them; zeros if it keeps another number.

    Args:
      kept: float64 [R, N, ...]; nothing in row 0 is negative.
      num_envs: B.

    Returns:
      float64 [R, B, ...]; and what does not fit, [R, N, ...]: zeros if B is N.
    """
    # N is counted: TensorFlow would take the shape that is assigned later for the one that is read here. Arithmetic
    # instead of `tf.cond`, which replicas do not support.
    counts = kept[0] if kept.shape.rank == 2 else tf.reduce_min(kept[0], axis=-1)
    fits = tf.cast(tf.math.count_nonzero(counts >= 0.0) == tf.cast(num_envs, tf.int64), tf.float64)
    nothing = tf.zeros([kept.shape[0], num_envs, *kept.shape[2:]], tf.float64)
    return tf.concat([fits * kept, nothing], axis=1)[:, :num_envs], (1.0 - fits) * kept
