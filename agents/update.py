"""The update on one page: from a batch of windows to what Adam, the replay and the scaling get back.

Time-major: T training steps, R rows that targets reach (T and n - 1 more), B windows, H heads, A actions; K outputs per
action for categorical scalings. Everything is float32 and pure; `agents.targets` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from agents.targets import (
    Sequence,
    SequenceShape,
    Steps,
    n_step_targets,
    num_replicas,
    sequence_priorities,
)
from networks.recurrent_core import State
from networks.recurrent_q_network import swap_batch_and_time
from rbs_tf.scalings import ErrorContext, Scaling

Network = Callable[[slice, State], tuple[tf.Tensor, State]]


class TDLoss(NamedTuple):
    """The loss of a batch of windows and what it is made of; gradients flow through `loss` and `losses`."""

    loss: tf.Tensor  # []: of all replicas' batch, this replica's part
    priorities: tf.Tensor  # [B]
    losses: tf.Tensor  # [T, B, H], without importance weights
    errors: tf.Tensor  # [T, B, H], scaled TD errors
    targets: tf.Tensor  # [T, B, H], reward units
    values: tf.Tensor  # [T, B, H], reward units, of the actions taken
    outputs: tf.Tensor  # [T, B, H], the same in network units
    mask: tf.Tensor  # [T, B], 1 where a transition trains; where it is 0, all of these are 0


def td_loss(
    online: Network,
    target: Network,
    sequence: Sequence,
    scaling: Scaling,
    heads: Heads,
    shape: SequenceShape,
    double_q: bool,
    eta: float,
    weights: tf.Tensor,
    first: tf.Tensor | None = None,
) -> TDLoss:
    """R2D2's loss (Kapturowski et al. 2019) with many heads and scaled errors; gradients flow into `online` only.

        loss = 1 / (B T) sum_{t, b, h} w_b 1/2 scaled_error^2,   or w_b times what `scaling.losses` has for the square

    Args:
      online, target: (rows, state) -> what the heads put out for these rows of the windows, [B, rows, H, A] or
        [B, rows, H, A, K], and the state behind them.
      sequence: the windows; neither their observations nor their probabilities are used.
      scaling, heads, shape: see there.
      double_q: the online network chooses the bootstrap action (van Hasselt 2016).
      eta: weight of the maximum in a window's priority.
      weights: float32 [B], the windows' w.
      first: bool [], whether these are the first windows, from whose values the scaling takes sigma_v. None: nothing is
        changed.
    """
    steps, burn_in, length = sequence.steps, shape.burn_in, shape.length
    keep = transitions(steps, shape)[:length]
    mask = tf.cast(keep, tf.float32)

    # Q-values of both networks, [rows, B, H, A]. Of the burn-in only the recurrent state is kept. The rows behind the
    # training region are bootstrapped from: only double Q asks the online network there.
    state = sequence.core_state
    target_raw, _ = target(slice(None), state)
    if burn_in:
        _, state = online(slice(burn_in), state)
        state = tf.nest.map_structure(tf.stop_gradient, state)
    raw, _ = online(slice(burn_in, None if double_q else burn_in + length), state)
    raw = swap_batch_and_time(raw)
    online_q = tf.stop_gradient(scaling.decode(raw))
    target_q = scaling.decode(swap_batch_and_time(target_raw)[burn_in:])

    # Scaled errors of the actions that were taken, against n-step targets.
    actions = tf.transpose(steps.previous_action)[burn_in + 1 : burn_in + length + 1]
    taken = _aligned(tf.one_hot(actions, online_q.shape[-1])[:, :, None], raw)
    raw = cut(tf.reduce_sum(raw[:length] * taken, axis=3), keep)
    outputs = cut(scaling.decode(raw), keep)
    best = tf.argmax(online_q if double_q else target_q, axis=-1)
    bootstrap = scaling.values(tf.gather(target_q, best, batch_dims=3), target=True)
    greedy, target_greedy = (tf.reduce_max(q, axis=-1) for q in (online_q, target_q))
    target_greedy = scaling.values(target_greedy, target=True)
    if first is not None:
        scaling.initialise(greedy[:length], mask, first)
    errors, targets, context = td_errors(
        steps, outputs, greedy, target_greedy, bootstrap, scaling, heads, shape
    )

    # The mean over all steps, padding included: padding then changes nothing, on any replica.
    losses = scaling.losses(errors, targets, raw, context)
    of_steps = tf.reduce_sum(losses, axis=-1) * weights
    loss = tf.reduce_sum(of_steps) / tf.cast(num_replicas() * tf.size(mask), tf.float32)
    priorities = sequence_priorities(errors, mask, eta)
    values = cut(scaling.values(outputs), keep)
    return TDLoss(loss, priorities, losses, errors, targets, values, outputs, mask)


def td_errors(
    steps: Steps,
    outputs: tf.Tensor,
    greedy: tf.Tensor,
    target_greedy: tf.Tensor,
    bootstrap: tf.Tensor,
    scaling: Scaling,
    heads: Heads,
    shape: SequenceShape,
) -> tuple[tf.Tensor, tf.Tensor, ErrorContext]:
    """Scaled errors of the actions taken against n-step targets.

    Args:
      steps: rows [B, L] of the windows.
      outputs: [T, B, H], network units, of the actions taken, 0 where no transition trains; carries the gradient.
      greedy: [T or more, B, H], network units, each head's highest of the online network.
      target_greedy: [T or more, B, H], reward units, the same of the target network.
      bootstrap: [R + 1, B, H], reward units.
      scaling, heads, shape: see there.

    Returns:
      errors [T, B, H]; targets [T, B, H], reward units; and what else the scaling has seen.
    """
    # The reward and the discount of a transition arrive with the row that it leads to.
    behind = slice(shape.burn_in + 1, None)
    rewards = scaling.rewards(heads.rewards(tf.transpose(steps.reward)[behind]))
    discounts = heads.discounts(tf.transpose(steps.discount)[behind])
    valid = transitions(steps, shape)
    keep = valid[: shape.length]
    targets = n_step_targets(bootstrap, rewards, discounts, valid, shape.n_step)
    targets = tf.stop_gradient(cut(targets, keep))
    context = ErrorContext(
        rewards,
        discounts,
        tf.cast(valid, tf.float32),
        online_values=cut(scaling.values(greedy), keep),
        target_values=cut(target_greedy, keep),
    )
    return cut(scaling.errors(targets, outputs, context), keep), targets, context


def first_priorities(
    steps: Steps,
    taken: tf.Tensor,
    greedy: tf.Tensor,
    scaling: Scaling,
    heads: Heads,
    shape: SequenceShape,
    eta: float,
) -> tf.Tensor:
    """Priorities [B] of new windows from the values seen while acting, which stand for both networks.

    Args:
      steps: rows [B, L] of the windows; their observations are not used.
      taken: [B, L, H], network units, value of the action taken at each row.
      greedy: [B, L, H], network units, each head's highest value at each row.
      scaling, heads, shape, eta: as for `td_loss`.
    """
    keep = transitions(steps, shape)[: shape.length]
    taken, greedy = (swap_batch_and_time(values)[shape.burn_in :] for values in (taken, greedy))
    bootstrap = scaling.values(greedy)
    taken = cut(taken, keep)
    errors, _, context = td_errors(steps, taken, greedy, bootstrap, bootstrap, scaling, heads, shape)
    return sequence_priorities(errors, context.error_mask, eta)


def transitions(steps: Steps, shape: SequenceShape) -> tf.Tensor:
    """Where a row behind the burn-in begins a transition: bool [R, B].

    None leads to an episode's first row: not from the last one before it, nor from where an episode was left.
    """
    step_type = tf.transpose(steps.step_type)[shape.burn_in :]
    return (step_type[:-1] != StepType.LAST) & (step_type[1:] != StepType.FIRST)


def cut(values: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """[T or more, B, ...] -> [T, B, ...], 0 where `keep` [T, B] is false: infinities in padding go, too."""
    values = values[: keep.shape[0]]
    return tf.where(_aligned(keep, values), values, 0.0)


def _aligned(tensor: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The tensor with axes of size 1 added behind until it has as many as the values."""
    return tensor[(..., *[None] * (values.shape.rank - tensor.shape.rank))]
