"""Rows of experience, and how an environment's stream of them is cut into blocks, stored once, and sequences of blocks.

Sequence s of an episode (`SequenceShape.starts`) begins to train at transition s. Rows before the episode's start and
after its final row are padding, so that a sequence never crosses the end of an episode.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.sequences import SequenceShape


@dataclasses.dataclass(frozen=True)
class Rows:
    """K consecutive rows of an environment, or [K, N, ...] of N of them: what it gave and what its policy made of it.

    An index is NumPy's and gives views: `rows[3:5]` are two rows, `rows[:, 0]` those of the first environment.
    """

    step_type: np.ndarray  # int32 [K]
    observation: Any  # [K, ...]; None where it is stored already
    previous_action: np.ndarray  # int32 [K], -1 on first rows
    reward: np.ndarray  # float32 [K], raw; 0 on first rows
    discount: np.ndarray  # float32 [K]; 0 on a terminal row, 1 elsewhere, time-outs included
    core_state: Any  # float32 [K, S], entering each row, flat; None where it is stored already
    taken_values: np.ndarray  # float32 [K, H], of the action taken
    greedy_values: np.ndarray  # float32 [K, H], of each head's best action
    head: np.ndarray  # int32 [K], that acts
    epsilon: np.ndarray  # float32 [K], its exploration

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        """Copies of rows, one part behind the other; all have the same columns."""
        columns: dict[str, Any] = {
            name: None if column is None else np.concatenate([vars(part)[name] for part in parts])
            for name, column in vars(parts[0]).items()
        }
        return cls(**columns)

    def drop_stored(self) -> Rows:
        """The same rows without what is large: observations and core states."""
        return dataclasses.replace(self, observation=None, core_state=None)

    def __len__(self) -> int:
        return len(self.step_type)

    def __getitem__(self, index: Any) -> Rows:
        columns: list[Any] = [None if column is None else column[index] for column in vars(self).values()]
        return Rows(*columns)


class Piece(NamedTuple):
    """The next rows of a stream, and the sequence that ends with them."""

    block: Rows  # [block], to be stored
    starts_sequence: bool  # with its first row
    sequence: Rows | None  # [L], without what is stored; None where none ends here


class _Unfinished(NamedTuple):
    """What a cutter keeps of an episode that goes on."""

    cut: int  # rows that are in blocks, the padding before its start included
    pending: Rows  # those that do not fill a block yet
    recent: Rows  # the last that are in blocks, without what is stored


class SequenceCutter:
    """Cuts the stream of one environment into blocks and sequences, episode by episode."""

    def __init__(self, shape: SequenceShape):
        self._shape = shape
        self._episode: _Unfinished | None = None

    def cut(self, rows: Rows) -> list[Piece]:
        """Takes the next rows; returns what is complete now, in stream order, as copies.

        Raises:
          ValueError: an episode does not begin with a FIRST row, or breaks off without a LAST row.
        """
        ends = np.flatnonzero(rows.step_type == StepType.LAST) + 1
        pieces: list[Piece] = []
        for start, end in itertools.pairwise([0, *ends, len(rows)]):
            if start < end:
                pieces += self._extend(rows[start:end])
        return pieces

    def _extend(self, rows: Rows) -> list[Piece]:
        """Takes rows of one episode; the last row may be its end."""
        shape = self._shape
        step_type = rows.step_type
        begins = self._episode is None
        ends = step_type[-1] == StepType.LAST
        if begins != (step_type[0] == StepType.FIRST) or (step_type[1:] == StepType.FIRST).any():
            raise ValueError(
                f"A stream must run FIRST, MID, ..., LAST and then FIRST again, and it has {step_type}"
            )
        if self._episode is None:
            padding = _padding(shape.burn_in, rows)
            self._episode = _Unfinished(0, padding, padding[:0].drop_stored())
        cut, pending, recent = self._episode
        parts = [pending, rows]
        if ends:
            count = cut + len(pending) + len(rows)
            start = shape.starts(count - shape.burn_in - 1)[-1]
            parts.append(_padding(start + shape.rows - count, rows))
        extended = Rows.concatenate(parts)
        whole = len(extended) - len(extended) % shape.block
        seen = Rows.concatenate([recent, extended[:whole].drop_stored()])
        pieces = []
        for start in range(0, whole, shape.block):
            end = start + shape.block
            sequence_start = cut + end - shape.rows
            ends_sequence = sequence_start >= 0 and sequence_start % shape.period == 0
            sequence = seen[len(recent) + end - shape.rows : len(recent) + end] if ends_sequence else None
            pieces.append(Piece(extended[start:end], (cut + start) % shape.period == 0, sequence))
        # A copy, for a view would keep all these rows in memory.
        pending = Rows.concatenate([extended[whole:]])
        recent = seen[max(len(seen) - (shape.rows - shape.block), 0) :]
        self._episode = None if ends else _Unfinished(cut + whole, pending, recent)
        return pieces


def _padding(count: int, like: Rows) -> Rows:
    """`count` rows that train nothing, with the columns of others."""
    columns = {
        name: np.zeros((count, *column.shape[1:]), column.dtype) for name, column in vars(like).items()
    }
    padding = Rows(**columns)
    padding.step_type[...] = StepType.LAST
    padding.previous_action[...] = -1
    return padding
