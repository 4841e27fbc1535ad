"""Replay of sequences, a queue of statistics and the newest weights, in a Reverb server of this process or another.

What Reverb stores differs from what its users see. Rows are appended in blocks, the four scalars of a row
share one float32 column, and a window refers to its blocks and to one core state: each column and each append
has a price.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any

import gin
import numpy as np
import reverb
import tensorflow as tf
from reverb.cc import schema_pb2

from agents.replay.compression import decompress_batch, level_for
from agents.replay.memory import check_memory
from agents.replay.tables import (
    SCALARS,
    SEQUENCES,
    STATISTICS,
    WEIGHTS,
    Episode,
    StatisticsReport,
    sequences_table,
    settings,
    statistics_table,
    weights_table,
)
from agents.replay.writer import SequenceWriter
from agents.targets import Sequence, SequenceShape, Steps
from rbs_tf import ReturnMoments

_POLL_MS = 200  # How often whoever waits looks whether the replay has been stopped.
_SERVER_SECONDS = 60  # after which a server that does not answer counts as gone
_MOST_EPISODES = 1_000_000


class ReplayStopped(RuntimeError):
    """The replay was stopped while somebody waited to write."""


@gin.configurable(module="agents")
class Replay:
    """A Reverb server with a table of sequences, a queue of statistics and the newest weights; or a client of one.

    The server listens on all interfaces and knows no passwords: Reverb has no setting for either. Nothing but Reverb's
    tables is shared between clients, which may be in other processes and on other machines.

    Args:
      shape: layout of the sequences.
      observation_spec: `tf.TensorSpec` of one observation.
      state_spec: nest of `tf.TensorSpec`, the network's core state, float32.
      num_heads: H, of the statistics.
      needs: what statistics hold beside moments per head, see `Scaling.needs`.
      capacity: in observations; the table holds capacity / period sequences, then the oldest leaves (paper:
        4e6 observations, 1e5 sequences).
      min_sequences: sequences that must be there before the first is sampled.
      replay_ratio: how often a sequence is sampled per sequence inserted, on average (paper: 1). Neither side
        may run ahead of the other by more than `error_buffer`.
      error_buffer: in samples; must exceed what a round of collecting inserts times `replay_ratio`.
      sampler: "prioritized", "uniform", or "fifo": each sequence `replay_ratio` times (rounded up), in order
        of insertion, for tests and for hunting regressions. Reverb's random draws cannot be seeded.
      priority_exponent: of the prioritised draw (paper: 0.9).
      read_ahead: batches drawn before they are asked for, so that drawing and decompression overlap the update. Drawn
        early, they miss the newest priorities. None: one for a client, whose process does nothing else meanwhile; none
        beside an own server, where collecting and learning take turns and draws shall be reproducible.
      compression: zlib's level for observations, from 1 to 9; 0 leaves them to Reverb, which takes 2 to 8 times the
        memory for Atari frames. None: 3 for uint8 observations of 10 kB and more, 0 for others.
      patience: seconds that a write waits for readers before it fails.
      address: "host:port" of a server that is there already, made with the same settings; None starts one.
      port: of the server; a free one by default.
      checkpointer: `reverb.checkpointers` object; the server starts with its newest checkpoint.

    Attributes:
      address: "host:port", for clients.
      memory_note: what the server will need, in words; empty for a client.

    Raises:
      ValueError: settings that cannot be, that the machine's memory cannot hold, or other than the
        checkpoint's.
    """

    def __init__(
        self,
        shape: SequenceShape,
        observation_spec: tf.TensorSpec,
        state_spec: Any,
        num_heads: int,
        needs: Mapping[str, Any] = types.MappingProxyType({}),
        capacity: int = 4_000_000,
        min_sequences: int = 1_000,
        replay_ratio: float = 1.0,
        error_buffer: float = 10_000,
        sampler: str = "prioritized",
        priority_exponent: float = 0.9,
        read_ahead: int | None = None,
        compression: int | None = None,
        patience: float = 300.0,
        address: str | None = None,
        port: int | None = None,
        checkpointer: reverb.checkpointers.CheckpointerBase | None = None,
    ):
        max_size = capacity // shape.period
        if not 1 <= min_sequences <= max_size:
            raise ValueError(
                f"Replay.min_sequences is {min_sequences}, but Replay.capacity = {capacity} observations "
                f"makes room for {max_size} sequences of period {shape.period}; "
                f"write a number from 1 to {max_size}"
            )
        if not error_buffer >= max(1.0, replay_ratio) or replay_ratio <= 0:
            raise ValueError(
                f"Replay.replay_ratio must be positive and Replay.error_buffer at least as large, and 1; got "
                f"{replay_ratio} and {error_buffer}"
            )
        self._compression = level_for(observation_spec, compression)
        memory = observation_spec, state_spec, shape, capacity, self._compression
        self.memory_note = "" if address else check_memory(*memory)
        self.sampler, self.replay_ratio, self.min_sequences = sampler, replay_ratio, min_sequences
        self._shape, self._observation_spec, self._state_spec = shape, observation_spec, state_spec
        self._error_buffer, self._patience = error_buffer, patience
        self._read_ahead = int(address is not None) if read_ahead is None else read_ahead
        self._stopping = threading.Event()
        # The same once more, for datasets: their graphs cannot see an event.
        self._stopped = tf.Variable(False, trainable=False, name="replay_stopped")
        self._has_dataset = False
        self._weights_seen = -1
        self._closed = False

        observations = (shape.blocks, shape.block, *observation_spec.shape), observation_spec.dtype
        if self._compression:
            observations = (shape.blocks,), tf.string
        self._signature = {
            "observation": tf.TensorSpec(*observations, "observation"),
            "scalars": tf.TensorSpec((shape.blocks, shape.block, len(SCALARS)), tf.float32, "scalars"),
            "core_state": tf.TensorSpec((sum(self._state_sizes),), tf.float32, "core_state"),
        }
        moments = {
            name: kind.empty(num_heads).to_array().shape
            for name, kind in {"moments": ReturnMoments, **needs}.items()
        }
        tables = [
            sequences_table(
                self._signature,
                sampler,
                priority_exponent,
                max_size,
                replay_ratio,
                min_sequences,
                error_buffer,
            ),
            statistics_table(moments),
            weights_table(),
        ]
        wanted = {table.name: settings(table.info) for table in tables}
        self._server = None
        if address is None:
            if port is not None:
                _check_free(port)
            self._server = reverb.Server(tables, port=port, checkpointer=checkpointer)
            address = f"localhost:{self._server.port}"
        self.address = address
        _reach_directly(address.rsplit(":", 1)[0])
        self._client = reverb.Client(address)
        self._tf_client = reverb.TFClient(address)
        # `reverb.Client.server_info` also decodes the signatures of all tables, which takes far longer than to ask.
        self._counters = reverb.pybind.Client(address)
        self._check_settings(wanted)
        self._reports = self._client.trajectory_writer(num_keep_alive_refs=_MOST_EPISODES)
        for column in moments:
            self._reports.configure((column,), num_keep_alive_refs=1, max_chunk_length=1)
        self._reports.configure(("episodes",), num_keep_alive_refs=_MOST_EPISODES, max_chunk_length=64)

    @property
    def size(self) -> int:
        """Sequences in the table."""
        return self._info(SEQUENCES).current_size

    @property
    def inserted(self) -> int:
        """Sequences inserted so far, those of earlier starts of a resumed run included."""
        return self._limiter().insert_stats.completed

    @property
    def sampled(self) -> int:
        """Sequences sampled so far, read-ahead and earlier starts included."""
        return self._limiter().sample_stats.completed

    def updates_due(self, updates: int, batch_size: int) -> bool:
        """Says whether one more update after `updates` of them keeps to the replay ratio.

        The first `min_sequences` insertions earn no samples. Where one thread takes turns at collecting and
        learning, the learner must ask here first: waiting for sequences, it would wait for itself.
        """
        inserted_since_start = self.inserted - self.min_sequences
        return (updates + 1) * batch_size <= inserted_since_start * self.replay_ratio

    def batch_due(self, batch_size: int) -> bool:
        """Says whether one more batch keeps to the replay ratio, by the server's own count of samples.

        Unlike a learner's count of updates it survives the learner: one that has lost some does not wait for
        samples that the server will not give.
        """
        info = self._limiter()
        earned = (info.insert_stats.completed - self.min_sequences) * self.replay_ratio
        return info.sample_stats.completed + batch_size <= earned

    def writer(self) -> SequenceWriter:
        """Returns a new writer, for the stream of one environment."""
        return SequenceWriter(
            self._client, self._shape, self._observation_spec, self._compression, self._flush
        )

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """Batches without end, until the replay is stopped: `(Sequence, reverb.SampleInfo)`, info per
        sequence [B].

        A batch is drawn when it is asked for (see `read_ahead`), so that its draw sees the priorities written
        after the batch before it.
        """
        ahead = (self._read_ahead + 1) * batch_size
        if ahead > self._error_buffer:
            raise ValueError(
                f"{self._read_ahead} batches read ahead and one in use, of {batch_size} sequences, are more "
                f"than the replay ratio's tolerance; write Replay.error_buffer = {ahead} or more"
            )
        self._has_dataset = True

        def draw(_: tf.Tensor) -> tf.data.Dataset:
            return reverb.TrajectoryDataset(
                self.address,
                SEQUENCES,
                dtypes={name: spec.dtype for name, spec in self._signature.items()},
                shapes={name: spec.shape for name, spec in self._signature.items()},
                max_in_flight_samples_per_worker=batch_size,
                num_workers_per_iterator=1 if self.sampler == "fifo" else -1,
                max_samples=batch_size,
                rate_limiter_timeout_ms=_POLL_MS,
            )

        # A draw that times out ends early; the next one goes on with the same batch.
        draws = tf.data.Dataset.counter().take_while(lambda _: tf.logical_not(self._stopped)).flat_map(draw)
        batches = draws.batch(batch_size, drop_remainder=True).map(self._unpack)
        # Left to itself, tf.data draws further ahead than it was asked to: by injected prefetches and
        # parallel maps.
        options = tf.data.Options()
        options.autotune.enabled = False
        batches = batches.with_options(options)
        return batches.prefetch(self._read_ahead) if self._read_ahead else batches

    def update_priorities(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        """Sets priorities [B] by key, uint64 [B], in graphs and eagerly; keys that have left are skipped."""
        self._tf_client.update_priorities(SEQUENCES, keys, tf.cast(priorities, tf.float64))

    def put_statistics(self, report: StatisticsReport) -> None:
        """Appends to the queue; returns when it is there."""
        for episode in report["episodes"]:
            self._reports.append({"episodes": episode})
        # Reverb has no empty columns: a row of nothing follows the episodes.
        last = report | {"episodes": np.zeros(len(Episode._fields))}
        self._reports.append(last)
        history = self._reports.history
        item = {column: history[column][-1] for column in last}
        item["episodes"] = history["episodes"][-len(report["episodes"]) - 1 :]
        self._reports.create_item(STATISTICS, 1.0, item)
        self._flush(self._reports)
        self._reports.end_episode(timeout_ms=_POLL_MS)

    def statistics(self) -> Iterator[tuple[int, StatisticsReport]]:
        """Everything that is in the queue now, oldest first, by key; never waits.

        A report leaves the queue when the next one is asked for, or the end: it is still there for whoever comes after
        a reader that died over it. It has kept its key then. One reader at a time.
        """
        for _ in range(self._info(STATISTICS).current_size):
            (sample,) = self._client.sample(
                STATISTICS, 1, emit_timesteps=False, unpack_as_table_signature=True
            )
            yield sample.info.key, sample.data | {"episodes": sample.data["episodes"][:-1]}
            self._client.mutate_priorities(STATISTICS, deletes=[sample.info.key])

    def publish(self, step: int, data: np.ndarray) -> None:
        """Replaces the weights; `data` is uint8 [bytes], see `agents.storage.weights`."""
        writer = self._client.trajectory_writer(num_keep_alive_refs=1)
        try:
            writer.append({"step": np.int64(step), "data": data})
            history = writer.history
            writer.create_item(WEIGHTS, 1.0, {name: history[name][-1] for name in ("step", "data")})
            self._flush(writer)
        finally:
            writer.close()

    def weights(self, newer_than: int = -1) -> tuple[int, np.ndarray] | None:
        """The newest weights as `publish` got them; None if there are none of a later step, never waits for them.

        Raises:
          reverb.errors.ReverbError: the server is gone.
        """
        info = self._info(WEIGHTS)
        if info.current_size == 0:
            return None
        inserted = info.rate_limiter_info.insert_stats.completed
        if inserted == self._weights_seen:
            return None
        (sample,) = self._client.sample(WEIGHTS, 1, emit_timesteps=False, unpack_as_table_signature=True)
        self._weights_seen = inserted
        step = int(sample.data["step"])
        return (step, sample.data["data"]) if step > newer_than else None

    def checkpoint(self) -> str:
        """Writes a checkpoint through the checkpointer; returns its folder.

        Raises:
          OSError: the disk does not take it.
        """
        try:
            return self._client.checkpoint()
        except IndexError as error:  # what Reverb makes of a full disk
            raise OSError(str(error)) from error

    def end_waits(self) -> None:
        """Lets datasets end and writers that wait raise `ReplayStopped`; from any thread."""
        self._stopping.set()
        self._stopped.assign(True)

    def stop(self) -> None:
        """Ends datasets and waiting writers, then the server if it is ours. May be called again."""
        if self._closed:
            return
        self._closed = True
        self.end_waits()
        if self._has_dataset:
            # A draw that is cut off by the server's end is an error, one that finds out by itself is not.
            time.sleep(1.5 * _POLL_MS / 1000)
        self._reports.close()
        if self._server is not None:
            self._server.stop()

    @property
    def _state_sizes(self) -> list[int]:
        return [spec.shape.num_elements() for spec in tf.nest.flatten(self._state_spec)]

    def _limiter(self) -> schema_pb2.RateLimiterInfo:
        return self._info(SEQUENCES).rate_limiter_info

    def _info(self, table: str) -> schema_pb2.TableInfo:
        infos = map(schema_pb2.TableInfo.FromString, self._counters.ServerInfo(_SERVER_SECONDS))
        return next(info for info in infos if info.name == table)

    def _flush(self, writer: reverb.TrajectoryWriter) -> None:
        """Waits until the server has every item of `writer`."""
        end = time.monotonic() + self._patience
        while True:
            try:
                return writer.flush(timeout_ms=_POLL_MS)
            except reverb.errors.DeadlineExceededError:
                if self._stopping.is_set():
                    raise ReplayStopped("The replay was stopped; what was being written is lost") from None
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"Nobody took anything out of the replay for {self._patience:g} s: it has "
                        f"{self.inserted} insertions and {self.sampled} samples. Is the learner alive? "
                        "If one thread both collects and learns, raise Replay.error_buffer or collect "
                        "fewer steps per round"
                    ) from None

    def _unpack(self, sample: reverb.ReplaySample) -> tuple[Sequence, reverb.SampleInfo]:
        info, data = sample
        rows = self._shape.rows
        observation = data["observation"]
        if self._compression:
            observation = decompress_batch(observation, self._shape.block, self._observation_spec)
        scalars = tf.unstack(tf.reshape(data["scalars"], (-1, rows, len(SCALARS))), axis=-1)
        steps = Steps(
            observation=tf.reshape(observation, (-1, rows, *self._observation_spec.shape)),
            **dict(zip(SCALARS, scalars, strict=True)),
        )
        steps = steps._replace(
            step_type=tf.cast(steps.step_type, tf.int32),
            previous_action=tf.cast(steps.previous_action, tf.int32),
        )
        core_state = tf.nest.pack_sequence_as(
            self._state_spec, tf.split(data["core_state"], self._state_sizes, axis=-1)
        )
        probability = tf.cast(info.probability, tf.float32)
        if self.sampler == "fifo":
            # Reverb says 1, the importance of each sequence would then depend on the table's size at its
            # draw.
            probability = tf.zeros_like(probability)
        return Sequence(steps, core_state, probability, info.table_size), info

    def _check_settings(self, wanted: dict[str, dict[str, Any]]) -> None:
        """A checkpoint brings its own settings, which Reverb prefers to new ones without a word."""
        infos = self._client.server_info()
        for name, now in wanted.items():
            then = settings(infos[name])
            different = [setting for setting in then if then[setting] != now[setting]]
            if different:
                listed = "; ".join(f"{key}: {then[key]} then, {now[key]} now" for key in different)
                if self._server is None:
                    raise ValueError(
                        f"The replay server at {self.address} has other settings of its {name} ({listed})"
                    )
                self._server.stop()
                raise ValueError(
                    f"The replay's checkpoint was written with other settings of its {name} ({listed}). "
                    "Repeat the settings of SequenceShape, Replay and the network that it was written with, "
                    "or start without it"
                )


def _check_free(port: int) -> None:
    try:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("", port))
    except OSError as error:
        raise ValueError(
            f"Replay.port = {port} cannot be had: {error.strerror}. Write another one, or None for any that is free"
        ) from error


def _reach_directly(host: str) -> None:
    """Keeps gRPC from sending its calls through an HTTP proxy, where they would wait for ever."""
    # It reads these names in lower case alone.
    spared = (os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or "").split(",")  # noqa: SIM112
    os.environ["no_grpc_proxy"] = ",".join(filter(None, dict.fromkeys([*spared, host])))  # noqa: SIM112
