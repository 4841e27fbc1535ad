"""What every replay has in common: settings, what goes in and comes out, and which one a run takes.

There are three: one in this process (`local_replay`), and two that other processes reach: the same table through Ray
(`ray_replay`), and Reverb's server (`reverb_replay`).
"""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.replay.blocks import Layout
from agents.replay.rows import Rows
from agents.sequences import unpack
from agents.settings import ReplaySettings
from rbs_tf import ReturnMoments


class Episode(NamedTuple):
    """A finished episode."""

    episode_return: float  # raw: undiscounted, unclipped rewards
    length: int  # transitions
    head: int  # that acted
    epsilon: float  # of its exploration
    rewards: int  # transitions whose raw reward is not 0


# A round's contribution to the statistics; every step and every episode is reported once. Both are float64:
#   moments   [8, H], `rbs_tf.ReturnMoments.to_array()`
#   episodes  [E, 5], an `Episode` in each row; E may be 0
StatisticsReport = dict[str, np.ndarray]


class Drawn(NamedTuple):
    """What `Replay.update_priorities` needs to know of a batch, and the priorities that it was drawn with."""

    key: Any  # uint64 [B]
    priority: Any  # float64 [B]


class ReplayStopped(RuntimeError):
    """The replay was stopped while somebody waited to write."""

    def __init__(self) -> None:
        super().__init__("The replay was stopped; what was being written is lost")


class Writer(abc.ABC):
    """Stores one environment's stream of blocks, and sequences of them; made by `Intake.writer`."""

    @abc.abstractmethod
    def append(self, block: Rows, starts_sequence: bool, priority: float | None = None) -> None:
        """Appends copies of the next rows, [block], and inserts the sequence that ends with them.

        Args:
          block: the rows.
          starts_sequence: whether one starts with the first of them.
          priority: of the sequence, finite and not negative; None: none ends with them.

        Raises:
          ReplayStopped: the replay was stopped.
        """

    def close(self) -> None:  # noqa: B027  most have nothing to do
        """Drops what is not in the table yet. Never waits."""


class Intake(abc.ABC):
    """What a collector writes into: a replay, or the way to one in another process."""

    @abc.abstractmethod
    def writer(self) -> Writer:
        """A new writer, for the stream of one environment."""

    @abc.abstractmethod
    def put_statistics(self, report: StatisticsReport) -> None:
        """Appends to the queue, before any sequence that is written later."""

    def end_round(self) -> None:  # noqa: B027
        """Waits until everything that all writers have inserted is in the table.

        Raises:
          ReplayStopped: the replay was stopped.
          TimeoutError: nothing gets in, as the thread that waits is the one that has to read.
        """


class Replay(Intake):
    """Sequences and a queue of statistics.

    Args:
      layout: how sequences are stored.
      num_heads: H, of the statistics.
      settings: of the run.

    Attributes:
      replay_ratio, min_sequences: of its settings.

    Raises:
      ValueError: settings that cannot be, or other than the checkpoint's.
    """

    def __init__(self, layout: Layout, num_heads: int, settings: ReplaySettings):
        self._layout, self._settings = layout, settings
        self.min_sequences, self.replay_ratio = settings.min_sequences, settings.replay_ratio
        self._moments_shape = ReturnMoments.empty(num_heads).to_array().shape
        self._max_size = settings.sequences(layout.shape.period)
        # For datasets, whose graphs cannot see an event.
        self._stopped = tf.Variable(False, trainable=False, name="replay_stopped")

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

        The first `min_sequences` insertions earn no samples. A thread that takes turns at collecting and learning has
        to ask here before it draws: otherwise it would wait for itself.
        """
        return self._samples_due(self.inserted, updates * batch_size) >= batch_size

    def allows_update(self, updates: int, environment_steps: int, steps_per_update: float) -> bool:
        """Says whether one more update after `updates` of them keeps to a number of environment steps per update.

        The first `min_sequences` times `SequenceShape.period` steps earn none. Insertions do not count: the same steps
        give the same updates, however long episodes are. None is due before there are `min_sequences` sequences;
        updates missed until then are caught up with.
        """
        # A division: multiplied by a rounded 1 / steps, some updates would come a step late.
        earned = (environment_steps - self.min_sequences * self._layout.shape.period) / steps_per_update
        return earned - updates >= 1 and self.size >= self.min_sequences

    def batch_due(self, batch_size: int) -> bool:
        """Says whether one more batch keeps to the replay ratio, by the replay's own count of samples.

        This count survives a learner that has died and lost updates; by the learner's own, it would draw samples that
        the replay withholds.
        """
        return self._samples_due(self.inserted, self.sampled) >= batch_size

    def _samples_due(self, inserted: int, sampled: int) -> float:
        """Samples that the replay ratio still allows; negative where there have been more."""
        return (inserted - self.min_sequences) * self.replay_ratio - sampled

    def dataset(self, batch_size: int, packed: bool = False) -> tf.data.Dataset:
        """Batches without end, until the replay is stopped: `(Sequence, Drawn)`.

        A batch is drawn when it is asked for (see `read_ahead`), so that its draw sees the priorities written
        after the batch before it. With `packed` compressed observations come as `Packed`, for `unpack` to put them
        together elsewhere: on a GPU, behind the copy to it.
        """
        draws = tf.data.Dataset.counter().take_while(lambda _: tf.logical_not(self._stopped))
        # Left to itself, tf.data draws further ahead than it was asked to: by injected prefetches and parallel maps.
        options = tf.data.Options()
        options.autotune.enabled = False
        batches = self._batches(draws, batch_size)
        if self._layout.level and not packed:
            spec = self._layout.observation_spec
            batches = batches.map(lambda batch, drawn: (unpack(batch, spec), drawn))
        batches = batches.with_options(options)
        ahead = self._settings.read_ahead
        return batches.prefetch(ahead) if ahead else batches

    @abc.abstractmethod
    def _batches(self, draws: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """A batch for each element of `draws`; compressed observations as `Packed`."""

    @abc.abstractmethod
    def update_priorities(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        """Sets priorities [B] by key, uint64 [B], in graphs and eagerly; keys that have left are skipped."""

    @abc.abstractmethod
    def statistics(self) -> Iterator[tuple[int, StatisticsReport]]:
        """Everything that is in the queue now, oldest first, by key; never waits.

        A report leaves the queue when the next one is asked for, or when there is none. A reader that dies over one
        leaves it to the next reader, under the same key. There may be one reader at a time.
        """

    @abc.abstractmethod
    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes a checkpoint into a new folder. An OSError: the disk does not take it."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends datasets and waiting writers. May be called again."""


def check_same(then: Mapping[str, Any], now: Mapping[str, Any], table: str) -> None:
    """Refuses a checkpoint whose settings of a table differ from those of now, with a ValueError."""
    if different := [name for name in {**then, **now} if then.get(name) != now.get(name)]:
        listed = "; ".join(f"{name}: {then.get(name)} then, {now.get(name)} now" for name in different)
        raise ValueError(
            f"The replay's checkpoint was made with other settings of its {table} ({listed}). Repeat the settings of "
            "SequenceShape, Replay and the network that it was made with, or start without it"
        )
