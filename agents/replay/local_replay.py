"""Replay of sequences and a queue of statistics in the memory of one process, with draws that can be repeated.

Each block of rows is kept once, in an array of its own, for as long as a sequence refers to it: a full table takes what
its sequences hold, however short the episodes are. Sequence k, by order of insertion, stands in place k mod the table's
size, as the oldest leaves first: keys need no index.

A checkpoint is a folder of .npy files and one of JSON, nothing that could run code:

    table.json          settings, counts, the state of the random number generator
    priorities.npy      float64 [N], oldest sequence first
    windows.npy         int64 [N, blocks of a sequence]: which blocks each sequence is made of
    statistics.npz      the queue

and its M blocks, one behind the other, in the columns of `pack_blocks`:

    observations.npy    [M rows of a block, ...]; compressed: uint8, bytes
    lengths.npy         int64 [M], bytes of each block; only if they are compressed
    scalars.npy         float32 [M rows of a block, 4]
    starts.npy          bool [M]: does a sequence begin there?
    core_states.npy     float32 [those, S]

Blocks are written and read one by one, so that neither way takes the memory a second time.
"""

from __future__ import annotations

import collections
import itertools
import json
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from agents.replay.backends import TABLE
from agents.replay.blocks import Block, Layout, pack_blocks, unpack_blocks
from agents.replay.replay import Drawn, Replay, ReplayStopped, StatisticsReport, Writer, check_same
from agents.replay.rows import Rows
from agents.replay.sum_tree import SumTree
from agents.sequences import Sequence
from agents.settings import ReplaySettings
from agents.storage.checkpoint import readable

_STATISTICS = "statistics.npz"
_COLUMNS = "windows", "priorities", "observations", "lengths", "scalars", "starts", "core_states"
_FORMAT = 2  # of checkpoints
_OF_DRAWS = (tf.float32, tf.int64, tf.uint64, tf.float64)  # probability, the table's size, key and priority


