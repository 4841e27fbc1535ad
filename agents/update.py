"""The update on one page: from a batch of sequences to what Adam, the replay and the scaling get back.

Time-major: T training steps, R rows that targets reach (T and n - 1 more), B sequences, H heads, A actions; K outputs
per action for categorical scalings. Everything is float32, and only `scaling.initialise` changes state.
`agents.targets` has the formulas.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from agents.heads import Heads
from agents.scalings import ErrorContext, Scaling
from agents.sequences import Sequence, SequenceShape, Steps
from agents.targets import (
    Transitions,
    add_axes,
    importance_weights,
    n_step_targets,
    num_replicas,
    sequence_priorities,
    transitions,
    zero_masked,
)
from networks.recurrent_q_network import swap_batch_and_time


class LossOptions(NamedTuple):
    """How errors become a loss and priorities."""

    double_q: bool  # the online network chooses the bootstrap action (van Hasselt 2016)
    eta: float  # weight of the maximum in a sequence's priority
    beta: float  # exponent of the importance weights


class TDLoss(NamedTuple):
    """The loss of a batch of sequences and what it is made of; gradients flow through `loss` and `losses`."""

    loss: tf.Tensor  # []: of all replicas' batch, this replica's part
    priorities: tf.Tensor  # [B]
    losses: tf.Tensor  # [T, B, H], without importance weights
    errors: tf.Tensor  # [T, B, H], scaled TD errors
    targets: tf.Tensor  # [T, B, H], reward units
    values: tf.Tensor  # [T, B, H], reward units, of the actions taken
    outputs: tf.Tensor  # [T, B, H], the same in network units
    mask: tf.Tensor  # [T, B], 1 where a transition trains; where it is 0, all of these are 0


def td_loss(
    online_q: tf.Tensor,
    target_q: tf.Tensor,
    sequence: Sequence,
    weights: tf.Tensor | None = None,
    first: tf.Tensor | None = None,
    *,
    scaling: Scaling,
    heads: Heads,
    shape: SequenceShape,
    options: LossOptions,
) -> TDLoss:
    """R2D2's loss (Kapturowski et al. 2019) with many heads and scaled errors; gradients flow into `online_q` only.

        loss = 1 / (B T) sum_{t, b, h} w_b 1/2 scaled_error^2,   or w_b times what `scaling.losses` has for the square

    Args:
      online_q, target_q: the networks' outputs for the rows behind the burn-in, [B, R + 1, H, A], or
        [B, R + 1, H, A, K]. Without double Q the first T rows of the online network are enough.
      sequence: [B, L]; observations are not used.
      weights: float32 [B] or [], which multiply the importance weights.
      first: bool [], whether the scaling takes sigma_v from this batch. None: nothing is changed.
    """
    length = shape.length
    batch = transitions(sequence.steps, heads, shape)
    mask = batch.mask[:length]

    # What the outputs stand for: values in network units, and each head's highest of every state that trains.
    online_outputs = swap_batch_and_time(online_q)
    target_q = scaling.decode(swap_batch_and_time(target_q))
    online_q = tf.stop_gradient(scaling.decode(online_outputs))
    greedy = tf.reduce_max(online_q, axis=-1)
    target_greedy = scaling.values(tf.reduce_max(target_q, axis=-1), target=True)
    value_gap = target_greedy[:length] - scaling.values(greedy)[:length]
    if first is not None:
        scaling.initialise(greedy[:length], tf.cast(mask, tf.float32), first)

    # Scaled errors of the actions that were taken, against n-step targets.
    taken = tf.one_hot(batch.actions[:length], online_q.shape[-1])[:, :, None]
    taken_outputs = tf.reduce_sum(online_outputs[:length] * add_axes(taken, online_outputs), axis=3)
    taken_outputs = zero_masked(taken_outputs, mask)
    outputs = zero_masked(scaling.decode(taken_outputs), mask)
    best = tf.argmax(online_q if options.double_q else target_q, axis=-1)
    bootstrap = scaling.values(tf.gather(target_q, best, batch_dims=3), target=True)
    errors, targets, context = td_errors(batch, outputs, bootstrap, value_gap, scaling, shape)

    # The mean over all steps, padding included: padding then changes nothing, on any replica.
    losses = scaling.losses(errors, targets, taken_outputs, context)
    importance = importance_weights(sequence.probability, sequence.table_size, options.beta)
    if weights is not None:
        importance = importance * weights
    weighted_losses = tf.reduce_sum(losses, axis=-1) * importance
    loss = tf.reduce_sum(weighted_losses) / tf.cast(num_replicas() * tf.size(mask), tf.float32)
    priorities = sequence_priorities(errors, context.error_mask, options.eta)
    values = zero_masked(scaling.values(outputs), mask)
    return TDLoss(loss, priorities, losses, errors, targets, values, outputs, context.error_mask)


def td_errors(
    batch: Transitions,
    outputs: tf.Tensor,
    bootstrap: tf.Tensor,
    value_gap: tf.Tensor,
    scaling: Scaling,
    shape: SequenceShape,
) -> tuple[tf.Tensor, tf.Tensor, ErrorContext]:
    """Scaled errors [T, B, H] of the actions taken, their n-step targets, and what else the scaling has seen.

    Args:
      outputs: [T, B, H], network units, 0 where no transition trains; carries the gradient.
      bootstrap: [R + 1, B, H], reward units.
      value_gap: [T, B, H], see `ErrorContext`; anything where no transition trains.
    """
    mask = batch.mask[: shape.length]
    rewards = scaling.rewards(batch.rewards)
    targets = n_step_targets(bootstrap, rewards, batch.discounts, batch.mask, shape.n_step)
    targets = tf.stop_gradient(zero_masked(targets, mask))
    context = ErrorContext(
        rewards, batch.discounts, tf.cast(batch.mask, tf.float32), zero_masked(value_gap, mask)
    )
    return zero_masked(scaling.errors(targets, outputs, context), mask), targets, context


def first_priorities(
    steps: Steps,
    taken: tf.Tensor,
    greedy: tf.Tensor,
    scaling: Scaling,
    heads: Heads,
    shape: SequenceShape,
    eta: float,
) -> tf.Tensor:
    """Priorities [B] of new sequences from the values seen while acting, which stand for both networks.

    Args:
      steps: rows [B, L]; observations are not used.
      taken, greedy: [B, L, H], network units, the value of the action taken and each head's highest.
    """
    batch = transitions(steps, heads, shape)
    taken = swap_batch_and_time(taken)[shape.burn_in :]
    greedy = swap_batch_and_time(greedy)[shape.burn_in :]
    outputs = zero_masked(taken, batch.mask[: shape.length])
    bootstrap = scaling.values(greedy)
    errors, _, context = td_errors(batch, outputs, bootstrap, tf.zeros_like(outputs), scaling, shape)
    return sequence_priorities(errors, context.error_mask, eta)
