"""What every replay has in common: settings, what goes in and comes out, and which one a run takes.

There are two: Reverb's server (`reverb_replay`), which other processes reach, and one in this process (`local_replay`).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import gin
import numpy as np
import tensorflow as tf

from agents import UsageError
from agents.replay.compression import level_for
from agents.replay.memory import check_memory
from agents.replay.windows import Block
from agents.storage.state import State
from agents.targets import SequenceShape, Steps, unpacked
from rbs_tf import ReturnMoments

REVERB, LOCAL = "reverb", "local"
# Of a row, in their column's order: one float32 column holds them all, for step types and actions are small enough.
SCALARS = tuple(field for field in Steps._fields if field != "observation")


class Episode(NamedTuple):
    """A finished episode."""

    episode_return: float  # raw: undiscounted, unclipped rewards
    length: int  # transitions
    head: int  # that acted
    epsilon: float  # of its exploration


# A round's contribution to the statistics; every step and every episode is reported once. All are float64:
#   moments   [8, H], `rbs_tf.ReturnMoments.to_array()`
#   episodes  [E, 4], an `Episode` in each row; E may be 0
# and what the scaling needs beside them (`Scaling.needs`), by name, likewise as `to_array` makes it.
StatisticsReport = dict[str, np.ndarray]


class Drawn(NamedTuple):
    """What `Replay.update_priorities` needs to know of a batch, and the priorities that it was drawn with."""

    key: Any  # uint64 [B]
    priority: Any  # float64 [B]


class ReplayStopped(RuntimeError):
    """The replay was stopped while somebody waited to write."""


@gin.configurable("Replay", module="agents")
@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """Settings of a replay; gin knows them as `Replay`.

    Args:
      backend: "reverb", a server that other processes reach, or "local", in this process, whose draws are seeded. None:
        Reverb where it can be imported, else local. Distributed runs take Reverb.
      capacity: in observations; the table holds capacity / period sequences, then the oldest leaves (paper:
        4e6 observations, 1e5 sequences).
      min_sequences: sequences that must be there before the first is sampled.
      replay_ratio: how often a sequence is sampled per sequence inserted, on average (paper: 1). Neither side
        may run ahead of the other by more than `error_buffer`.
      error_buffer: in samples; must exceed what a round of collecting inserts times `replay_ratio`. Neither
        `replay_ratio` nor this counts under `train.steps_per_update`.
      sampler: "prioritized", "uniform", or "fifo": each sequence `replay_ratio` times (rounded up), in order
        of insertion, for tests and for hunting regressions.
      priority_exponent: of the prioritised draw (paper: 0.9).
      read_ahead: batches drawn before they are asked for, so that drawing and decompression overlap the update. Drawn
        early, they miss the newest priorities. None: one for a client, whose process does nothing else meanwhile; none
        where collecting and learning take turns and draws shall be reproducible.
      compression: zlib's level for observations, from 1 to 9, of which the pieces that differ are kept; 0 leaves them
        to Reverb, which takes 2 to 16 times the memory for Atari frames, or as they are in the local replay. None: 3
        for uint8 observations of 10 kB and more, 0 for others.
      patience: seconds that a write waits for readers before it fails; the local replay, which nobody else empties
        meanwhile, does not wait.
      port: of the Reverb server; a free one by default.
    """

    backend: str | None = None
    capacity: int = 4_000_000
    min_sequences: int = 1_000
    replay_ratio: float = 1.0
    error_buffer: float = 10_000
    sampler: str = "prioritized"
    priority_exponent: float = 0.9
    read_ahead: int | None = None
    compression: int | None = None
    patience: float = 300.0
    port: int | None = None


class Writer(Protocol):
    """Stores one environment's stream of blocks, and windows of them; made by `Replay.writer`."""

    def append(self, block: Block) -> None:
        """Appends the next rows."""

    def insert(self, priority: float) -> None:
        """Inserts the window that ends with the last block.

        Raises:
          FloatingPointError: the priority is NaN, infinite or negative.
        """

    def flush(self) -> None:
        """Waits until everything inserted is in the table.

        Raises:
          ReplayStopped: the replay was stopped meanwhile.
          TimeoutError: the rate limiter lets nothing in.
        """

    def state(self) -> State:
        """The blocks that windows to come may refer to; to be called after `flush`."""

    def restore(self, state: State) -> None:
        """Appends what another writer, whose stream goes on here, had appended. Inserts nothing."""

    def close(self) -> None:
        """Drops what is not in the table yet. Never waits."""


