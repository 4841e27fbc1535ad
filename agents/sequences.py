"""Windows of experience: what they hold, which of them an episode has, and how a stream of rows is cut into
them.

Row t is what the network sees at time t: its reward, discount and previous action arrive with its
observation. Transition t leads from row t to row t + 1. A window has `burn_in` rows that only warm the
recurrent state up, `length` rows whose transitions train, and `n_step` rows that the last of these bootstrap
from:

    rows of the episode    s - burn_in ... s - 1 | s ... s + length - 1 | s + length ... s + length + n_step -
    1

Window s of an episode starts training at transition s, a multiple of `period`. Rows before the episode's
start and after its final row are padding, so a window never crosses the end of an episode.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from typing import Any, NamedTuple

import gin
import numpy as np

from agents.state import State, joined, numbered, part

FIRST, LAST = 0, 2


class Steps(NamedTuple):
    """Rows of a stream; padding has step_type LAST, previous_action -1 and zeros elsewhere."""

    step_type: Any  # int32 [..., T]
    observation: Any  # [..., T, ...], dtype of the environment
    previous_action: Any  # int32 [..., T], -1 on first rows
    reward: Any  # float32 [..., T], raw; 0 on first rows
    discount: Any  # float32 [..., T]; 0 on a terminal row, 1 elsewhere, time-outs included


class Sequence(NamedTuple):
    """A batch of windows, what the learner trains on."""

    steps: Steps  # [B, L, ...]
    core_state: Any  # (h, c), each float32 [B, U], entering row 0
    probability: Any  # float32 [B], of the draw; 0 where draws are not random
    table_size: Any  # int64 [B], sequences in the table at the draw


@gin.configurable(module="agents")
@dataclasses.dataclass(frozen=True)
class SequenceShape:
    """The layout of windows, in rows (environment steps).

    Args:
      burn_in: rows before the training region (paper: 20).
      length: transitions that a window trains (paper: 80).
      period: distance between the starts of consecutive windows (paper: 40).
      n_step: rows after the training region, for n-step targets (paper: 5).

    Raises:
      ValueError: a count is too small, or windows so far apart that transitions would be lost between them.
    """

    burn_in: int = 20
    length: int = 80
    period: int = 40
    n_step: int = 5

    def __post_init__(self):
        for name, least in (("burn_in", 0), ("length", 1), ("period", 1), ("n_step", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"SequenceShape.{name} counts rows: a whole number of at least {least}, got {value!r}"
                )
        if self.period > self.length:
            raise ValueError(
                f"SequenceShape.period is {self.period} and length {self.length}: windows that start further "
                "apart than they are long lose transitions; "
                f"write SequenceShape.period = {self.length} or less"
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
        self._recent = collections.deque(maxlen=shape.blocks)  # columns of the last blocks, for windows

    def cut(self, rows: Rows) -> list[Block | Window]:
        """Takes the next rows; returns what is complete now, in stream order, as copies.

        Raises:
          ValueError: an episode does not begin with a FIRST row, or breaks off without a LAST row.
        """
        ends = np.flatnonzero(rows.steps.step_type == LAST) + 1
        bounds = [0, *ends, len(rows.steps.step_type)]
        columns = [*rows.steps, *rows.core_state, rows.taken_values, rows.greedy_values]
        pieces: list[Block | Window] = []
        for start, end in itertools.pairwise(bounds):
            if start < end:
                pieces += self._extend([column[start:end] for column in columns])
        return pieces

    def state(self) -> State:
        """What `restore` needs in order to go on with the stream."""
        pending = numbered(self._pending or [])
        recent = numbered(map(np.stack, zip(*self._recent, strict=True)))
        blocks = numbered([np.int64(self._blocks)])
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
        if begins != (step_type[0] == FIRST) or (step_type[1:] == FIRST).any():
            raise ValueError(
                "A stream must run FIRST, MID, ..., LAST and then FIRST again; "
                f"{'a new' if begins else 'an unfinished'} episode goes on with step types {step_type}"
            )
        before = _padding(columns, shape.burn_in) if begins else self._pending
        parts = [before, columns]
        if step_type[-1] == LAST:
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
        if step_type[-1] == LAST:
            self._blocks, self._pending = 0, None
            self._recent.clear()
        else:
            self._pending = [column[rest:].copy() for column in joined]
        return pieces

    def _hand_out(self, columns: list[np.ndarray]) -> list[Block | Window]:
        stride = self._shape.period // self._shape.block
        steps, core_state, values = Steps(*columns[:5]), columns[5:-2], columns[-2:]
        starts_window = self._blocks % stride == 0
        pieces = [Block(steps, tuple(state[0] for state in core_state) if starts_window else None)]
        self._blocks += 1
        self._recent.append([steps.step_type, *steps[2:], *values])
        if self._blocks >= self._shape.blocks and (self._blocks - self._shape.blocks) % stride == 0:
            step_type, *others = (np.concatenate(column) for column in zip(*self._recent, strict=True))
            pieces.append(Window(Steps(step_type, None, *others[:3]), *others[3:]))
        return pieces


def _padding(columns: list[np.ndarray], count: int) -> list[np.ndarray]:
    """`count` rows that train nothing."""
    padding = [np.zeros((count, *column.shape[1:]), column.dtype) for column in columns]
    padding[0][:] = LAST
    padding[2][:] = -1
    return padding
