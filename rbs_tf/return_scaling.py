"""Return-based scaling as a Keras layer (section 3)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import tensorflow as tf

from rbs_tf.advice import PAPERS_FLOOR, Advice
from rbs_tf.moments import ReturnMoments, wrong_columns
from rbs_tf.numpy import Home, check_floor
from rbs_tf.tensor_moments import (
    check_finite,
    check_real,
    check_steps,
    real_float64,
    return_fields,
    step_fields,
)

_KERAS_2 = not hasattr(tf.keras, "ops")

_FEED = (
    "update_state(rewards, discounts) as steps happen and update_returns(returns) at an episode's end, or "
    "merge_state(moments)"
)


@tf.keras.utils.register_keras_serializable(package="rbs_tf")
class ReturnScaling(tf.keras.layers.Layer):
    """Divides TD errors by max(sigma, sigma_v, batch_sigma), sigma^2 = V[R] + V[gamma] E[G^2], per head.

    The statistics cover everything that was ever fed in. Feed data before the TD errors that it causes:

        scaling = ReturnScaling(num_heads=10)
        scaling.update_state(rewards, discounts)     # [T, 10]: as steps happen
        scaling.update_returns(returns)              # [T, 10]: once an episode has ended
        loss = 0.5 * tf.square(scaling(td_errors))   # [B, 10]

    One network that learns several tasks has one scale per task, and `head` says whose a step or an error is:

        scaling = ReturnScaling(num_heads=16)                     # of 16 tasks
        scaling.update_state(rewards, discounts, head=tasks)      # [B] each
        loss = 0.5 * tf.square(scaling(td_errors, head=tasks))    # [B]

    Statistics stay float64 under every dtype policy. Every call reads the current variables, inside `tf.function`,
    Keras models and SavedModels as well.

    The layer logs once when errors come before any step: their scale is `sigma_v` then, and by default they come out a
    hundred times as large. After 1,000 steps it logs once which heads' sigma is below the floor, and which floor fits.
    It logs nothing under `tf.distribute`.

    Several threads may feed one layer eagerly; in graphs and under `tf.distribute` feed it from one thread. Under
    `tf.distribute`, create the layer under `strategy.scope()`; what the replicas feed in within `strategy.run` is added
    up. Under MirroredStrategy updates must not stand inside `tf.cond`: replicas meet there.

    Args:
      num_heads: H, the number of value functions or tasks, each with its statistics.
      sigma_v: positive floor of the scale, a number or one per head: the noise of values at initialisation.
      floor_in_units: the floor is sigma_v `unit`, for networks whose last layer is a `UnitDense`. While a head's unit
        is 0, its errors are divided by their root mean square, or by 1 if all are 0.
      **kwargs: of `tf.keras.layers.Layer`.

    Attributes:
      sigma_v: float64 [H] variable, saved with the weights; assign to it once the noise has been measured.
      statistics: float64 [8, H] variable, the rows of `ReturnMoments.to_array`. A single variable: no reader sees half
        an update.
      advice: the warnings that it logs.
      home: its process and lock.

    Raises:
      ValueError: a num_heads or sigma_v that does not fit.
      RuntimeError: Keras computes with another backend than TensorFlow.
    """

    def __init__(
        self,
        num_heads: int = 1,
        sigma_v: float | Sequence[float] = PAPERS_FLOOR,
        floor_in_units: bool = False,
        **kwargs: Any,
    ):
        if (backend := tf.keras.backend.backend()) != "tensorflow":
            raise RuntimeError(
                f"ReturnScaling needs Keras's TensorFlow backend, and Keras runs on {backend!r}: set "
                "KERAS_BACKEND=tensorflow before Keras is imported, or take rbs_tf.numpy.ReturnScaling, which is NumPy"
            )
        kwargs.setdefault("trainable", False)
        super().__init__(autocast=False, **kwargs)
        floor = check_floor(num_heads, sigma_v)
        self.supports_masking = True
        self.num_heads, self.floor_in_units = num_heads, floor_in_units
        self._initial_sigma_v = floor
        self.home = Home()
        self.advice = Advice(f"ReturnScaling '{self.name}'", _FEED, floor_in_units)
        self._scales = False
        self.statistics = float64_weight(self, "statistics", (len(fields(ReturnMoments)), num_heads), 0.0)
        self.sigma_v = float64_weight(self, "sigma_v", (num_heads,), floor)

    def update_state(self, rewards: Any, discounts: Any, mask: Any = None, head: Any = None) -> None:
        """Takes in steps as they happen.

        Args:
          rewards: [..., H], any dtype; without the last axis, too, when there is one head.
          discounts: [..., H]; what multiplies the future after each step: gamma, or 0 at a terminal step.
          mask: [...], 0 or False for steps that do not count and may hold anything; None counts all.
          head: whole numbers, [...] or one: the head, or task, that each step is of. Rewards and discounts have no axis
            of heads then. None: each step is of all heads.

        Raises:
          tf.errors.InvalidArgumentError: a reward or discount that is NaN or infinite, with its step, head and value; a
            head out of range; numbers of steps that differ and are known only when a graph runs. The statistics stay as
            they were. XLA drops such checks: there an update that is not finite is left out silently.
          ValueError: shapes that do not fit, a number of axes that is unknown when a graph is traced, complex numbers.
        """
        columns, keep = self._mask_columns(mask, head, rewards=rewards, discounts=discounts)
        self.advice.is_fed = True
        nothing = tf.zeros(self.num_heads, tf.float64)
        self._add(ReturnMoments(*step_fields(**columns, keep=keep), *[nothing] * 3), **columns)

    def update_returns(self, returns: Any, mask: Any = None, head: Any = None) -> None:
        """Takes in the returns of steps that `update_state` has seen before; shapes and errors as there."""
        columns, keep = self._mask_columns(mask, head, returns=returns)
        nothing = tf.zeros(self.num_heads, tf.float64)
        self._add(ReturnMoments(*[nothing] * 5, *return_fields(**columns, keep=keep)), **columns)

    def merge_state(self, moments: ReturnMoments) -> None:
        """Adds the statistics of another process; once, even if every replica of a strategy calls it.

        Raises ValueError for another number of heads, or a sum that would not be finite; RuntimeError for a copy of the
        layer in another process.
        """
        self.advice.is_fed = True
        if _is_here_and_now() and not any(map(tf.is_tensor, moments)):
            # One operation instead of sixty: learners call this before every update.
            with self.changes():
                merged = ReturnMoments.merge(ReturnMoments(*self.statistics.numpy()), moments)
                self.statistics.assign(merged.to_array())
            self._advise()
        else:
            # A subclass may have more fields.
            own = [getattr(moments, field.name) for field in fields(ReturnMoments)]
            self._add(ReturnMoments(*map(tf.convert_to_tensor, own)))

    @property
    def moments(self) -> ReturnMoments:
        """The statistics as they are now; each field a float64 [H] tensor."""
        return ReturnMoments(*tf.unstack(self.statistics))

    @property
    def sigma(self) -> tf.Tensor:
        """sqrt(V[R] + V[gamma] E[G^2]), float64 [H], without a floor; 0 before the first update."""
        return tf.sqrt(self.moments.sigma_squared)

    @property
    def unit(self) -> tf.Tensor:
        """The size of values, sqrt(max(E[G^2], E[R^2])), float64 [H]; 0 before the first reward that is not 0."""
        return self.moments.unit

    @property
    def scale(self) -> tf.Tensor:
        """What errors are divided by, max(sigma, sigma_v), float64 [H]; with `floor_in_units` 0 at first."""
        floor = self.sigma_v * self.unit if self.floor_in_units else self.sigma_v
        return tf.maximum(self.sigma, floor)

    @property
    def mean_return(self) -> tf.Tensor:
        """E[G], float64 [H]: where a value network's bias may start (section 5)."""
        return self.moments.mean_return

    def __call__(self, td_errors: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        # Keras 3 refuses plain numbers and lists of them.
        if not all(hasattr(leaf, "shape") for leaf in tf.nest.flatten(td_errors)):
            td_errors = tf.convert_to_tensor(td_errors)
        return super().__call__(td_errors, *args, **kwargs)

    def call(self, td_errors: Any, batch_sigma: Any = None, head: Any = None) -> tf.Tensor:
        """td_errors / max(sigma, sigma_v, batch_sigma).

        Args:
          td_errors: [..., H]; without the last axis, too, when there is one head or `head` is given.
          batch_sigma: [H], the function `batch_sigma` of the batch that the errors come from; it keeps the first large
            rewards harmless. NaN does not count. No gradient flows into it.
          head: whole numbers, in the errors' shape or one: the head, or task, of each error.

        Returns:
          The shape of `td_errors`; float64 for float64 errors, float32 for all others.

        Raises:
          ValueError: errors whose last axis is not the heads', complex numbers.
        """
        errors = check_real("td_errors", tf.convert_to_tensor(td_errors))
        errors = tf.cast(errors, tf.float64 if errors.dtype == tf.float64 else tf.float32)
        several = self.num_heads > 1 and head is None
        if several:
            errors = self._check_last_axis("td_errors", errors)
        scale = self.scale
        self._scales = True
        if batch_sigma is None:
            self._advise(warn_before_errors=True)
        else:
            own = real_float64("batch_sigma", tf.stop_gradient(batch_sigma))
            own = tf.reshape(own, [self.num_heads])  # other sizes than H must not spread
            scale = tf.where(own > scale, own, scale)  # not for NaN
        if self.floor_in_units:
            squares = tf.square(tf.cast(tf.stop_gradient(errors), tf.float64))
            axes = range(errors.shape.rank - 1) if several else None
            of_errors = tf.sqrt(tf.reduce_mean(squares, axis=axes))
            scale = tf.where(scale > 0.0, scale, tf.where(of_errors > 0.0, of_errors, 1.0))
        if head is not None:
            scale = tf.gather(scale, self._check_head_numbers(head))
        elif self.num_heads == 1:
            scale = tf.reshape(scale, [])
        return errors / tf.cast(scale, errors.dtype)

    @tf.autograph.experimental.do_not_convert
    def _advise(self, warn_before_errors: bool = False) -> None:
        """Logs the advice that is due, if the layer scales errors and its statistics can be read."""
        all_said = self.advice.is_judged and (self.advice.is_fed or not warn_before_errors)
        if all_said or not self._scales:
            return
        # Keras calls layers in a scratch graph when it builds a model, which may be long before any data.
        building = not tf.executing_eagerly() and "scratch_graph" in tf.compat.v1.get_default_graph().name
        if building or tf.distribute.has_strategy():
            return
        with tf.init_scope():  # also while a graph is traced
            if not tf.executing_eagerly():
                return
            moments = ReturnMoments(*self.statistics.numpy())
            sigma_v = self.sigma_v.numpy()
        if warn_before_errors:
            self.advice.warn_before_errors(moments, sigma_v)
        self.advice.judge(moments, sigma_v)

    def reset_state(self) -> None:
        """Forgets all statistics. `sigma_v` stays: it belongs to the network, not to the data."""
        with self.changes():
            self.statistics.assign(tf.zeros_like(self.statistics))

    def changes(self) -> contextlib.AbstractContextManager:
        """The lock to hold while statistics are read and assigned; none in graphs and under `tf.distribute`.

        Raises RuntimeError in another process than the one that the layer belongs to.
        """
        self.home.check()
        if _is_here_and_now():
            return self.home.lock
        return contextlib.nullcontext()

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor; the variables travel with the weights."""
        own = {"num_heads": self.num_heads, "sigma_v": self._initial_sigma_v.tolist()}
        return super().get_config() | own | {"floor_in_units": self.floor_in_units}

    def _add(self, moments: ReturnMoments, **columns: tf.Tensor) -> None:
        """Merges the moments of the columns, unless these hold what cannot be counted."""
        # Sums over replicas first: one that raises would leave the others waiting.
        with tf.control_dependencies([*moments]):
            checks = [check for name, values in columns.items() for check in check_finite(name, values)]
        with self.changes():
            merged = tf.stack([*ReturnMoments.merge(self.moments, moments)])
            with tf.control_dependencies(checks):
                # XLA drops the checks, and other replicas do not run this one's.
                finite = tf.reduce_all(tf.math.is_finite(merged))
                merged = tf.where(finite, merged, self.statistics)
            self.statistics.assign(merged)
        if tf.executing_eagerly():
            self._advise()

    def _mask_columns(self, mask: Any, head: Any, **columns: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """The columns as float64 [..., H], 0 where masked, and the mask as bool [..., 1], or [..., H] with `head`."""
        for name, values in columns.items():
            tensor = real_float64(name, values)
            if tensor.shape.rank is None:
                raise ValueError(
                    f"{name} must have a known number of axes when a graph is traced: give the function a "
                    f"tf.TensorSpec with a shape, such as [None, {self.num_heads}]"
                )
            if head is not None:
                columns[name] = tf.repeat(tensor[..., None], self.num_heads, axis=-1)
            elif self.num_heads == 1 and tensor.shape[-1:] != [1]:
                columns[name] = tensor[..., None]
            else:
                columns[name] = self._check_last_axis(name, tensor)
        some = next(iter(columns.values()))
        keep = tf.ones(tf.shape(some)[:-1], tf.bool) if mask is None else tf.cast(mask, tf.bool)
        with tf.control_dependencies(check_steps("ReturnScaling", columns, keep)):
            keep = tf.reshape(keep, tf.shape(some)[:-1])[..., None]
        if head is not None:
            heads = tf.broadcast_to(self._check_head_numbers(head), tf.shape(some)[:-1])
            keep &= tf.one_hot(heads, self.num_heads, True, False)
        return {name: tf.where(keep, values, 0.0) for name, values in columns.items()}, keep

    def _check_head_numbers(self, head: Any) -> tf.Tensor:
        heads = tf.convert_to_tensor(head)
        words = f"head must be whole numbers from 0 to {self.num_heads - 1}; got"
        if not heads.dtype.is_integer:
            raise ValueError(f"{words} {heads.dtype.name}")
        there = tf.reduce_all((heads >= 0) & (heads < self.num_heads))
        with tf.control_dependencies([tf.debugging.Assert(there, [f"ReturnScaling: {words}", heads])]):
            return tf.identity(heads)

    def _check_last_axis(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        if not tensor.shape[-1:].is_compatible_with([self.num_heads]):
            raise wrong_columns(name, tensor.shape, self.num_heads)
        # A size that is known only when a graph runs must not be 1 there.
        unknown = tensor.shape.rank and tensor.shape[-1] is None
        return tf.ensure_shape(tensor, [*tensor.shape[:-1], self.num_heads]) if unknown else tensor


def float64_weight(
    layer: tf.keras.layers.Layer, name: str, shape: tuple[int, ...], value: float | np.ndarray
) -> tf.Variable:
    """Adds a weight that is not trained and stays float64 under every dtype policy; all replicas assign the same."""
    if _KERAS_2:
        one_speaks = tf.VariableAggregation.ONLY_FIRST_REPLICA
        of_keras: dict[str, Any] = {"experimental_autocast": False, "aggregation": one_speaks}
    else:
        of_keras = {"autocast": False, "aggregation": "only_first_replica"}
    initializer = tf.keras.initializers.Constant(value)
    return layer.add_weight(
        name=name, shape=shape, dtype="float64", initializer=initializer, trainable=False, **of_keras
    )


def _is_here_and_now() -> bool:
    """Whether operations run when they are called, in one place: not in a graph, nor in replicas, which wait for one
    another when they assign."""
    return tf.executing_eagerly() and not tf.distribute.has_strategy()
