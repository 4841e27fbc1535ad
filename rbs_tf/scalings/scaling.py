"""The interface behind which every scaling stands; on its own it leaves errors as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.moments import ReturnMoments


class ErrorContext(NamedTuple):
    """The origin of a batch of TD errors; time-major. No gradient flows into any of it.

    T rows have errors. R rows, at least as many, enter their targets: the whole n-step window.
    """

    rewards: tf.Tensor  # float32 [R, B, H]
    discounts: tf.Tensor  # float32 [R, B, H]
    mask: tf.Tensor  # float32 [R, B], 1 for real transitions, 0 for padding
    online_values: tf.Tensor  # float32 [T, B, H], reward units: each head's highest value, online network
    target_values: tf.Tensor  # float32 [T, B, H], the same of the target network
    n_step: int = 1  # the n of the targets

    @property
    def error_mask(self) -> tf.Tensor:
        """The mask of the rows that have errors: float32 [T, B]."""
        return self.mask[: tf.shape(self.online_values)[0]]


class HeadLayer(Protocol):
    """A network's last layers, as scalings need them; `networks.DuelingHeads` is one."""

    def rescale_outputs(self, ratio: tf.Tensor, shift: tf.Tensor) -> None:
        """Rewrites the weights so that every output Q becomes ratio Q + shift, head by head. In graph.

        Args:
          ratio: float [H].
          shift: float [H].
        """

    def move_outputs(self, sources: tf.Tensor) -> None:
        """Rewrites the weights so that output k of every action becomes what output sources[h, k] was. In graph.

        Args:
          sources: int [H, K], each 0 to K - 1, or K for an output halfway between the first and the last.
        """


@configurable("none", module="scalings")
class Scaling(tf.Module):
    """No scaling, and the hooks that a scaling may override.

    The agent calls, in this order: `observe` with all statistics that have arrived, before every update;
    `before_update`, at the beginning of the update; inside it `initialise`, then `rewards`, `values` and `errors`,
    which may also be called on their own and must change nothing; `after_update`; and `target_updated` when the
    target network has been replaced. Whatever a scaling remembers must be a `tf.Variable`, so that checkpoints
    hold it.

    Hooks of an update may run under AutoGraph, which compiles no body that is a docstring alone: hence their `return`.

    Under `tf.distribute` every replica calls the hooks of an update with its share of the batch, and each holds
    variables of its own. These stay equal only if all assign the same: what is taken from a batch must be summed
    with `return_scaling.summed_over_replicas`, outside of `tf.cond`.

    "Network units" are what the heads put out, "reward units" what the environment pays. They differ for scalings
    that normalise the outputs; for the others `values` is the identity. Categorical scalings have heads that put out
    `outputs_per_action` logits per action; of these `decode` makes one value, and all else is about values.

    Args:
      num_heads: H.

    Attributes:
      outputs_per_action: K, how many outputs the network is to have per head and action.
      needs: what `observe` takes beside moments per head: the argument's name -> the class of its moments. Collectors
        collect no more than that. "n_step" is of the n-step transitions that targets are made of, each as soon as its
        last step has happened, without returns. Under any other name come the steps and returns of `moments` once
        more, for a class that has `from_steps`, `from_returns`, `merge`, `to_array`, `from_array` and `empty` like
        `ReturnMoments`.
    """

    outputs_per_action: int = 1
    needs: Mapping[str, Any] = {}

    def __init__(self, num_heads: int):
        super().__init__(name=type(self).__name__.lower())
        self.num_heads = num_heads

    def observe(self, moments: ReturnMoments) -> None:
        """Takes in statistics of new steps and finished episodes. Eager.

        Args:
          moments: of steps, and of returns once their episode has ended; float64 [H] each.

        What a scaling `needs` beside them comes as arguments of these names.
        """

    def before_update(self, heads: HeadLayer, target_heads: HeadLayer) -> None:
        """Before anything is computed, in graph; both networks' head layers, whose `rescale_outputs(ratio, shift)` a
        scaling may call, for one when `observe` has changed its units."""
        return None

    def initialise(self, values: tf.Tensor, mask: tf.Tensor, first: bool | tf.Tensor = True) -> None:
        """Sees the network's values on a batch, float32 [T, B, H], mask float32 [T, B]. In graph, in every update.

        Only where `first` is true, on the agent's first batch, are they those at initialisation and to be remembered.
        It is no `tf.cond` around the call, because replicas could not meet in there.
        """
        return None

    def rewards(self, rewards: tf.Tensor) -> tf.Tensor:
        """Rewards to learn from, float32 [T, B, H] -> the same shape."""
        return rewards

    def decode(self, outputs: tf.Tensor) -> tf.Tensor:
        """What the heads put out -> network units: float32 [..., K] -> [...], or [...] as it is for K = 1.

        It depends on nothing that changes: network units of old are told by `values` alone.
        """
        return outputs

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        """Network units -> reward units, float32 [..., H] (or [..., H, 1]-broadcastable); of the target network
        if `target`."""
        return outputs

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        """Scaled TD errors: targets in reward units, outputs in network units, float32 [T, B, H] -> [T, B, H].

        Only `outputs` carries gradients. Priorities come from the errors' size.
        """
        return targets - outputs

    def losses(
        self, errors: tf.Tensor, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext
    ) -> tf.Tensor:
        """What is minimised: float32 [T, B, H], 0 where `context.error_mask` is.

        Args:
          errors: float32 [T, B, H], the scaled ones, 0 where the mask is; they carry gradients.
          targets: float32 [T, B, H], reward units.
          outputs: float32 [T, B, H] or [T, B, H, K], what the heads put out, before `decode`; they carry gradients.
          context: as for `errors`.
        """
        return 0.5 * tf.square(errors)

    def after_update(
        self,
        targets: tf.Tensor,
        outputs: tf.Tensor,
        mask: tf.Tensor,
        heads: HeadLayer,
        target_heads: HeadLayer,
    ) -> None:
        """After the gradient step, in graph: targets [T, B, H] in reward units, the outputs [T, B, H] in network
        units that were compared with them, mask [T, B], and the head layers as in `before_update`."""
        return None

    def target_updated(self) -> None:
        """The target network has just become a copy of the online network. In graph."""
        return None

    def summaries(self) -> dict[str, tf.Tensor]:
        """Values for TensorBoard: name -> [H]."""
        return {}
