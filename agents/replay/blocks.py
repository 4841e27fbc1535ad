"""What a table holds of sequences: blocks of rows, each stored once, and the way from there to tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.replay.compression import choose_level, compress, decompress_batch
from agents.replay.rows import Rows
from agents.sequences import Sequence, SequenceShape, Steps

# Of a row, in their column's order: one float32 column holds them all, for step types and actions are small enough.
SCALARS = tuple(field for field in Steps._fields if field != "observation")


class Block(NamedTuple):
    """Rows that are stored together."""

    observation: Any  # [block, ...], or bytes
    scalars: np.ndarray  # float32 [block, 4]
    core_state: np.ndarray | None  # float32 [S], entering its first row; None unless a sequence starts here


class Layout:
    """How the rows of a sequence are stored.

    Args:
      shape: layout of the sequences.
      observation_spec: `tf.TensorSpec` of one observation.
      state_spec: nest of `tf.TensorSpec`, the network's core state, float32.
      compression: zlib's level for observations, see `choose_level`.

    Attributes:
      level: of zlib; 0: observations are stored as they are.
      observations: the name of their column: a checkpoint of others is refused for it.
      signature: `tf.TensorSpec` of each column of a sequence.
    """

    def __init__(
        self, shape: SequenceShape, observation_spec: tf.TensorSpec, state_spec: Any, compression: int | None
    ):
        self.shape = shape
        self.observation_spec = observation_spec
        self._state_spec = state_spec
        self.level = choose_level(observation_spec, compression)
        self.observations = "pieces" if self.level else "observation"
        self._state_sizes = [math.prod(spec.shape) for spec in tf.nest.flatten(state_spec)]
        if self.level:
            observations = tf.TensorSpec((shape.blocks,), tf.string, self.observations)
        else:
            size = (shape.blocks, shape.block, *observation_spec.shape)
            observations = tf.TensorSpec(size, observation_spec.dtype, self.observations)
        self.signature = {
            self.observations: observations,
            "scalars": tf.TensorSpec((shape.blocks, shape.block, len(SCALARS)), tf.float32, "scalars"),
            "core_state": tf.TensorSpec((sum(self._state_sizes),), tf.float32, "core_state"),
        }

    def block(self, rows: Rows, starts_sequence: bool) -> Block:
        """Packs rows [block]; copies all of them."""
        scalars = np.array([getattr(rows, name) for name in SCALARS], np.float32).T.copy()
        observation = compress(rows.observation, self.level) if self.level else np.array(rows.observation)
        return Block(observation, scalars, np.array(rows.core_state[0]) if starts_sequence else None)

    def sequence(self, columns: Mapping[str, tf.Tensor], probability: Any, table_size: Any) -> Sequence:
        """Unpacks a batch in graphs: the columns of `signature`, [B, ...]; compressed observations become `Packed`."""
        shape = self.shape
        observation = columns[self.observations]
        if self.level:
            observation = decompress_batch(observation, shape.block, self.observation_spec)
        else:
            observation = tf.reshape(observation, (-1, shape.rows, *self.observation_spec.shape))
        scalars = tf.unstack(tf.reshape(columns["scalars"], (-1, shape.rows, len(SCALARS))), axis=-1)
        of_rows = dict(zip(SCALARS, scalars, strict=True))
        for name in ("step_type", "previous_action"):
            of_rows[name] = tf.cast(of_rows[name], tf.int32)
        states = tf.split(columns["core_state"], self._state_sizes, axis=-1)
        core_state = tf.nest.pack_sequence_as(self._state_spec, states)
        return Sequence(Steps(observation=observation, **of_rows), core_state, probability, table_size)


def pack_blocks(blocks: list[Block]) -> dict[str, list[np.ndarray]]:
    """Blocks as named columns, each in parts that are to stand one behind the other; nothing is copied.

    `starts` says which blocks have a core state, `lengths` how many bytes each has where they are compressed.
    """
    columns = {
        "starts": [np.array([block.core_state is not None]) for block in blocks],
        "scalars": [block.scalars for block in blocks],
        "core_states": [block.core_state[None] for block in blocks if block.core_state is not None],
        "observations": [block.observation for block in blocks],
    }
    if blocks and isinstance(blocks[0].observation, bytes):
        columns["lengths"] = [np.array([len(block.observation)]) for block in blocks]
        columns["observations"] = [np.frombuffer(block.observation, np.uint8) for block in blocks]
    return {name: parts for name, parts in columns.items() if parts}


def unpack_blocks(columns: Mapping[str, np.ndarray]) -> list[Block]:
    """Undoes `pack_blocks`, from whole columns, in memory or in files; copies block by block."""
    starts = columns.get("starts", ())
    if not len(starts):
        return []
    compressed = "lengths" in columns
    rows = len(columns["scalars"]) // len(starts)
    lengths = columns["lengths"] if compressed else np.full(len(starts), rows)
    core_states = iter(columns.get("core_states", ()))
    blocks = []
    for index, (length, end) in enumerate(zip(lengths, np.cumsum(lengths), strict=True)):
        own = columns["observations"][end - length : end]
        scalars = np.array(columns["scalars"][index * rows : (index + 1) * rows])
        core_state = np.array(next(core_states)) if starts[index] else None
        blocks.append(Block(own.tobytes() if compressed else np.array(own), scalars, core_state))
    return blocks
