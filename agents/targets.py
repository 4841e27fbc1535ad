"""Windows of experience, and the mathematics of an update as pure functions.

These are time-major: T steps, B sequences, H heads.

Row t of a window is what the network sees at time t: its reward, discount and previous action arrive with its
observation. Transition t leads from row t to row t + 1. A window has `burn_in` rows that only warm the recurrent state
up, `length` rows whose transitions train, and `n_step` rows that the last of these bootstrap from:

    burn_in                  length                  n_step
    s - burn_in ... s - 1  | s ... s + length - 1  | s + length ... s + length + n_step - 1
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.trajectories.time_step import StepType

from agents.heads import Heads
from rbs_tf.settings import Setting, configurable

_LONG, _HALVES = 20_000, 4096  # bytes, see `_padded`


class Steps(NamedTuple):
    """Rows of a stream; padding has step_type LAST, previous_action -1 and zeros elsewhere."""

    step_type: Any  # int32 [..., T]
    observation: Any  # [..., T, ...], dtype of the environment
    previous_action: Any  # int32 [..., T], -1 on first rows
    reward: Any  # float32 [..., T], raw; 0 on first rows
    discount: Any  # float32 [..., T]; 0 on a terminal row, 1 elsewhere, time-outs included


class Packed(NamedTuple):
    """Observations of windows as pieces of P to an observation, each of them there once or at least not often.

    A GPU gets a tenth of the bytes in this way, see `unpacked`.
    """

    pieces: Any  # [M, ...] of the observation's dtype, or int64 that holds 8 pixels each
    numbers: Any  # int32 [B, L, P]


class Sequence(NamedTuple):
    """A batch of windows, what the learner trains on."""

    steps: Steps  # [B, L, ...]; the observation may be `Packed`
    core_state: Any  # (h, c), each float32 [B, U], entering row 0
    probability: Any  # float32 [B], of the draw
    table_size: Any  # int64 [B], sequences in the table at the draw


def sequence_spec(observation: Any, state: tuple[tf.TensorSpec, tf.TensorSpec]) -> Sequence:
    """Of one row and one window, without batch and time."""
    scalar_int, scalar_float = tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.float32)
    steps = Steps(scalar_int, observation, scalar_int, scalar_float, scalar_float)
    return Sequence(steps, state, scalar_float, tf.TensorSpec((), tf.int64))


@configurable(module="agents")
@dataclasses.dataclass(frozen=True)
class SequenceShape:
    """The layout of windows, in rows (environment steps).

    Args:
      burn_in: rows before the training region.
      length: transitions that a window trains.
      period: distance between the starts of consecutive windows.
      n_step: rows after the training region, for n-step targets.

    Raises:
      ValueError: windows so far apart that transitions would be lost between them.
    """

    burn_in: Annotated[int, Setting("environment steps", least=0, paper="20")] = 20
    length: Annotated[int, Setting("environment steps", least=1, paper="80")] = 80
    period: Annotated[int, Setting("environment steps", least=1, paper="40")] = 40
    n_step: Annotated[int, Setting("environment steps", least=1, paper="5")] = 5

    def __post_init__(self) -> None:
        if self.period > self.length:
            raise ValueError(
                f"SequenceShape.period is {self.period} and length {self.length}: transitions between windows would be "
                f"lost; write SequenceShape.period = {self.length} or less"
            )

    @property
    def rows(self) -> int:
        """L, the rows of a window."""
        return self.burn_in + self.length + self.n_step

    @property
    def block(self) -> int:
        """Rows that are stored together: windows start and end on multiples of it."""
        return math.gcd(self.period, self.rows)

    @property
    def blocks(self) -> int:
        """Blocks of a window."""
        return self.rows // self.block

    def starts(self, transitions: int) -> range:
        """First training transitions of an episode's windows; each window adds what none before it trains."""
        return range(0, max(1, transitions - self.length + self.period), self.period)


def unpacked(sequence: Sequence, spec: Any) -> Sequence:
    """The same with observations [B, L, ...] as `spec` has one of them, which may be arrays by name.

    Nothing to do where they are no `Packed` and no bytes of `side_by_side`.
    """
    observation = sequence.steps.observation
    if isinstance(observation, Packed):
        packed, stored = observation, stored_spec(spec)
        observation = tf.gather(packed.pieces, packed.numbers)
        if observation.dtype != stored.dtype:
            observation = tf.bitcast(observation, stored.dtype)
        observation = tf.reshape(observation, (-1, packed.numbers.shape[1], *stored.shape))
    if isinstance(spec, Mapping) and not isinstance(observation, Mapping):
        observation = _by_name(observation, spec)
    return sequence._replace(steps=sequence.steps._replace(observation=observation))


