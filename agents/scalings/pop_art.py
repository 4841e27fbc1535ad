"""Pop-Art (van Hasselt et al. 2016), and the part of it that preserves outputs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from agents.checks import check, number
from agents.scalings.scaling import ErrorContext, HeadLayer, Scaling, named
from rbs_tf.tensor_moments import sum_over_replicas
from rbs_tf.unit_dense import compute_ratio
from rbs_tf.units import SMALLEST_CHANGE


class OutputUnits(tf.Module):
    """The units in which one network's last layers are written: value = scale * output + shift, head by head.

    Both are exactly what has been applied to the float32 weights; they may trail what `rewrite` was asked for by 1e-4.

    Args:
      num_heads: H.
      known: False for units that `take_over` is to set: until then scale is 0, and so are all values.

    Attributes:
      scale, shift: float64 [H] variables, 1 and 0 at first.
    """

    def __init__(self, num_heads: int, known: bool = True):
        super().__init__()
        ones = tf.fill([num_heads], tf.cast(known, tf.float64))
        self.scale = tf.Variable(ones, trainable=False, name="scale")
        self.shift = tf.Variable(tf.zeros(num_heads, tf.float64), trainable=False, name="shift")

    def values(self, outputs: tf.Tensor) -> tf.Tensor:
        """Network units -> reward units, float32 [..., H]."""
        return tf.cast(self.scale, outputs.dtype) * outputs + tf.cast(self.shift, outputs.dtype)

    def take_over(self, scale: tf.Tensor, shift: tf.Tensor) -> None:
        """Sets the units of heads that have none yet, float64 [H]. Outputs stay the same; values follow the units."""
        known = self.scale > 0.0
        self.shift.assign(tf.where(known, self.shift, shift))
        self.scale.assign(tf.where(known, self.scale, scale))

    def rewrite(self, heads: HeadLayer, scale: tf.Tensor, shift: tf.Tensor) -> None:
        """Changes the units and, through `heads.rescale_outputs`, the last layers, such that no value changes.

        Args:
          heads: the head layer whose units these are.
          scale, shift: float64 [H], the wanted ones; a scale of 0 stays, and one that was 0 is taken over.
        """
        ratio, new_scale = compute_ratio(self.scale, scale)
        move = tf.math.divide_no_nan(self.shift - shift, new_scale)
        offset = tf.where(tf.abs(move) > SMALLEST_CHANGE, tf.cast(move, tf.float32), 0.0)
        new_shift = self.shift - new_scale * tf.cast(offset, tf.float64)
        heads.rescale_outputs(ratio, offset)
        self.scale.assign(new_scale)
        self.shift.assign(new_shift)

    def assign(self, other: OutputUnits) -> None:
        """Copies the units of another network, whose weights are copied with them."""
        self.scale.assign(other.scale)
        self.shift.assign(other.shift)


@named("pop_art")
class PopArt(Scaling):
    """Targets normalised by running moments of recent targets, outputs preserved whenever these change.

    Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude", algorithm 1, for each head
    on its own (Hessel et al. 2018), with the settings of the paper's appendix "Pop-Art experiments".

    One step of size `step_size` per update, towards the mean over the batch of the targets and of their squares.
    Statistics come first and the gradient second: errors of a batch are already divided by the scale that the batch
    itself leads to. The moments start at 0 and 1, the identity, and are not debiased. The target network keeps the
    units that it was copied with. Batches with a target that is NaN or infinite leave the moments of its head as they
    are.

    With `start_at_first_targets`, beyond the published Pop-Art, nothing depends on the unit of rewards: the moments
    become those of each head's first batch of targets whose root mean square is not 0, and both networks are read in
    these units without a change of weights. Until then all values are 0.

    Args:
      num_heads: H.
      step_size: of the moments, in (0, 1].
      min_scale: lower bound of the scale, in (0, 1]; with `start_at_first_targets` in units of their root mean square.
      max_scale: upper bound of the scale, at least 1; may be infinite. Not used with `start_at_first_targets`.
      start_at_first_targets: the first units are the first targets', not 1.

    Raises:
      ValueError: a step size outside of (0, 1].

    Attributes:
      first: float64 [H], the unit of min_scale: 1, or the first targets' root mean square, 0 before it.
    """

    rewrites_outputs = True

    def __init__(
        self,
        num_heads: int,
        step_size: float = 1e-3,
        min_scale: float = 1e-3,
        max_scale: float = 1e3,
        start_at_first_targets: bool = False,
    ):
        super().__init__(num_heads)
        check("scalings.pop_art.step_size", step_size, number(above=0, most=1), example=1e-3)
        self._step_size, self._min_scale = step_size, min_scale
        self._start_at_first_targets = start_at_first_targets
        self._max_scale = np.inf if start_at_first_targets else max_scale
        nothing, ones = tf.zeros(num_heads, tf.float64), tf.ones(num_heads, tf.float64)
        self.mean = tf.Variable(nothing, trainable=False, name="mean")
        square = nothing if start_at_first_targets else ones
        self.mean_square = tf.Variable(square, trainable=False, name="mean_square")
        # No variable where it does not change, so that checkpoints hold what is used.
        self.first = tf.Variable(nothing, trainable=False, name="first") if start_at_first_targets else ones
        known = not start_at_first_targets
        self.online, self.target = OutputUnits(num_heads, known), OutputUnits(num_heads, known)

    def values(self, outputs: tf.Tensor, target: bool = False) -> tf.Tensor:
        return (self.target if target else self.online).values(outputs)

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        mean, mean_square = self._next_moments(targets, context.error_mask)
        scale = self._scale(mean, mean_square)
        scale = tf.where(scale > 0.0, scale, 1.0)  # of heads that have no units yet: any will do
        # Outputs are still in the units from before the batch, but for those that it is the first of.
        known = self.online.scale > 0.0
        old_scale = tf.cast(tf.where(known, self.online.scale, scale), outputs.dtype)
        old_shift = tf.cast(tf.where(known, self.online.shift, mean), outputs.dtype)
        return (targets - (old_scale * outputs + old_shift)) / tf.cast(scale, outputs.dtype)

    def after_update(self, targets: tf.Tensor, outputs: tf.Tensor, mask: tf.Tensor, heads: HeadLayer) -> None:
        mean, mean_square = self._next_moments(targets, mask)
        scale = self._scale(mean, mean_square)
        for units in (self.online, self.target):
            units.take_over(scale, mean)
        self.online.rewrite(heads, scale, mean)
        if self._start_at_first_targets:
            self.first.assign(self._next_first(mean_square))
        self.mean.assign(mean)
        self.mean_square.assign(mean_square)

    def target_updated(self) -> None:
        self.target.assign(self.online)

    def summaries(self) -> dict[str, tf.Tensor]:
        return {"scale": self.online.scale, "shift": self.online.shift}

    def _next_moments(self, targets: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and mean square, float64 [H], after a step towards those of targets [T, B, H] under mask [T, B]."""
        keep = tf.cast(mask, tf.float64)[..., None]
        targets = tf.cast(targets, tf.float64)
        count, total, total_square = sum_over_replicas(
            tf.reduce_sum(keep),
            *(tf.reduce_sum(keep * x, axis=(0, 1)) for x in (targets, tf.square(targets))),
        )
        step = tf.where(self.first > 0.0, tf.constant(self._step_size, tf.float64), 1.0)
        step = tf.where(count > 0.0, step, 0.0)

        def take_step(moment: tf.Variable, total: tf.Tensor) -> tf.Tensor:
            moved = moment + step * (total / tf.maximum(count, 1.0) - moment)
            return tf.where(tf.math.is_finite(total_square), moved, moment)

        return take_step(self.mean, total), take_step(self.mean_square, total_square)

    def _scale(self, mean: tf.Tensor, mean_square: tf.Tensor) -> tf.Tensor:
        """Standard deviation within the bounds, float64 [H]; rounding never makes its square negative."""
        deviation = tf.sqrt(tf.maximum(mean_square - tf.square(mean), 0.0))
        smallest = self._min_scale * self._next_first(mean_square)
        return tf.clip_by_value(deviation, smallest, self._max_scale)

    def _next_first(self, mean_square: tf.Tensor) -> tf.Tensor:
        """`first` once the moments have come to this mean square, float64 [H]."""
        return tf.where(self.first > 0.0, self.first, tf.sqrt(mean_square))
