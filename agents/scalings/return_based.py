"""Return-based scaling, the paper's proposal (section 3)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import tensorflow as tf

from agents.checks import check, number, optional
from agents.scalings.error import batch_moments, deviation
from agents.scalings.scaling import ErrorContext, HeadLayer, Scaling, named
from rbs_tf.advice import PAPERS_FLOOR
from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import ReturnScaling
from rbs_tf.tensor_moments import batch_sigma


@named("return_based")
class ReturnBasedScaling(Scaling):
    """TD errors divided by max(sigma, sigma_v, sigma_batch), sigma^2 = V[R] + V[gamma] E[G^2], per head.

    sigma comes from everything the agent has ever seen; sigma_v is measured on the first batch as the spread over
    states of each head's value; sigma_batch keeps the first large rewards harmless, and damps batches whose rewards
    vary more than the stream's (section 3.2).

    The options, all off by default, are what the paper's discussion and section 3.2 mention and leave out.

    Args:
      num_heads: H.
      sigma_v: the floor until the first batch has been seen, and for a head whose values do not vary at all.
      target_network_term: sigma^2 = V[R] + V[gamma] (E[G^2] + mean (V' - V)^2), with the values V' of the target
        network and V of the online network on the states of the batch at hand. Of each batch, not a running
        mean: the gap falls to 0 whenever the target network is replaced, and an average would lag behind.
      value_bias: adds E[G] to each head's output bias in both networks, once, from the first statistics that hold
        returns; biases start at 0. A head of rewards far from 0 need not learn its offset.
      half_life: environment steps after which statistics count half; None for all of them alike. What arrives
        together ages together.
      layer: a layer to use, with its statistics. A head's sigma_v that is not the default, 1e-2, was set by the user
        and stays; a default one is replaced by what is measured.

    Raises:
      ValueError: a half life below 1; a layer of another number of heads.
    """

    def __init__(
        self,
        num_heads: int,
        sigma_v: float = 1e-2,
        target_network_term: bool = False,
        value_bias: bool = False,
        half_life: float | None = None,
        layer: ReturnScaling | None = None,
    ):
        super().__init__(num_heads)
        steps = optional(number("environment steps", least=1))
        check("scalings.return_based.half_life", half_life, steps, example=1e6)
        if layer is not None and layer.num_heads != num_heads:
            raise ValueError(
                f"the ReturnScaling layer has {layer.num_heads} heads and the agent {num_heads}: write "
                f"ReturnScaling(num_heads={num_heads})"
            )
        self._is_users = layer is not None
        self.layer = layer or ReturnScaling(num_heads=num_heads, sigma_v=sigma_v)
        self._target_network_term, self._half_life = target_network_term, half_life
        # None when off, so that checkpoints hold what is used.
        self.biased = None
        if value_bias:
            self.rewrites_outputs = True
            self.biased = tf.Variable(tf.zeros(num_heads, tf.bool), trainable=False, name="biased")

    def observe(self, moments: ReturnMoments) -> None:
        with self.layer.changes():  # other threads may feed the layer
            if self._half_life is not None:
                # Statistics age by the new steps: counts and sums shrink, means are what they were.
                faded = 0.5 ** (moments.count / self._half_life)
                fade = ("count", "reward_m2", "discount_m2", "return_count")
                fades = np.array([[field.name in fade] for field in fields(ReturnMoments)])
                statistics = self.layer.statistics
                statistics.assign(statistics * tf.where(fades, faded, tf.ones_like(faded)))
            self.layer.merge_state(moments)

    def before_update(self, heads: HeadLayer, target_heads: HeadLayer) -> None:
        if self.biased is None:
            return
        moments = self.layer.moments
        now = ~self.biased & (moments.return_count > 0.0)
        shift = tf.where(now, moments.return_mean, 0.0)
        for layer in (heads, target_heads):
            layer.rescale_outputs(tf.ones_like(shift), shift)
        self.biased.assign(self.biased | now)

    def initialise(self, values: tf.Tensor, mask: tf.Tensor, first: bool | tf.Tensor = True) -> None:
        spread = deviation(batch_moments(values, mask))
        measured = first & (spread > 0.0)
        if self._is_users:
            measured &= self.layer.sigma_v == PAPERS_FLOOR
        self.layer.sigma_v.assign(tf.where(measured, spread, self.layer.sigma_v))

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        floor = batch_sigma(context.rewards, context.discounts, context.mask)
        if self._target_network_term:
            # sqrt(V[R] + V[gamma] (E[G^2] + mean (V' - V)^2)): all-time moments, and the gap of this batch.
            _, mean, variance = tf.unstack(batch_moments(context.value_gap, context.error_mask))
            moments = self.layer.moments
            square = moments.sigma_squared + moments.discount_variance * (variance + tf.square(mean))
            floor = tf.maximum(floor, tf.sqrt(square))
        return self.layer(targets - outputs, batch_sigma=floor)

    def summaries(self) -> dict[str, tf.Tensor]:
        moments = self.layer.moments
        return {
            "sigma": self.layer.sigma,
            "sigma_v": self.layer.sigma_v,
            "variance_of_rewards": moments.reward_variance,
            "variance_of_discounts": moments.discount_variance,
            "mean_square_return": moments.return_mean_square,
            **({} if self.biased is None else {"value_biased": tf.cast(self.biased, tf.float32)}),
        }
