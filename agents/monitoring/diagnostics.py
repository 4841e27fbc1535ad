"""What TensorBoard is shown of an update, beside what is needed to learn."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from agents.monitoring.tags import DEAD, LOSS, SCALED, SPREAD, UNSCALED
from agents.sequences import SequenceShape, select_rows
from agents.targets import gather_replicas
from agents.update import TDLoss
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf.tensor_moments import sum_over_replicas


class LossExtra(NamedTuple):
    """All that `train` hands out beside the loss; the means are of the batch of all replicas, for TensorBoard."""

    priorities: tf.Tensor  # float32 [B], new priorities of the sequences
    per_head: dict[str, tf.Tensor]  # tag -> float32 [H]
    scalars: dict[str, tf.Tensor]  # tag -> float32


def summarise_loss(result: TDLoss) -> LossExtra:
    """The priorities, and means over the real steps of the whole batch."""
    squares = tf.square(result.errors), tf.square(result.targets - result.values)
    of_steps = tf.stack([result.losses, *squares, result.values, result.targets])
    loss, real, steps, sums = sum_over_replicas(
        result.loss,
        tf.reduce_sum(result.mask),
        tf.cast(tf.size(result.mask), tf.float32),
        tf.reduce_sum(of_steps, axis=(1, 2)),
    )
    losses, scaled, unscaled, value, target = tf.unstack(sums / tf.maximum(real, 1.0))
    per_head = {
        LOSS: losses,
        UNSCALED: tf.sqrt(unscaled),
        SCALED: tf.sqrt(scaled),
        "value": value,
        "target": target,
    }
    priorities = gather_replicas(result.priorities)
    scalars = {
        LOSS: loss,
        "priority/mean": tf.reduce_mean(priorities),
        "priority/max": tf.reduce_max(priorities),
        "masked_fraction": 1.0 - real / steps,
    }
    return LossExtra(result.priorities, per_head, scalars)


def torso_activity(
    network: RecurrentQNetwork, observation: tf.Tensor, shape: SequenceShape
) -> dict[str, tf.Tensor]:
    """Each torso layer's share of dead units on the rows that train, and the spread of features: tag -> float32.

    Args:
      network: whose torso.
      observation: [B, L, ...], of sequences.
      shape: their layout.
    """
    rows = select_rows(observation, shape.burn_in, shape.burn_in + shape.length)
    dead, spread = network.torso_activity(rows)
    shares = {f"{DEAD}/{name}": x for name, x in zip(network.torso_layers, tf.unstack(dead), strict=True)}
    return shares | {SPREAD: spread}
