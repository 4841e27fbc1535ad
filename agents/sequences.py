"""Sequences of experience: their layout, their rows, and how observations travel from collector to learner.

Row t of a sequence is what the network sees at time t: its reward, discount and previous action arrive with its
observation. Transition t leads from row t to row t + 1. A sequence has `burn_in` rows that only warm up the recurrent
state, `length` rows whose transitions train, and `n_step` rows that the last of these bootstrap from:

    burn_in                  length                  n_step
    s - burn_in ... s - 1  | s ... s + length - 1  | s + length ... s + length + n_step - 1
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.checks import Checked, setting, whole

_LONG = 20_000  # bytes, see `_round_up`
_HALVES = 4096  # bytes, likewise
_MOST = 1_000_000  # rows, more than anybody has memory for


class Steps(NamedTuple):
    """Rows of a stream; padding has step_type LAST, previous_action -1 and zeros elsewhere."""

    step_type: Any  # int32 [..., T]
    observation: Any  # [..., T, ...], dtype of the environment
    previous_action: Any  # int32 [..., T], -1 on first rows
    reward: Any  # float32 [..., T], raw; 0 on first rows
    discount: Any  # float32 [..., T]; 0 on a terminal row, 1 elsewhere, time-outs included


class Packed(NamedTuple):
    """Observations of sequences as pieces of P to an observation, most of them stored once.

    A GPU gets a tenth of the bytes in this way, see `unpack`.
    """

    pieces: Any  # [M, ...] of the observation's dtype, or int64 that holds 8 pixels each
    numbers: Any  # int32 [B, L, P]


class Sequence(NamedTuple):
    """A batch of sequences, what the learner trains on."""

    steps: Steps  # [B, L, ...]; the observation may be `Packed`
    core_state: Any  # (h, c), each float32 [B, U], entering row 0
    probability: Any  # float32 [B], of the draw
    table_size: Any  # int64 [B], sequences in the table at the draw


@dataclasses.dataclass(frozen=True)
class SequenceShape(Checked):
    """The layout of sequences, in rows (environment steps).

    Args:
      burn_in: rows before the training region.
      length: transitions that a sequence trains.
      period: distance between the starts of consecutive sequences.
      n_step: rows after the training region, for n-step targets.

    Raises:
      ValueError: a value that does not fit; sequences so far apart that transitions would be lost between them.
    """

    known_as = "SequenceShape"

    burn_in: int = setting(20, whole("environment steps", most=_MOST), paper="20")
    length: int = setting(80, whole("environment steps", least=1, most=_MOST), paper="80")
    period: int = setting(40, whole("environment steps", least=1, most=_MOST), paper="40")
    n_step: int = setting(5, whole("environment steps", least=1, most=_MOST), paper="5")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period > self.length:
            raise ValueError(
                f"SequenceShape.period is {self.period} and length {self.length}: transitions between sequences "
                f"would be lost; write SequenceShape.period = {self.length} or less"
            )

    @property
    def rows(self) -> int:
        """L, the rows of a sequence."""
        return self.burn_in + self.length + self.n_step

    @property
    def block(self) -> int:
        """Rows that are stored together: sequences start and end on multiples of it."""
        return math.gcd(self.period, self.rows)

    @property
    def blocks(self) -> int:
        """Blocks of a sequence."""
        return self.rows // self.block

    def starts(self, transitions: int) -> range:
        """First training transition of each sequence; the last is kept only if it trains a new transition."""
        return range(0, max(1, transitions - self.length + self.period), self.period)


def unpack(sequence: Sequence, spec: Any) -> Sequence:
    """Returns the sequence with whole observations [B, L, ...].

    Observations that are neither `Packed` nor bytes of `concatenate_parts` stay as they are.

    Args:
      sequence: as the replay gives it.
      spec: of one observation, which may be arrays by name.
    """
    observation = sequence.steps.observation
    if isinstance(observation, Packed):
        packed = observation
        stored = stored_spec(spec)
        observation = tf.gather(packed.pieces, packed.numbers)
        if observation.dtype != stored.dtype:
            observation = tf.bitcast(observation, stored.dtype)
        observation = tf.reshape(observation, (-1, packed.numbers.shape[1], *stored.shape))
    if isinstance(spec, Mapping) and not isinstance(observation, Mapping):
        observation = _unpack_parts(observation, spec)
    return sequence._replace(steps=sequence.steps._replace(observation=observation))


def select_rows(observation: Any, start: int, end: int) -> Any:
    """Rows [B, start:end, ...] of sequences' observations, by name where they have names."""
    return tf.nest.map_structure(lambda part: part[:, start:end], observation)


# Arrays by name travel from the collector to the learner as one row of bytes: whatever stores, compresses or copies an
# observation needs to know of one array only.


def stored_spec(spec: Any) -> tf.TensorSpec:
    """How an observation is stored: as it is, or uint8 [bytes] if it is arrays by name."""
    if not isinstance(spec, Mapping):
        return spec
    return tf.TensorSpec((_round_up(sum(map(_bytes, spec.values()))),), tf.uint8, "observation")


def concatenate_parts(observation: Any) -> np.ndarray:
    """Observations [N, ...] as they are stored: arrays by name as their bytes, sorted by name, uint8 [N, bytes]."""
    if not isinstance(observation, Mapping):
        return observation
    parts = [observation[name] for name in sorted(observation)]
    rows = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in parts]
    size = sum(row.shape[1] for row in rows)
    return np.concatenate([*rows, np.zeros((len(parts[0]), _round_up(size) - size), np.uint8)], axis=1)


def _unpack_parts(stored: tf.Tensor, spec: Mapping[str, tf.TensorSpec]) -> dict[str, tf.Tensor]:
    """The inverse of `concatenate_parts`, for [..., bytes], of which one outer dimension may be unknown."""
    outer = [-1 if size is None else size for size in stored.shape[:-1]]
    found = {}
    start = 0
    for name in sorted(spec):
        part = spec[name]
        size = _bytes(spec[name])
        row = stored[..., start : start + size]
        start = start + size
        if part.dtype.size > 1:
            row = tf.reshape(row, (*outer, size // part.dtype.size, part.dtype.size))
        row = row if part.dtype == tf.uint8 else tf.bitcast(row, part.dtype)
        found[name] = tf.reshape(row, (*outer, *part.shape))
    return found


def _bytes(spec: tf.TensorSpec) -> int:
    return spec.shape.num_elements() * spec.dtype.size


def _round_up(size: int) -> int:
    """Rounds bytes of a long row up, so that compression can halve it into pieces that are short enough."""
    return size if size < _LONG else -(-size // _HALVES) * _HALVES
