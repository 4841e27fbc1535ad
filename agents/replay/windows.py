"""Cuts the stream of an environment's rows into blocks, which are stored once, and windows of them.

Window s of an episode (`SequenceShape.starts`) begins to train at transition s. Rows before the episode's start and
after its final row are padding, so that a window never crosses the end of an episode.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.replay.rows import Rows
from agents.storage.state import State, joined, part
from agents.targets import SequenceShape


class Piece(NamedTuple):
    """The next rows of a stream, and the window that ends with them."""

    block: Rows  # [block], to be stored
    starts_window: bool  # with its first row
    window: Rows | None  # [L], without what is stored; None where none ends here


class SequenceCutter:
    """Cuts the stream of one environment into blocks and windows, episode by episode."""

    def __init__(self, shape: SequenceShape):
        self._shape = shape
        self._cut = 0  # rows of this episode that are in a block, the padding before its start included
        self._pending: Rows | None = None  # rows that do not fill a block yet; None before an episode's first
        self._recent: Rows | None = None  # the last rows that are in a block, without what is stored

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

    def state(self) -> State:
        """Returns what `restore` needs in order to go on with the stream."""
        if self._pending is None or self._recent is None:
            return {}
        kept = {"pending": self._pending.state(), "recent": self._recent.state()}
        return joined(kept) | {"cut": np.array(self._cut, np.int64)}

    def restore(self, state: State) -> None:
        """Goes on where another cutter of the same shape was."""
        if state:
            self._cut = int(state["cut"])
            self._pending, self._recent = (
                Rows.from_state(part(state, name)) for name in ("pending", "recent")
            )

    def _extend(self, rows: Rows) -> list[Piece]:
        """Takes rows of one episode; the last row may be its end."""
        shape, step_type = self._shape, rows.step_type
        begins, ends = self._pending is None, step_type[-1] == StepType.LAST
        if begins != (step_type[0] == StepType.FIRST) or (step_type[1:] == StepType.FIRST).any():
            raise ValueError(
                "A stream must run FIRST, MID, ..., LAST and then FIRST again; "
                f"{'a new' if begins else 'an unfinished'} episode goes on with step types {step_type}"
            )
        if self._pending is None or self._recent is None:
            self._cut, self._pending = 0, Rows.padding(shape.burn_in, rows)
            self._recent = self._pending[:0].without_stored()
        parts = [self._pending, rows]
        if ends:
            count = self._cut + len(self._pending) + len(rows)
            start = shape.starts(count - shape.burn_in - 1)[-1]
            parts.append(Rows.padding(start + shape.rows - count, rows))
        extended = Rows.concatenate(parts)
        whole = len(extended) - len(extended) % shape.block
        pieces = self._hand_out(extended[:whole], self._recent)
        # A copy, for a view would keep all these rows in memory.
        self._pending = None if ends else Rows.concatenate([extended[whole:]])
        return pieces

    def _hand_out(self, rows: Rows, recent: Rows) -> list[Piece]:
        """Takes rows that fill whole blocks; returns these, and the windows that end with them."""
        shape, cut = self._shape, self._cut
        seen, seen_from = Rows.concatenate([recent, rows.without_stored()]), cut - len(recent)
        self._cut += len(rows)
        self._recent = seen[max(len(seen) - (shape.rows - shape.block), 0) :]
        pieces = []
        for start in range(cut, self._cut, shape.block):
            end = start + shape.block
            window_start = end - shape.rows
            ends_window = window_start >= 0 and window_start % shape.period == 0
            window = seen[window_start - seen_from : end - seen_from] if ends_window else None
            pieces.append(Piece(rows[start - cut : end - cut], start % shape.period == 0, window))
        return pieces