class Replay(abc.ABC):
    """Sequences and a queue of statistics.

    Args:
      shape: layout of the sequences.
      observation_spec: `tf.TensorSpec` of one observation.
      state_spec: nest of `tf.TensorSpec`, the network's core state, float32.
      num_heads: H, of the statistics.
      needs: what statistics hold beside moments per head, see `Scaling.needs`.
      backend: "reverb" or "local".
      own: whether the table is in this process's memory.
      **settings: of `ReplaySettings`, in place of gin's.

    Attributes:
      address: "host:port" for clients; None where nobody else can reach it.
      memory_note: what it will need, in words; empty for a client.
      sampler, replay_ratio, min_sequences: of its settings.

    Raises:
      ValueError: settings that cannot be, that the machine's memory cannot hold, or other than the
        checkpoint's.
    """

    address: str | None = None

    def __init__(
        self,
        shape: SequenceShape,
        observation_spec: tf.TensorSpec,
        state_spec: Any,
        num_heads: int,
        needs: Mapping[str, Any] = types.MappingProxyType({}),
        *,
        backend: str,
        own: bool = True,
        **settings: Any,
    ):
        self._settings = ReplaySettings(**settings)
        capacity, self.min_sequences = self._settings.capacity, self._settings.min_sequences
        self.sampler, self.replay_ratio = self._settings.sampler, self._settings.replay_ratio
        self._shape, self._observation_spec, self._state_spec = shape, observation_spec, state_spec
        self._max_size = capacity // shape.period
        if not 1 <= self.min_sequences <= self._max_size:
            raise ValueError(
                f"Replay.min_sequences is {self.min_sequences}, but Replay.capacity = {capacity} observations "
                f"makes room for {self._max_size} sequences of period {shape.period}; "
                f"write a number from 1 to {self._max_size}"
            )
        buffer = self._settings.error_buffer
        if not buffer >= max(1.0, self.replay_ratio) or self.replay_ratio <= 0:
            raise ValueError(
                f"Replay.replay_ratio must be positive and Replay.error_buffer at least as large, and 1; got "
                f"{self.replay_ratio} and {buffer}"
            )
        self._compression = level_for(observation_spec, self._settings.compression)
        memory = observation_spec, state_spec, shape, capacity, self._compression, backend
        self.memory_note = check_memory(*memory) if own else ""
        # For datasets, whose graphs cannot see an event.
        self._stopped = tf.Variable(False, trainable=False, name="replay_stopped")
        self._read_ahead = self._settings.read_ahead or 0

        observations = (shape.blocks, shape.block, *observation_spec.shape), observation_spec.dtype
        if self._compression:
            observations = (shape.blocks,), tf.string
        column = observation_column(self._compression)
        self._signature = {
            column: tf.TensorSpec(*observations, column),
            "scalars": tf.TensorSpec((shape.blocks, shape.block, len(SCALARS)), tf.float32, "scalars"),
            "core_state": tf.TensorSpec((sum(self._state_sizes),), tf.float32, "core_state"),
        }
        self._moments = {
            name: kind.empty(num_heads).to_array().shape
            for name, kind in {"moments": ReturnMoments, **needs}.items()
        }

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Sequences in the table."""

    @property
    @abc.abstractmethod
    def inserted(self) -> int:
        """Sequences inserted so far, those of earlier starts of a resumed run included."""

    @property
    @abc.abstractmethod
    def sampled(self) -> int:
        """Sequences sampled so far, read-ahead and earlier starts included."""

    def updates_due(self, updates: int, batch_size: int) -> bool:
        """Says whether one more update after `updates` of them keeps to the replay ratio.

        The first `min_sequences` insertions earn no samples. Where one thread takes turns at collecting and
        learning, the learner must ask here first: waiting for sequences, it would wait for itself.
        """
        inserted_since_start = self.inserted - self.min_sequences
        return (updates + 1) * batch_size <= inserted_since_start * self.replay_ratio

    def updates_due_by_steps(self, updates: int, environment_steps: int, steps_per_update: float) -> bool:
        """Says whether one more update after `updates` of them keeps to a number of environment steps per update.

        Counted from step `min_sequences` times the sequences' period on, whatever has been inserted: the same steps
        give the same updates, however long episodes are. While there are fewer than `min_sequences` sequences none is
        due, and what has been missed then is made up for. For a replay of infinite `error_buffer`, which neither side
        waits for.
        """
        counted = environment_steps - self.min_sequences * self._shape.period
        return updates + 1 <= counted / steps_per_update and self.size >= self.min_sequences

    @abc.abstractmethod
    def writer(self) -> Writer:
        """Returns a new writer, for the stream of one environment."""

    def dataset(self, batch_size: int, packed: bool = False) -> tf.data.Dataset:
        """Batches without end, until the replay is stopped: `(Sequence, Drawn)`.

        A batch is drawn when it is asked for (see `read_ahead`), so that its draw sees the priorities written
        after the batch before it. With `packed` compressed observations come as `Packed`, for `unpacked` to put them
        together elsewhere: on a GPU, behind the copy to it.
        """
        ahead = (self._read_ahead + 1) * batch_size
        if ahead > self._settings.error_buffer:
            raise ValueError(
                f"{self._read_ahead} batches read ahead and one in use, of {batch_size} sequences, are more "
                f"than the replay ratio's tolerance; write Replay.error_buffer = {ahead} or more"
            )
        draws = tf.data.Dataset.counter().take_while(lambda _: tf.logical_not(self._stopped))
        # Left to itself, tf.data draws further ahead than it was asked to: by injected prefetches and
        # parallel maps.
        options = tf.data.Options()
        options.autotune.enabled = False
        batches = self._batches(draws, batch_size)
        if self._compression and not packed:
            batches = batches.map(lambda batch, drawn: (unpacked(batch, self._observation_spec), drawn))
        batches = batches.with_options(options)
        return batches.prefetch(self._read_ahead) if self._read_ahead else batches

    @abc.abstractmethod
    def _batches(self, draws: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """A batch for each element of `draws`; compressed observations as `Packed`."""

    @abc.abstractmethod
    def update_priorities(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        """Sets priorities [B] by key, uint64 [B], in graphs and eagerly; keys that have left are skipped."""

    @abc.abstractmethod
    def put_statistics(self, report: StatisticsReport) -> None:
        """Appends to the queue; returns when it is there."""

    @abc.abstractmethod
    def statistics(self) -> Iterator[tuple[int, StatisticsReport]]:
        """Everything that is in the queue now, oldest first, by key; never waits.

        A report leaves the queue when the next one is asked for, or the end: it is still there for whoever comes after
        a reader that died over it. It has kept its key then. One reader at a time.
        """

    @abc.abstractmethod
    def checkpoint(self) -> str:
        """Writes a checkpoint; returns its folder.

        Raises:
          OSError: the disk does not take it.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends datasets and waiting writers. May be called again."""

    @property
    def _state_sizes(self) -> list[int]:
        return [spec.shape.num_elements() for spec in tf.nest.flatten(self._state_spec)]


def observation_column(compression: int) -> str:
    """What a table calls its observations, by zlib's level: a checkpoint of others is refused for it."""
    return "pieces" if compression else "observation"


