"""Writes one environment's stream into the Reverb server's table of sequences."""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np
import reverb
import tensorflow as tf

from agents.replay.compression import compress, decompress
from agents.replay.replay import check_priority, observation_column, row_columns
from agents.replay.tables import SEQUENCES
from agents.replay.windows import Block
from agents.storage.state import State
from agents.targets import SequenceShape

_CHUNK_ROWS = 20  # Observations compress best together in about this many rows.


class SequenceWriter:
    """Appends blocks and inserts windows of them; made by `ReverbReplay.writer`.

    Args:
      client: of the replay's server.
      shape: layout of the sequences.
      observation_spec: of one observation.
      compression: zlib's level for observations; 0 for none.
      flush: waits until the server has every item of a writer.
    """

    def __init__(
        self,
        client: reverb.Client,
        shape: SequenceShape,
        observation_spec: tf.TensorSpec,
        compression: int,
        flush: Callable[[reverb.TrajectoryWriter], None],
    ):
        self._writer = client.trajectory_writer(num_keep_alive_refs=shape.blocks)
        self._column, chunk = observation_column(compression), _chunk_blocks(shape)
        for column, length in ((self._column, chunk), ("scalars", chunk), ("core_state", 1)):
            self._writer.configure((column,), num_keep_alive_refs=shape.blocks, max_chunk_length=length)
        self._blocks, self._rows, self._flush = shape.blocks, shape.block, flush
        self._observation_spec, self._compression = observation_spec, compression
        # Of the last blocks, all that a window to come may have beside its last: does a window start there?
        self._starts: collections.deque[bool] = collections.deque(maxlen=shape.blocks - 1)

    def append(self, block: Block) -> None:
        """Appends the next rows."""
        self._append(row_columns(block))

    def insert(self, priority: float) -> None:
        """Inserts the window that ends with the last block."""
        check_priority(priority)
        history = self._writer.history
        window = {name: history[name][-self._blocks :] for name in (self._column, "scalars")}
        self._writer.create_item(
            SEQUENCES, priority, window | {"core_state": history["core_state"][-self._blocks]}
        )

    def flush(self) -> None:
        """Waits until everything inserted is in the table.

        Raises:
          ReplayStopped: the replay was stopped meanwhile.
          TimeoutError: the rate limiter let nothing in for `Replay.patience` seconds.
        """
        self._flush(self._writer)

    def state(self) -> State:
        """The blocks that windows to come may refer to, read back from Reverb's buffers; to be called after `flush`."""
        known = list(self._starts)
        # Nothing refers to blocks before the first start; chunks are cut as they were if it comes first.
        starts = np.array(known[known.index(True) :] if any(known) else [], bool)
        if not len(starts):
            return {"starts": starts}
        history = self._writer.history
        columns = {"observation": self._column, "scalars": "scalars"}
        rows = {name: history[column][-len(starts) :].numpy() for name, column in columns.items()}
        if self._compression:
            rows["observation"] = decompress(rows["observation"], self._rows, self._observation_spec)
        core_states = [history["core_state"][int(i) - len(starts)].numpy() for i in np.flatnonzero(starts)]
        return {"starts": starts, **rows, "core_state": np.stack(core_states)}

    def restore(self, state: State) -> None:
        """Appends what another writer, whose stream goes on here, had appended. Inserts nothing."""
        core_states = iter(state.get("core_state", ()))
        for index, start in enumerate(state["starts"]):
            row = {name: state[name][index] for name in ("observation", "scalars")}
            self._append(row | ({"core_state": next(core_states)} if start else {}))

    def close(self) -> None:
        """Drops what is not in the table yet. Never waits."""
        self._writer.close()

    def _append(self, row: dict[str, np.ndarray]) -> None:
        if self._compression:
            row = {self._column if name == "observation" else name: column for name, column in row.items()}
            row[self._column] = compress(row[self._column], self._compression)
        self._writer.append(row)
        self._starts.append("core_state" in row)


def _chunk_blocks(shape: SequenceShape) -> int:
    """Blocks per chunk; it divides the windows' distance, as inserting a window closes the open chunk."""
    distance = shape.period // shape.block
    fitting = (n for n in range(1, distance + 1) if distance % n == 0 and n * shape.block <= _CHUNK_ROWS)
    return max(fitting, default=1)
