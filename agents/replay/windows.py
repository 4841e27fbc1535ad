"""Cuts the stream of an environment's rows into blocks, which are stored once, and windows of them.

Window s of an episode (`SequenceShape.starts`) begins to train at transition s. Rows before the episode's start and
after its final row are padding, so that a window never crosses the end of an episode.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
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
        self._pending: Rows | None = None  # rows that do not fill a block yet; None before an episode's first
        self._recent: collections.deque[Window] = collections.deque(maxlen=shape.blocks)  # block by block

    def cut(self, rows: Rows) -> list[Block | Window]:
        """Takes the next rows; returns what is complete now, in stream order, as copies.

        Raises:
          ValueError: an episode does not begin with a FIRST row, or breaks off without a LAST row.
        """
        ends = np.flatnonzero(rows.steps.step_type == StepType.LAST) + 1
        bounds = [0, *ends, len(rows.steps.step_type)]
        pieces: list[Block | Window] = []
        for start, end in itertools.pairwise(bounds):
            if start < end:
                pieces += self._extend(_rows([column[start:end] for column in _columns(rows)]))
        return pieces

    def state(self) -> State:
        """Returns what `restore` needs in order to go on with the stream."""
        pending = numbered([] if self._pending is None else _columns(self._pending))
        recent = numbered(map(np.stack, zip(*map(_window_columns, self._recent), strict=True)))
        blocks = numbered([np.array(self._blocks, np.int64)])
        return joined({"blocks": blocks, "pending": pending, "recent": recent})

    def restore(self, state: State) -> None:
        """Goes on where another cutter of the same shape was."""
        self._blocks = int(state["blocks/0"])
        pending = list(part(state, "pending").values())
        self._pending = _rows(pending) if pending else None
        self._recent.clear()
        self._recent.extend(map(_window, zip(*part(state, "recent").values(), strict=True)))

    def _extend(self, rows: Rows) -> list[Block | Window]:
        """Takes rows of one episode; the last row may be its end."""
        shape, step_type = self._shape, rows.steps.step_type
        begins, ends = self._pending is None, step_type[-1] == StepType.LAST
        if begins != (step_type[0] == StepType.FIRST) or (step_type[1:] == StepType.FIRST).any():
            raise ValueError(
                "A stream must run FIRST, MID, ..., LAST and then FIRST again; "
                f"{'a new' if begins else 'an unfinished'} episode goes on with step types {step_type}"
            )
        before = _padding(rows, shape.burn_in) if self._pending is None else self._pending
        parts = [before, rows]
        if ends:
            count = self._blocks * shape.block + len(before.steps.step_type) + len(step_type)
            start = shape.starts(count - shape.burn_in - 1)[-1]
            parts.append(_padding(rows, start + shape.rows - count))
        columns = [np.concatenate(column) for column in zip(*map(_columns, parts), strict=True)]

        full = len(columns[0]) // shape.block
        pieces = []
        for index in range(full):
            block = slice(index * shape.block, (index + 1) * shape.block)
            pieces += self._hand_out(_rows([column[block] for column in columns]))
        self._pending = _rows([column[full * shape.block :].copy() for column in columns])
        if ends:
            self._blocks, self._pending = 0, None
            self._recent.clear()
        return pieces

    def _hand_out(self, rows: Rows) -> list[Block | Window]:
        """Takes the next block; returns it, and the window that it completes, if it does."""
        stride = self._shape.period // self._shape.block
        starts_window = self._blocks % stride == 0
        core_state = tuple(state[0] for state in rows.core_state) if starts_window else None
        pieces: list[Block | Window] = [Block(rows.steps, core_state)]
        self._blocks += 1
        unstored = rows.steps._replace(observation=None)
        self._recent.append(Window(unstored, rows.taken_values, rows.greedy_values))
        if self._blocks >= self._shape.blocks and (self._blocks - self._shape.blocks) % stride == 0:
            columns = zip(*map(_window_columns, self._recent), strict=True)
            pieces.append(_window(map(np.concatenate, columns)))
        return pieces


def _padding(like: Rows, count: int) -> Rows:
    """`count` rows that train nothing."""
    padding = _rows([np.zeros((count, *column.shape[1:]), column.dtype) for column in _columns(like)])
    padding.steps.step_type[:] = StepType.LAST
    padding.steps.previous_action[:] = -1
    return padding


def _columns(rows: Rows) -> list[np.ndarray]:
    return [*rows.steps, *rows.core_state, rows.taken_values, rows.greedy_values]


def _rows(columns: list[np.ndarray]) -> Rows:
    """The inverse of `_columns`."""
    steps, (*core_state, taken_values, greedy_values) = (
        columns[: len(Steps._fields)],
        columns[len(Steps._fields) :],
    )
    return Rows(Steps(*steps), tuple(core_state), taken_values, greedy_values)


def _window_columns(window: Window) -> list[np.ndarray]:
    step_type, _, *others = window.steps
    return [step_type, *others, window.taken_values, window.greedy_values]


def _window(columns: Iterable[np.ndarray]) -> Window:
    """The inverse of `_window_columns`."""
    step_type, *others, taken_values, greedy_values = columns
    return Window(Steps(step_type, None, *others), taken_values, greedy_values)
