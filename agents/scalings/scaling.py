"""The interface behind which every scaling stands; on its own it leaves errors as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import gin
import tensorflow as tf

from rbs_tf.moments import ReturnMoments


class ErrorContext(NamedTuple):
    """Where a batch of TD errors comes from; time-major, without gradients.

    T rows have errors. R rows, at least as many, enter their targets: the whole n-step window.
    """

    rewards: tf.Tensor  # float32 [R, B, H]
    discounts: tf.Tensor  # float32 [R, B, H]
    mask: tf.Tensor  # float32 [R, B], 1 for real transitions, 0 for padding
    # Each head's highest value, of the target network less of the online network.
    value_gap: tf.Tensor  # float32 [T, B, H], reward units

    @property
    def error_mask(self) -> tf.Tensor:
        """The mask of the rows that have errors: float32 [T, B]."""
        return self.mask[: tf.shape(self.value_gap)[0]]


class HeadLayer(Protocol):
    """A network's last layers, as scalings need them; `networks.DuelingHeads` is one."""

    def rescale_outputs(self, ratio: tf.Tensor, shift: tf.Tensor) -> None:
        """Rewrites the weights so that every output Q becomes ratio Q + shift; float [H] each. In graph."""


Kind = TypeVar("Kind", bound=type)


def named(name: str) -> Callable[[Kind], Kind]:
    """Lets a configuration choose a class as `@scalings.NAME` and set its arguments, as `scalings.NAME.ARGUMENT`.

    The class remembers the name as `known_as`.
    """

    def decorate(kind: Kind) -> Kind:
        kind.known_as = name  # type: ignore[attr-defined]
        return gin.configurable(name, module="scalings", denylist=["num_heads"])(kind)

    return decorate


@named("none")
class Scaling(tf.Module):
    """No scaling, and the hooks that a scaling may override.

    The agent calls them in the order below: `observe` with all statistics that have arrived, before every update, in
    NumPy or, by `agent.observers`, in a graph; the others in the update's graph. `rewards` to `losses` may also be
    called on their own and must change nothing. State is in `tf.Variable`s, so that checkpoints hold it.

    "Network units" are what the heads put out, "reward units" what the environment pays. They differ where a scaling
    normalises outputs. Categorical scalings have heads of K = `outputs_per_action` logits per action, of which `decode`
    makes one value; everything else is about values.

    Under `tf.distribute` every replica calls the hooks with its share of the batch and holds its own variables. Sum
    what is taken from a batch with `tensor_moments.sum_over_replicas`, outside of `tf.cond`. Hooks end in
    `return None` because AutoGraph does not compile a body that is only a docstring.

    Args:
      num_heads: H.

    Attributes:
      outputs_per_action: K.
      rewrites_outputs: whether it calls `rescale_outputs`.
    """

    outputs_per_action: int = 1
    rewrites_outputs: bool = False

    def __init__(self, num_heads: int):
        super().__init__(name=type(self).__name__.lower())
        self.num_heads = num_heads

    def observe(self, moments: ReturnMoments) -> None:
        """Takes in statistics of new steps, and of returns once their episode has ended; float64 [H] each."""

    @property
    def observed(self) -> bool | tf.Tensor:
        """Whether there are statistics to scale by, bool []; True for a scaling that needs none."""
        layer = getattr(self, "layer", None)
        return True if layer is None else layer.moments.count[0] > 0.0

    def before_update(self, heads: HeadLayer, target_heads: HeadLayer) -> None:
        """Before anything is computed: may call `rescale_outputs`, where `observe` has changed the units."""
        return None

    def initialise(self, values: tf.Tensor, mask: tf.Tensor, first: bool | tf.Tensor = True) -> None:
        """Sees the values of each batch, float32 [T, B, H], with their mask [T, B]. Measures what it needs in the first
        batch, where `first` is true, and ignores later ones."""
        return None

    def rewards(self, rewards: tf.Tensor) -> tf.Tensor:
        """Rewards to learn from, float32 [T, B, H] -> the same shape."""
        return rewards

    def decode(self, outputs: tf.Tensor) -> tf.Tensor:
        """What the heads put out -> network units: [..., K] -> [...]; the identity for K = 1. Depends on no state."""
        return outputs

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        """Network units -> reward units, float32 [..., H]; of the target network if `target`."""
        return outputs

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        """Scaled TD errors [T, B, H], also for priorities: targets in reward units, outputs in network units, both
        float32 [T, B, H]. Only `outputs` carries gradients."""
        return targets - outputs

    def losses(
        self, errors: tf.Tensor, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext
    ) -> tf.Tensor:
        """What is minimised: float32 [T, B, H], 0 where padded; `outputs` are those before `decode`."""
        return 0.5 * tf.square(errors)

    def after_update(self, targets: tf.Tensor, outputs: tf.Tensor, mask: tf.Tensor, heads: HeadLayer) -> None:
        """After the gradient step: targets and outputs as for `errors`, their mask [T, B], the online head layer."""
        return None

    def target_updated(self) -> None:
        """The target network has just become a copy of the online network."""
        return None

    def summaries(self) -> dict[str, tf.Tensor]:
        """Values for TensorBoard: name -> [H]."""
        return {}