def row_columns(block: Block) -> dict[str, np.ndarray]:
    """The columns of a block as they are stored: "scalars" float32 [block, 4], "core_state" [S] if it has one, and
    "observation" as it is."""
    scalars = np.empty((len(block.steps.step_type), len(SCALARS)), np.float32)
    for column, name in enumerate(SCALARS):
        scalars[:, column] = getattr(block.steps, name)
    columns = {"observation": block.steps.observation, "scalars": scalars}
    if block.core_state is not None:
        columns["core_state"] = np.concatenate([state.ravel() for state in block.core_state])
    return columns


def check_priority(priority: float) -> None:
    """Refuses what no draw could use, and for which Reverb would wait for ever.

    Raises:
      FloatingPointError: it is NaN, infinite or negative.
    """
    if not 0.0 <= priority < math.inf:
        raise FloatingPointError(
            f"A priority must be finite and not negative, got {priority}; have the values diverged?"
        )


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Says which settings differ; empty if none does."""
    different = [setting for setting in then if then[setting] != now.get(setting)]
    return "; ".join(f"{name}: {then[name]} then, {now.get(name)} now" for name in different)


def other_settings(listed: str, table: str) -> ValueError:
    """What to raise where a checkpoint's settings differ from those of now."""
    return ValueError(
        f"The replay's checkpoint was written with other settings of its {table} ({listed}). "
        "Repeat the settings of SequenceShape, Replay and the network that it was written with, "
        "or start without it"
    )


def other_backend(then: str, now: str) -> ValueError:
    """What to raise where a checkpoint was written by another backend."""
    return ValueError(
        f"The replay's checkpoint was written by the {then} replay, and this run has the {now} one. Go on with "
        f"--replay={then}, or start in another folder with --root_dir=DIR"
    )


@functools.cache
def why_no_reverb() -> str:
    """Why Reverb cannot be imported; empty if it can."""
    try:
        import reverb  # noqa: F401
    except Exception as error:  # TensorFlow's own, for one, if it was compiled for another TensorFlow
        (first, *_) = str(error).splitlines() or [type(error).__name__]
        return first
    return ""


def require_reverb(asked: str) -> None:
    """Refuses what needs Reverb where it cannot be imported.

    Args:
      asked: what needs it, as the user has typed it.

    Raises:
      UsageError: with what to install.
    """
    if why := why_no_reverb():
        raise UsageError(
            f"{asked} needs Reverb, which cannot be imported ({why}). It goes with Python 3.10 or 3.11 and TensorFlow "
            "2.15. Install it with: pip install 'dm-reverb~=0.14.0' 'tensorflow~=2.15.0'; or train in one process "
            "with --replay=local"
        )


def chosen_backend() -> tuple[str, str]:
    """The backend of a run in one process, and a sentence on it where nobody has chosen and Reverb is not there.

    Raises:
      UsageError: Reverb was asked for, and is not there.
    """
    chosen = ReplaySettings().backend
    if chosen == REVERB:
        require_reverb("Replay.backend = 'reverb'")
    if chosen is not None:
        return chosen, ""
    if why := why_no_reverb():
        return LOCAL, f"The replay is in this process, as Reverb cannot be imported ({why})."
    return REVERB, ""
