"""The mathematics of an update as pure functions, time-major: T steps, B sequences, H heads."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.sequences import SequenceShape, Steps


class Transitions(NamedTuple):
    """The transitions that begin in the R rows behind the burn-in."""

    actions: tf.Tensor  # int32 [R, B]
    rewards: tf.Tensor  # [R, B, H]
    discounts: tf.Tensor  # [R, B, H]
    mask: tf.Tensor  # bool [R, B]; False where none begins: at an episode's last row, and where one was left


def transitions(steps: Steps, heads: Heads, shape: SequenceShape) -> Transitions:
    """Time-major, from rows [B, L]. An action, its reward and discount arrive with the row that they lead to."""
    actions, rewards, discounts, types = (
        tf.transpose(x)[shape.burn_in :]
        for x in (steps.previous_action, steps.reward, steps.discount, steps.step_type)
    )
    mask = (types[:-1] != StepType.LAST) & (types[1:] != StepType.FIRST)
    return Transitions(actions[1:], heads.rewards(rewards[1:]), heads.discounts(discounts[1:]), mask)


def zero_masked(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[T or more, B, ...] -> [T, B, ...], with 0 in place of any value, even inf, where `mask` [T, B] is false."""
    values = values[: mask.shape[0]]
    return tf.where(add_axes(mask, values), values, 0.0)


def add_axes(tensor: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The tensor with axes of size 1 added behind until it has as many as the values."""
    return tensor[(..., *[None] * (values.shape.rank - tensor.shape.rank))]


def n_step_targets(
    values: tf.Tensor, rewards: tf.Tensor, discounts: tf.Tensor, mask: tf.Tensor, n: int
) -> tf.Tensor:
    """n-step bootstrapped targets, with fewer steps where the episode ends.

        target_t = r_t + g_t r_{t+1} + ... + (g_t ... g_{t+m-1}) V_{t+m},   m = min(n, transitions that are left)

    One recursion does it: the k-step target is r_t + g_t times the (k-1)-step target of the next row, and a
    row without a transition keeps its own value.

    Args:
      values: float32 [T + 1, B, H], the bootstrap value of every row.
      rewards: float32 [T, B, H], the reward of transition t.
      discounts: float32 [T, B, H], its discount; 0 where the episode terminates.
      mask: bool [T, B], False where there is no transition: padding, or the final row of an episode.
      n: number of steps, at least 1.

    Returns:
      float32 [T, B, H]; where `mask` is False, the row's own value.
    """
    bootstrap = values[:-1]
    target = values
    for _ in range(n):
        longer = tf.where(mask[..., None], rewards + discounts * target[1:], bootstrap)
        target = tf.concat([longer, values[-1:]], axis=0)
    return target[:-1]


def sequence_priorities(errors: tf.Tensor, mask: tf.Tensor, eta: float) -> tf.Tensor:
    """Priority of each sequence: eta max_t + (1 - eta) mean_t of the head-averaged absolute scaled error.

    R2D2's mixture (Kapturowski et al. 2019, section 2.3), over unmasked steps only.

    Args:
      errors: float32 [T, B, H], scaled TD errors.
      mask: float32 [T, B], 1 where a step trains.
      eta: weight of the maximum, in [0, 1].

    Returns:
      float32 [B]; 0 for a sequence without an unmasked step.
    """
    per_step = tf.reduce_mean(tf.abs(errors), axis=-1) * mask
    steps = tf.maximum(tf.reduce_sum(mask, axis=0), 1.0)
    return eta * tf.reduce_max(per_step, axis=0) + (1.0 - eta) * tf.reduce_sum(per_step, axis=0) / steps


def importance_weights(probability: tf.Tensor, table_size: tf.Tensor, exponent: float) -> tf.Tensor:
    """(N P)^-beta, divided by the largest of the batch (Schaul et al. 2016, section 3.4); [B] -> float32 [B].

    Under `tf.distribute` the batch is that of all replicas.
    """
    scaled = tf.cast(table_size, tf.float32) * tf.cast(probability, tf.float32)
    weights = tf.pow(tf.maximum(scaled, 1e-12), -exponent)
    return weights / tf.reduce_max(gather_replicas(weights))


def gather_replicas(values: tf.Tensor) -> tf.Tensor:
    """Gathers what all replicas of a strategy hold, one behind the other: [B] -> [all B]. Not in `tf.cond`."""
    if num_replicas() == 1:
        return values
    return tf.distribute.get_replica_context().all_gather(values, axis=0)


def num_replicas() -> int:
    """Replicas that share a batch; 1 outside of `strategy.run`."""
    replica = tf.distribute.get_replica_context()
    return 1 if replica is None else replica.num_replicas_in_sync
