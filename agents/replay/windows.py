"""Cuts the stream of an environment's rows into blocks, which are stored once, and windows of them.

Window s of an episode (`SequenceShape.starts`) begins to train at transition s. Rows before the episode's start and
after its final row are padding, so that a window never crosses the end of an episode.
"""

from __future__ import annotations

import collections
import itertools
from typing import NamedTuple

import numpy as np
from tf_agents.trajectories.time_step import StepType

from agents.storage.state import State, joined, numbered, part
from agents.targets import SequenceShape, Steps


class Rows(NamedTuple):
    """K consecutive rows of one environment and what its policy made of them."""

    steps: Steps  # [K, ...]
    core_state: tuple  # (h, c), each float32 [K, U], entering each row
    taken_values: np.ndarray  # float32 [K, H], of the action taken
    greedy_values: np.ndarray  # float32 [K, H], of each head's best action


class Block(NamedTuple):
    """`SequenceShape.block` rows, to be stored."""

    steps: Steps  # [block, ...]
    core_state: tuple | None  # (h, c), each float32 [U], entering row 0; None unless a window starts here


class Window(NamedTuple):
    """A window that ends with the block handed out before it, without what is stored already."""

    steps: Steps  # [L], observation None
    taken_values: np.ndarray  # float32 [L, H]
    greedy_values: np.ndarray  # float32 [L, H]


class SequenceCutter:
    """Cuts the stream of one environment into blocks and windows, episode by episode."""

    def __init__(self, shape: SequenceShape):
        self._shape = shape
        self._blocks = 0  # handed out in this episode
        self._pending: list[np.ndarray] | None = None  # columns of the rows that do not fill a block yet
        # Columns of the last blocks, for windows.
        self._recent: collections.deque[list[np.ndarray]] = collections.deque(maxlen=shape.blocks)

    def cut(self, rows: Rows) -> list[Block | Window]:
        """Takes the next rows; returns what is complete now, in stream order, as copies.

        Raises:
          ValueError: an episode does not begin with a FIRST row, or breaks off without a LAST row.
        """
        ends = np.flatnonzero(rows.steps.step_type == StepType.LAST) + 1
        bounds = [0, *ends, len(rows.steps.step_type)]
        columns = [*rows.steps, *rows.core_state, rows.taken_values, rows.greedy_values]
        pieces: list[Block | Window] = []
        for start, end in itertools.pairwise(bounds):
            if start < end:
                pieces += self._extend([column[start:end] for column in columns])
        return pieces

    def state(self) -> State:
        """Returns what `restore` needs in order to go on with the stream."""
        pending = numbered(self._pending or [])
        recent = numbered(map(np.stack, zip(*self._recent, strict=True)))
        blocks = numbered([np.array(self._blocks, np.int64)])
        return joined({"blocks": blocks, "pending": pending, "recent": recent})

    def restore(self, state: State) -> None:
        """Goes on where another cutter of the same shape was."""
        self._blocks = int(state["blocks/0"])
        self._pending = list(part(state, "pending").values()) or None
        recent = part(state, "recent").values()
        self._recent.clear()
        self._recent.extend(list(columns) for columns in zip(*recent, strict=True))

    def _extend(self, columns: list[np.ndarray]) -> list[Block | Window]:
        """Takes rows of one episode; the last row may be its end."""
        shape, step_type = self._shape, columns[0]
        begins = self._pending is None
        if begins != (step_type[0] == StepType.FIRST) or (step_type[1:] == StepType.FIRST).any():
            raise ValueError(
                "A stream must run FIRST, MID, ..., LAST and then FIRST again; "
                f"{'a new' if begins else 'an unfinished'} episode goes on with step types {step_type}"
            )
        before = _padding(columns, shape.burn_in) if self._pending is None else self._pending
        parts = [before, columns]
        if step_type[-1] == StepType.LAST:
            rows = self._blocks * shape.block + len(before[0]) + len(step_type)
            start = shape.starts(rows - shape.burn_in - 1)[-1]
            parts.append(_padding(columns, start + shape.rows - rows))
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]

        full = len(joined[0]) // shape.block
        rest = full * shape.block
        blocks = [column[:rest].reshape(full, shape.block, *column.shape[1:]) for column in joined]
        pieces = [
            piece for index in range(full) for piece in self._hand_out([column[index] for column in blocks])
        ]
        if step_type[-1] == StepType.LAST:
            self._blocks, self._pending = 0, None
            self._recent.clear()
        else:
            self._pending = [column[rest:].copy() for column in joined]
        return pieces

    def _hand_out(self, columns: list[np.ndarray]) -> list[Block | Window]:
        stride = self._shape.period // self._shape.block
        steps, core_state, values = Steps(*columns[:5]), columns[5:-2], columns[-2:]
        starts_window = self._blocks % stride == 0
        pieces: list[Block | Window] = [
            Block(steps, tuple(state[0] for state in core_state) if starts_window else None)
        ]
        self._blocks += 1
        self._recent.append([steps.step_type, *steps[2:], *values])
        if self._blocks >= self._shape.blocks and (self._blocks - self._shape.blocks) % stride == 0:
            step_type, *others = (np.concatenate(column) for column in zip(*self._recent, strict=True))
            pieces.append(Window(Steps(step_type, None, *others[:3]), *others[3:]))
        return pieces


def _padding(columns: list[np.ndarray], count: int) -> list[np.ndarray]:
    """`count` rows that train nothing."""
    padding = [np.zeros((count, *column.shape[1:]), column.dtype) for column in columns]
    padding[0][:] = StepType.LAST
    padding[2][:] = -1
    return padding
