"""What TensorBoard is shown of an update, beside what is needed to learn."""

from __future__ import annotations

import tensorflow as tf

from agents.monitoring.tags import DEAD, LOSS, SCALED, SPREAD, UNSCALED
from agents.sequences import SequenceShape, rows_of
from agents.targets import of_all_replicas
from agents.update import TDLoss
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf.tensor_moments import summed_over_replicas


def batch_means(result: TDLoss) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Means over the real steps of the whole batch, of all replicas: tag -> float32 [H], and tag -> float32."""
    squares = tf.square(result.errors), tf.square(result.targets - result.values)
    of_steps = tf.stack([result.losses, *squares, result.values, result.targets])
    loss, real, steps, sums = summed_over_replicas(
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
    priorities = of_all_replicas(result.priorities)
    scalars = {
        LOSS: loss,
        "priority/mean": tf.reduce_mean(priorities),
        "priority/max": tf.reduce_max(priorities),
        "masked_fraction": 1.0 - real / steps,
    }
    return per_head, scalars


def torso_activity(
    network: RecurrentQNetwork, observation: tf.Tensor, shape: SequenceShape, due: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Each torso layer's share of dead units on the rows that train, and the spread of features: tag -> float32.

    Args:
      network: whose torso.
      observation: [B, L, ...], of sequences.
      shape: their layout.
      due: bool []; where it is false, nothing is computed and all is 0.
    """
    names, rows = network.torso_layers, (shape.burn_in, shape.burn_in + shape.length)
    dead, spread = tf.cond(
        due, lambda: network.torso_activity(rows_of(observation, *rows)), lambda: (tf.zeros(len(names)), 0.0)
    )
    shares = {f"{DEAD}/{name}": share for name, share in zip(names, tf.unstack(dead), strict=True)}
    return shares | {SPREAD: spread}
