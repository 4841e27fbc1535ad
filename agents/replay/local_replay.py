"""Replay of sequences and a queue of statistics in the memory of one process, with draws that can be repeated.

Each block of rows is kept once, in an array of its own, for as long as a window refers to it: a full table takes what
its windows hold, however short the episodes are. Sequence k, by order of insertion, stands in place k mod the table's
size, as the oldest leaves first: keys need no index.
"""

from __future__ import annotations

import collections
import itertools
import math
import shutil
import threading
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from agents.replay import local_files
from agents.replay.compression import compress, decompress, decompress_batch
from agents.replay.local_files import StoredBlock, Table
from agents.replay.replay import (
    LOCAL,
    REVERB,
    SCALARS,
    Drawn,
    Replay,
    ReplayStopped,
    StatisticsReport,
    check_priority,
    difference,
    other_backend,
    other_settings,
    row_columns,
)
from agents.replay.sum_tree import SumTree
from agents.replay.windows import Block
from agents.storage.checkpoint import ReplayFolders
from agents.storage.state import State
from agents.targets import Sequence, SequenceShape, Steps

_FOLDER = "local"  # under `ReplayFolders.writes_to`


class LocalReplay(Replay):
    """A table of sequences and a queue of statistics in this process.

    The same seed, insertions, draws and new priorities in the same order give the same draws, bit for bit, also across
    a checkpoint. Reading ahead and several replicas leave the order to chance.

    Beside the arguments of `Replay`:

    Args:
      seed: of random draws.
      folders: where checkpoints go, and which one it starts with; None: it starts empty and cannot write one.

    Raises:
      ValueError: as `Replay`, and a checkpoint of the other backend.
    """

    def __init__(
        self,
        shape: SequenceShape,
        observation_spec: tf.TensorSpec,
        state_spec: Any,
        num_heads: int,
        needs: Mapping[str, Any] = types.MappingProxyType({}),
        seed: int = 0,
        folders: ReplayFolders | None = None,
        **options: Any,
    ):
        super().__init__(shape, observation_spec, state_spec, num_heads, needs, backend=LOCAL, **options)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._lock = threading.Lock()  # batches that are read ahead are drawn in another thread
        self._closed = False
        self._inserted = self._sampled = self._oldest = 0
        self._head_draws = 0  # of the oldest sequence
        self._windows: list[tuple[StoredBlock, ...]] = [()] * self._max_size
        self._priorities = np.zeros(self._max_size)
        self._weights = SumTree(self._max_size) if self.sampler == "prioritized" else None
        self._queue: collections.deque[tuple[int, StatisticsReport]] = collections.deque()
        self._folder = None if folders is None else folders.writes_to / _FOLDER
        if folders is not None and folders.begins_with is not None:
            self._restore(folders)

    @property
    def size(self) -> int:
        return self._inserted - self._oldest

    @property
    def inserted(self) -> int:
        return self._inserted

    @property
    def sampled(self) -> int:
        return self._sampled

    def writer(self) -> LocalWriter:
        return LocalWriter(self._insert, self._shape, self._observation_spec, self._compression)

    def _batches(self, draws: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        rows = batch_size, self._shape.rows
        observation = tf.TensorSpec((*rows, *self._observation_spec.shape), self._observation_spec.dtype)
        if self._compression:
            observation = tf.TensorSpec((batch_size, self._shape.blocks), tf.string)
        specs = (
            Sequence(
                Steps(
                    step_type=tf.TensorSpec(rows, tf.int32),
                    observation=observation,
                    previous_action=tf.TensorSpec(rows, tf.int32),
                    reward=tf.TensorSpec(rows, tf.float32),
                    discount=tf.TensorSpec(rows, tf.float32),
                ),
                tf.nest.map_structure(
                    lambda spec: tf.TensorSpec((batch_size, *spec.shape), tf.float32), self._state_spec
                ),
                tf.TensorSpec((batch_size,), tf.float32),
                tf.TensorSpec((batch_size,), tf.int64),
            ),
            Drawn(tf.TensorSpec((batch_size,), tf.uint64), tf.TensorSpec((batch_size,), tf.float64)),
        )
        flat = tf.nest.flatten(specs)

        def draw(_: tf.Tensor) -> tuple[Sequence, Drawn]:
            columns = tf.numpy_function(lambda: self._batch(batch_size), (), [spec.dtype for spec in flat])
            for column, spec in zip(columns, flat, strict=True):
                column.set_shape(spec.shape)
            sequence, drawn = tf.nest.pack_sequence_as(specs, columns)
            if self._compression:
                strings = sequence.steps.observation
                packed = decompress_batch(strings, self._shape.block, self._observation_spec)
                sequence = sequence._replace(steps=sequence.steps._replace(observation=packed))
            return sequence, drawn

        return draws.map(draw)

    def update_priorities(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        tf.numpy_function(self._update, (keys, tf.cast(priorities, tf.float64)), ())

    def put_statistics(self, report: StatisticsReport) -> None:
        copies = {name: np.array(values, np.float64) for name, values in report.items()}
        # Not a count: a run that goes back to a checkpoint may find later reports in its log, under their keys.
        self._queue.append((uuid.uuid4().int >> 64, copies))

    def statistics(self) -> Iterator[tuple[int, StatisticsReport]]:
        for _ in range(len(self._queue)):
            yield self._queue[0]
            self._queue.popleft()

    def checkpoint(self) -> str:
        if self._folder is None:
            raise ValueError("a replay that was given no folders has nowhere to write a checkpoint")
        shutil.rmtree(self._folder, ignore_errors=True)  # of an attempt that failed
        self._folder.mkdir()
        with self._lock:
            keys = np.arange(self._oldest, self._inserted)
            table = Table(
                self._identity(),
                {
                    "inserted": self._inserted,
                    "sampled": self._sampled,
                    "oldest": self._oldest,
                    "head_draws": self._head_draws,
                },
                self._random.bit_generator.state,
                [self._windows[place] for place in (keys % self._max_size).tolist()],
                self._priorities[keys % self._max_size],
                list(self._queue),
            )
            local_files.write(self._folder, table, self._observation_spec, self._compression)
        return str(self._folder)

    def stop(self) -> None:
        self._closed = True
        self._stopped.assign(True)

    def _insert(self, window: tuple[StoredBlock, ...], priority: float) -> None:
        """Puts a window into the table, from which the oldest may leave for it."""
        check_priority(priority)
        if self._closed:
            raise ReplayStopped("The replay was stopped; what was being written is lost")
        with self._lock:
            tolerated = self.min_sequences * self.replay_ratio + self._settings.error_buffer
            after = self._inserted + 1
            if after > self.min_sequences and after * self.replay_ratio - self._sampled > tolerated:
                raise TimeoutError(
                    f"Nobody takes anything out of the replay while this process writes: it has {self._inserted} "
                    f"insertions and {self._sampled} samples. Raise Replay.error_buffer or collect fewer steps per "
                    "round"
                )
            if self.size == self._max_size:
                self._drop_oldest()
            place = self._inserted % self._max_size
            self._windows[place] = window
            self._inserted = after
            self._set_priorities(np.array([place]), np.array([priority]))

    def _drop_oldest(self) -> None:
        place = self._oldest % self._max_size
        self._windows[place] = ()
        self._set_priorities(np.array([place]), np.zeros(1))
        self._oldest, self._head_draws = self._oldest + 1, 0

    def _set_priorities(self, places: np.ndarray, priorities: np.ndarray) -> None:
        self._priorities[places] = priorities
        if self._weights is not None:
            # A priority of 0 weighs nothing, with an exponent of 0 as well.
            powers = np.where(priorities > 0.0, priorities**self._settings.priority_exponent, 0.0)
            self._weights.set(places, powers)

    def _update(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        if not (np.isfinite(priorities) & (priorities >= 0.0)).all():
            raise FloatingPointError(f"Priorities must be finite and not negative, got {priorities}")
        keys = keys.astype(np.int64)
        with self._lock:
            there = (keys >= self._oldest) & (keys < self._inserted)
            self._set_priorities(keys[there] % self._max_size, priorities[there])

    def _batch(self, batch_size: int) -> list[np.ndarray]:
        """Draws a batch: the columns of (Sequence, Drawn), flat."""
        with self._lock:
            table_size = self.size
            keys, probability = self._draw(batch_size)
            places = keys % self._max_size
            windows = [self._windows[place] for place in places.tolist()]
            priorities = self._priorities[places]
            self._sampled += batch_size
            if self.sampler == "fifo":
                done, rest = divmod(self._head_draws + batch_size, self._times)
                for _ in range(done):
                    self._drop_oldest()
                self._head_draws = rest
        blocks = list(itertools.chain.from_iterable(windows))
        scalars = np.concatenate([block.scalars for block in blocks])
        columns = np.ascontiguousarray(scalars.reshape(batch_size, -1, len(SCALARS)).transpose(2, 0, 1))
        steps = Steps(observation=self._observations(windows), **dict(zip(SCALARS, columns, strict=True)))
        steps = steps._replace(
            step_type=steps.step_type.astype(np.int32), previous_action=steps.previous_action.astype(np.int32)
        )
        core_state = np.stack([window[0].core_state for window in windows])
        states = np.split(core_state, np.cumsum(self._state_sizes)[:-1], axis=1)
        states = [
            np.ascontiguousarray(state).reshape(batch_size, *spec.shape)
            for state, spec in zip(states, tf.nest.flatten(self._state_spec), strict=True)
        ]
        sizes = np.full(batch_size, table_size, np.int64)
        drawn = probability.astype(np.float32), sizes, keys.astype(np.uint64), priorities
        return [*steps, *states, *drawn]

    def _observations(self, windows: list[tuple[StoredBlock, ...]]) -> np.ndarray:
        """[B, L, ...]; compressed: strings [B, N], which cost less to unpack in the graph."""
        stored = [block.observation for block in itertools.chain.from_iterable(windows)]
        if self._compression:
            return np.array(stored, object).reshape(len(windows), -1)
        return np.concatenate(stored).reshape(len(windows), self._shape.rows, *self._observation_spec.shape)

    def _draw(self, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys int64 [B], and the probability float64 [B] that each draw had.

        Raises:
          TimeoutError: there are too few sequences for the replay ratio.
        """
        earned = (self._inserted - self.min_sequences) * self.replay_ratio + self._settings.error_buffer
        left = self.size * self._times - self._head_draws if self.sampler == "fifo" else batch_size
        if self.size < self.min_sequences or self._sampled + batch_size > earned or left < batch_size:
            raise TimeoutError(
                f"Nobody puts anything into the replay while this process waits for {batch_size} sequences: it has "
                f"{self._inserted} insertions and {self._sampled} samples, and {self.size} sequences in it. Raise "
                "Replay.error_buffer, or ask Replay.updates_due first"
            )
        if self.sampler == "fifo":
            keys = self._oldest + (self._head_draws + np.arange(batch_size)) // self._times
            return keys, np.zeros(batch_size)
        if self._weights is not None and self._weights.total > 0.0:
            places = self._weights.draw(self._random.random(batch_size))
            keys = self._oldest + (places - self._oldest) % self._max_size
            return keys, self._weights.weights(places) / self._weights.total
        keys = self._oldest + self._random.integers(self.size, size=batch_size)
        return keys, np.full(batch_size, 1.0 / self.size)

    @property
    def _times(self) -> int:
        """How often "fifo" draws a sequence."""
        return math.ceil(self.replay_ratio)

    def _identity(self) -> dict[str, Any]:
        """Settings that a checkpoint belongs to."""
        exponent = f", exponent {self._settings.priority_exponent}" if self.sampler == "prioritized" else ""
        return {
            "capacity in sequences": self._max_size,
            "replay_ratio": self.replay_ratio,
            "min_sequences": self.min_sequences,
            "error_buffer": self._settings.error_buffer,
            "sampler": self.sampler + exponent,
            "signature": {
                name: [list(spec.shape), spec.dtype.name] for name, spec in self._signature.items()
            },
            "statistics": {name: list(shape) for name, shape in self._moments.items()},
        }

    def _restore(self, folders: ReplayFolders) -> None:
        assert folders.begins_with is not None
        if not local_files.wrote(folders.begins_with):
            raise other_backend(REVERB, LOCAL)
        if listed := difference(local_files.settings(folders.begins_with), self._identity()):
            raise other_settings(listed, "sequences")
        table = local_files.read(folders.begins_with)
        counts = table.counts
        self._inserted, self._sampled = counts["inserted"], counts["sampled"]
        self._oldest, self._head_draws = counts["oldest"], counts["head_draws"]
        self._random.bit_generator.state = table.random
        places = np.arange(self._oldest, self._inserted) % self._max_size
        for place, window in zip(places.tolist(), table.windows, strict=True):
            self._windows[place] = window
        self._set_priorities(places, table.priorities)
        self._queue.extend(table.reports)


class LocalWriter:
    """Keeps an environment's last blocks, and hands windows of them to the table; made by `LocalReplay.writer`.

    Args:
      insert: takes a window and its priority.
      shape: layout of the sequences.
      observation_spec: of one observation.
      compression: zlib's level for observations; 0 for none.
    """

    def __init__(
        self,
        insert: Callable[[tuple[StoredBlock, ...], float], None],
        shape: SequenceShape,
        observation_spec: tf.TensorSpec,
        compression: int,
    ):
        self._insert, self._compression = insert, compression
        self._rows, self._observation_spec, self._kept = shape.block, observation_spec, shape.blocks - 1
        self._recent: collections.deque[StoredBlock] = collections.deque(maxlen=shape.blocks)

    def append(self, block: Block) -> None:
        """Appends the next rows, copied."""
        self._append(**row_columns(block))

    def insert(self, priority: float) -> None:
        """Inserts the window that ends with the last block.

        Raises:
          FloatingPointError: the priority is NaN, infinite or negative.
          ReplayStopped: the replay was stopped.
          TimeoutError: the learner is too far behind; waiting for it, this process would wait for itself.
        """
        self._insert(tuple(self._recent), priority)

    def flush(self) -> None:
        """Does nothing: what was inserted is in the table."""

    def state(self) -> State:
        """The blocks that windows to come may refer to."""
        # A window to come has one block more than these; nothing refers to blocks before the first that starts one.
        recent = list(self._recent)[max(len(self._recent) - self._kept, 0) :]
        recent = list(itertools.dropwhile(lambda block: block.core_state is None, recent))
        starts = np.array([block.core_state is not None for block in recent], bool)
        if not recent:
            return {"starts": starts}
        stored = [block.observation for block in recent]
        if self._compression:
            observations = decompress(np.array(stored, object), self._rows, self._observation_spec)
        else:
            observations = np.stack(stored)
        return {
            "starts": starts,
            "observation": observations,
            "scalars": np.stack([block.scalars for block in recent]),
            "core_state": np.stack([block.core_state for block in recent if block.core_state is not None]),
        }

    def restore(self, state: State) -> None:
        """Appends what another writer, whose stream goes on here, had appended. Inserts nothing."""
        core_states = iter(state.get("core_state", ()))
        for index, start in enumerate(state["starts"]):
            core_state = np.array(next(core_states)) if start else None
            self._append(state["observation"][index], np.array(state["scalars"][index]), core_state)

    def close(self) -> None:
        """Drops what no window has."""
        self._recent.clear()

    def _append(
        self, observation: np.ndarray, scalars: np.ndarray, core_state: np.ndarray | None = None
    ) -> None:
        # Either way a copy: whoever gave it may overwrite it.
        stored = (
            compress(observation, level).item() if (level := self._compression) else np.array(observation)
        )
        self._recent.append(StoredBlock(stored, scalars, core_state))