def rows_of(observation: Any, start: int, end: int) -> Any:
    """Rows [B, start:end, ...] of windows' observations, by name where they have names."""
    return tf.nest.map_structure(lambda part: part[:, start:end], observation)


# Arrays by name travel from the collector to the learner as one row of bytes: whatever stores, compresses or copies an
# observation needs to know of one array only.


def stored_spec(spec: Any) -> tf.TensorSpec:
    """How an observation is stored: as it is, or uint8 [bytes] if it is arrays by name."""
    if not isinstance(spec, Mapping):
        return spec
    return tf.TensorSpec((_padded(sum(map(_bytes, spec.values()))),), tf.uint8, "observation")


def side_by_side(observation: Any) -> np.ndarray:
    """Observations [N, ...] as they are stored: arrays by name as their bytes, sorted by name, uint8 [N, bytes]."""
    if not isinstance(observation, Mapping):
        return observation
    parts = [observation[name] for name in sorted(observation)]
    rows = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in parts]
    size = sum(row.shape[1] for row in rows)
    return np.concatenate([*rows, np.zeros((len(parts[0]), _padded(size) - size), np.uint8)], axis=1)


def _by_name(stored: tf.Tensor, spec: Mapping[str, tf.TensorSpec]) -> dict[str, tf.Tensor]:
    """The inverse of `side_by_side`, for [..., bytes], of which one outer dimension may be unknown."""
    outer = [-1 if size is None else size for size in stored.shape[:-1]]
    found, start = {}, 0
    for name in sorted(spec):
        part, size = spec[name], _bytes(spec[name])
        row, start = stored[..., start : start + size], start + size
        if part.dtype.size > 1:
            row = tf.reshape(row, (*outer, size // part.dtype.size, part.dtype.size))
        row = row if part.dtype == tf.uint8 else tf.bitcast(row, part.dtype)
        found[name] = tf.reshape(row, (*outer, *part.shape))
    return found


def _bytes(spec: tf.TensorSpec) -> int:
    return spec.shape.num_elements() * spec.dtype.size


def _padded(size: int) -> int:
    """Bytes of a row: long ones can be halved until their pieces are as short as compression wants them."""
    return size if size < _LONG else -(-size // _HALVES) * _HALVES


class Transitions(NamedTuple):
    """The transitions that begin in the R rows behind the burn-in."""

    actions: tf.Tensor  # int32 [R, B]
    rewards: tf.Tensor  # [R, B, H]
    discounts: tf.Tensor  # [R, B, H]
    mask: tf.Tensor  # bool [R, B]; False where none begins: at an episode's last row, and where one was left


def transitions(steps: Steps, heads: Heads, shape: SequenceShape) -> Transitions:
    """Time-major, from rows [B, L] of windows. An action, its reward and discount arrive with the row they lead to."""
    actions, rewards, discounts, types = (
        tf.transpose(x)[shape.burn_in :]
        for x in (steps.previous_action, steps.reward, steps.discount, steps.step_type)
    )
    mask = (types[:-1] != StepType.LAST) & (types[1:] != StepType.FIRST)
    return Transitions(actions[1:], heads.rewards(rewards[1:]), heads.discounts(discounts[1:]), mask)


def zeroed(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[T or more, B, ...] -> [T, B, ...], 0 where `mask` [T, B] is false: infinities in padding go, too."""
    values = values[: mask.shape[0]]
    return tf.where(aligned(mask, values), values, 0.0)


def aligned(tensor: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
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
    bootstrap, target = values[:-1], values
    for _ in range(n):
        longer = tf.where(mask[..., None], rewards + discounts * target[1:], bootstrap)
        target = tf.concat([longer, values[-1:]], axis=0)
    return target[:-1]


def sequence_priorities(errors: tf.Tensor, mask: tf.Tensor, eta: float) -> tf.Tensor:
    """Priority of each sequence: eta max_t + (1 - eta) mean_t of the head-averaged absolute scaled error.

    R2D2's mixture (Kapturowski et al. 2019, section 2.3), over unmasked steps alone.

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
    return weights / tf.reduce_max(of_all_replicas(weights))


def of_all_replicas(values: tf.Tensor) -> tf.Tensor:
    """Gathers what all replicas of a strategy hold, one behind the other: [B] -> [all B]. Not in `tf.cond`."""
    if num_replicas() == 1:
        return values
    return tf.distribute.get_replica_context().all_gather(values, axis=0)


def num_replicas() -> int:
    """Replicas that share a batch; 1 outside of `strategy.run`."""
    replica = tf.distribute.get_replica_context()
    return 1 if replica is None else replica.num_replicas_in_sync
