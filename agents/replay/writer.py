"""Writes one environment's stream into the Reverb server's table of sequences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import reverb

from agents.replay.blocks import Layout
from agents.replay.replay import Writer, check_priority
from agents.replay.rows import Rows
from agents.replay.tables import SEQUENCES
from agents.targets import SequenceShape

_CHUNK_ROWS = 20  # Observations compress best together in about this many rows.


class SequenceWriter(Writer):
    """Appends blocks and inserts windows of them; made by `ReverbReplay.writer`.

    Args:
      client: of the replay's server.
      layout: of blocks.
      flush: waits until the server has every item of a writer.
    """

    def __init__(
        self, client: reverb.Client, layout: Layout, flush: Callable[[reverb.TrajectoryWriter], None]
    ):
        blocks, chunk = layout.shape.blocks, _chunk_blocks(layout.shape)
        self._layout, self._flush = layout, flush
        self._writer = client.trajectory_writer(num_keep_alive_refs=blocks)
        for column in layout.signature:
            length = 1 if column == "core_state" else chunk
            self._writer.configure((column,), num_keep_alive_refs=blocks, max_chunk_length=length)

    def append(self, block: Rows, starts_window: bool) -> None:
        stored = self._layout.block(block, starts_window)
        columns = {self._layout.observations: stored.observation, "scalars": stored.scalars}
        if self._layout.level:
            columns[self._layout.observations] = np.array(stored.observation, object)
        if stored.core_state is not None:
            columns["core_state"] = stored.core_state
        self._writer.append(columns)

    def insert(self, priority: float) -> None:
        check_priority(priority)
        history, blocks = self._writer.history, self._layout.shape.blocks
        window = {name: history[name][-blocks:] for name in (self._layout.observations, "scalars")}
        self._writer.create_item(SEQUENCES, priority, window | {"core_state": history["core_state"][-blocks]})

    def flush(self) -> None:
        self._flush(self._writer)

    def close(self) -> None:
        self._writer.close()


def _chunk_blocks(shape: SequenceShape) -> int:
    """Blocks per chunk; it divides the windows' distance, as inserting a window closes the open chunk."""
    distance = shape.period // shape.block
    fitting = (n for n in range(1, distance + 1) if distance % n == 0 and n * shape.block <= _CHUNK_ROWS)
    return max(fitting, default=1)