class LocalReplay(Replay):
    """A table of sequences and a queue of statistics in this process.

    The same seed, insertions, draws and new priorities in the same order give the same draws, bit for bit, also across
    a checkpoint. Reading ahead and several replicas leave the order to chance.

    Beside the arguments of `Replay`:

    Args:
      seed: of random draws.
      saved: the checkpoint that it begins with; None: it begins empty.
    """

    inserted = sampled = 0

    def __init__(
        self,
        layout: Layout,
        num_heads: int,
        settings: ReplaySettings,
        seed: int = 0,
        saved: pathlib.Path | None = None,
    ):
        super().__init__(layout, num_heads, settings)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._lock = threading.Condition()  # batches that are read ahead are drawn in another thread
        self._closed = False
        self._oldest = 0  # key of the oldest sequence
        self._sequences: list[tuple[Block, ...]] = [()] * self._max_size
        self._priorities = np.zeros(self._max_size)
        self._weights = SumTree(self._max_size)
        self._queue: collections.deque[tuple[int, StatisticsReport]] = collections.deque()
        if saved is not None:
            self._restore(saved)

    @property
    def size(self) -> int:
        return self.inserted - self._oldest

    def writer(self) -> LocalWriter:
        return LocalWriter(self._insert, self._layout)

    def _batches(self, draws: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        signature = self._layout.signature
        dtypes = [*(spec.dtype for spec in signature.values()), *_OF_DRAWS]
        shapes = [*(spec.shape for spec in signature.values()), *((),) * len(_OF_DRAWS)]

        def draw(_: tf.Tensor) -> tuple[Sequence, Drawn]:
            drawn = tf.numpy_function(lambda: self._draw_batch(batch_size), (), dtypes)
            for column, shape in zip(drawn, shapes, strict=True):
                column.set_shape((batch_size, *shape))
            *columns, probability, table_size, key, priority = drawn
            sequences = dict(zip(signature, columns, strict=True))
            return self._layout.sequence(sequences, probability, table_size), Drawn(key, priority)

        return draws.map(draw)

    def update_priorities(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        tf.numpy_function(self._update, (keys, tf.cast(priorities, tf.float64)), ())

    def put_statistics(self, report: StatisticsReport) -> None:
        copies = {name: np.array(values, np.float64) for name, values in report.items()}
        # A random key: with counts, a run that goes back to a checkpoint would give new reports keys that its log has.
        self._queue.append((uuid.uuid4().int >> 64, copies))

    def statistics(self) -> Iterator[tuple[int, StatisticsReport]]:
        for _ in range(len(self._queue)):
            yield self._queue[0]
            self._queue.popleft()

    def checkpoint(self, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        # The lock is held only while the list of what belongs to the checkpoint is made: others write meanwhile.
        with self._lock:
            places = np.arange(self._oldest, self.inserted) % self._max_size
            sequences = [self._sequences[place] for place in places.tolist()]
            priorities = self._priorities[places]
            reports = list(self._queue)
            described = {
                "settings": self._identity(),
                "counts": {"inserted": self.inserted, "sampled": self.sampled, "oldest": self._oldest},
                "random": self._random.bit_generator.state,
                "reports": [key for key, _ in reports],
            }
        # A block that several sequences share is written once; `id` tells blocks apart while the sequences hold them.
        blocks = {id(block): block for sequence in sequences for block in sequence}
        numbers = {identity: number for number, identity in enumerate(blocks)}
        numbered = [[numbers[id(block)] for block in sequence] for sequence in sequences]
        np.save(folder / "windows.npy", np.array(numbered, np.int64))
        np.save(folder / "priorities.npy", priorities)
        for name, parts in pack_blocks(list(blocks.values())).items():
            _save(folder / f"{name}.npy", parts)
        queue = {f"{key}/{name}": values for key, report in reports for name, values in report.items()}
        np.savez(folder / _STATISTICS, **queue)
        (folder / TABLE).write_text(json.dumps(described))

    def _restore(self, folder: pathlib.Path) -> None:
        """Begins with what `checkpoint` has written."""
        with readable(folder.parent):
            described = json.loads((folder / TABLE).read_text())
            settings, counts = described["settings"], described["counts"]
        check_same(settings, self._identity(), "sequences")
        with readable(folder.parent):
            paths = {name: folder / f"{name}.npy" for name in _COLUMNS}
            columns = {name: np.load(path, mmap_mode="r") for name, path in paths.items() if path.exists()}
            self.inserted, self.sampled = counts["inserted"], counts["sampled"]
            self._oldest = counts["oldest"]
            self._random.bit_generator.state = described["random"]
            places = np.arange(self._oldest, self.inserted) % self._max_size
            blocks = unpack_blocks(columns)
            for place, sequence in zip(places.tolist(), columns["windows"].tolist(), strict=True):
                self._sequences[place] = tuple(blocks[number] for number in sequence)
            self._set_priorities(places, np.array(columns["priorities"]))
            with np.load(folder / _STATISTICS) as queue:
                for key in described["reports"]:
                    report = {name: queue[f"{key}/{name}"] for name in ("moments", "episodes")}
                    self._queue.append((key, report))

    def _identity(self) -> dict[str, Any]:
        """Settings that a checkpoint belongs to."""
        return {
            "format": _FORMAT,
            "capacity in sequences": self._max_size,
            "replay_ratio": self.replay_ratio,
            "min_sequences": self.min_sequences,
            "priority_exponent": self._settings.priority_exponent,
            "signature": {
                name: [list(of.shape), of.dtype.name] for name, of in self._layout.signature.items()
            },
            "statistics": list(self._moments_shape),
        }

    def stop(self) -> None:
        self._closed = True
        self._stopped.assign(True)
        with self._lock:
            self._lock.notify_all()

    def _insert(self, sequence: tuple[Block, ...], priority: float) -> None:
        """Puts a sequence into the table, from which the oldest may leave for it."""
        if self._closed:
            raise ReplayStopped
        with self._lock:
            if self.size == self._max_size:
                self._oldest += 1
            place = self.inserted % self._max_size
            self._sequences[place] = sequence
            self.inserted += 1
            self._set_priorities(np.array([place]), np.array([priority]))

    def _set_priorities(self, places: np.ndarray, priorities: np.ndarray) -> None:
        self._priorities[places] = priorities
        # A priority of 0 weighs nothing, with an exponent of 0 as well.
        powers = np.where(priorities > 0.0, priorities**self._settings.priority_exponent, 0.0)
        self._weights.set(places, powers)

    def _update(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        keys = keys.astype(np.int64)
        with self._lock:
            there = (keys >= self._oldest) & (keys < self.inserted)
            self._set_priorities(keys[there] % self._max_size, priorities[there])

    def _draw_batch(self, batch_size: int) -> list[np.ndarray]:
        """Draws a batch: the columns of `Layout.signature`, then what `_OF_DRAWS` lists."""
        with self._lock:
            keys, probability = self._draw(batch_size)
            table_size = self.size
            places = keys % self._max_size
            sequences = [self._sequences[place] for place in places.tolist()]
            priorities = self._priorities[places]
            self.sampled += batch_size
        blocks = list(itertools.chain.from_iterable(sequences))
        stored = [block.observation for block in blocks]
        observations = np.array(stored, object) if self._layout.level else np.stack(stored)
        scalars = np.stack([block.scalars for block in blocks])
        core_states = np.stack([sequence[0].core_state for sequence in sequences])
        columns = [column.reshape(batch_size, -1, *column.shape[1:]) for column in (observations, scalars)]
        sizes = np.full(batch_size, table_size, np.int64)
        return [
            *columns,
            core_states,
            probability.astype(np.float32),
            sizes,
            keys.astype(np.uint64),
            priorities,
        ]

    def _draw(self, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys int64 [B], and the probability float64 [B] that each draw had."""
        if self._weights.total > 0.0:
            places = self._weights.draw(self._random.random(batch_size))
            keys = self._oldest + (places - self._oldest) % self._max_size
            return keys, self._weights.weights(places) / self._weights.total
        keys = self._oldest + self._random.integers(self.size, size=batch_size)
        return keys, np.full(batch_size, 1.0 / self.size)


class LocalWriter(Writer):
    """Keeps an environment's last blocks, and hands sequences of them to the table; made by `LocalReplay.writer`."""

    def __init__(self, insert: Callable[[tuple[Block, ...], float], None], layout: Layout):
        self._insert, self._layout = insert, layout
        self._recent: collections.deque[Block] = collections.deque(maxlen=layout.shape.blocks)

    def append(self, block: Rows, starts_sequence: bool, priority: float | None = None) -> None:
        self._recent.append(self._layout.block(block, starts_sequence))
        if priority is not None:
            self._insert(tuple(self._recent), priority)


def _save(path: pathlib.Path, parts: list[np.ndarray]) -> None:
    """Writes what `np.save` would of them one behind the other."""
    described = {
        "descr": np.lib.format.dtype_to_descr(parts[0].dtype),
        "fortran_order": False,
        "shape": (sum(map(len, parts)), *parts[0].shape[1:]),
    }
    with open(path, "wb", buffering=1 << 20) as file:
        np.lib.format.write_array_header_1_0(file, described)
        file.writelines(array.data for array in parts)
