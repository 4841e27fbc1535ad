"""Replay of sequences, a queue of statistics and the newest weights, in a Reverb server of this process or another.

Rows are appended in blocks, and a sequence refers to its blocks and to one core state: every column and every append
costs time.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from reverb.cc import schema_pb2

from agents.replay.blocks import Layout
from agents.replay.replay import (
    Drawn,
    Episode,
    Replay,
    ReplayStopped,
    StatisticsReport,
    Writer,
    check_same,
)
from agents.replay.rows import Rows
from agents.sequences import Sequence, SequenceShape
from agents.settings import ReplaySettings
from agents.storage.checkpoint import readable

_SEQUENCES, _STATISTICS, _WEIGHTS = "sequences", "statistics", "weights"  # tables
_POLL_MS = 200  # between two looks at whether the replay has been stopped
_SERVER_SECONDS = 60  # after which a server that does not answer counts as gone
_MOST_REPORTS = 1_000_000
_PATIENCE = 300.0  # seconds in which the server has to let a sequence of its own process in
_CHUNK_ROWS = 20  # Observations compress best together in about this many rows.


class ReverbReplay(Replay):
    """A Reverb server with a table of sequences, a queue of statistics and the newest weights; or a client of one.

    The server listens on all interfaces and knows no passwords: Reverb has no setting for either. Nothing but Reverb's
    tables is shared between clients, which may be in other processes and on other machines. Its random draws cannot be
    seeded.

    Beside the arguments of `Replay`:

    Args:
      address: "host:port" of a server that is there already, made with the same settings; None starts one.
      writes_to: folder where a server writes its checkpoints first, on the disk where they are to go; None: in /tmp.
      saved: the checkpoint that a server begins with; None: it begins empty.
    """

    def __init__(
        self,
        layout: Layout,
        num_heads: int,
        settings: ReplaySettings,
        address: str | None = None,
        writes_to: pathlib.Path | None = None,
        saved: pathlib.Path | None = None,
    ):
        super().__init__(layout, num_heads, settings)
        self._writers: list[SequenceWriter] = []
        self._stopping = threading.Event()
        self._weights_seen = -1
        _reach_directly((address or "localhost").rsplit(":", 1)[0])
        self._server: Any = None if address else self._start_server(writes_to, saved)
        self.address = address or f"localhost:{self._server.port}"
        self._client = reverb.Client(self.address)
        self._tf_client = reverb.TFClient(self.address)
        # `reverb.Client.server_info` also decodes the signatures of all tables, which takes far longer than to ask.
        self._counters = reverb.pybind.Client(self.address)

    def _start_server(self, writes_to: pathlib.Path | None, saved: pathlib.Path | None) -> reverb.Server:
        """A server; of a checkpoint with other settings a ValueError."""
        tables = self._tables()
        checkpointer = None
        wanted = {table.name: _settings(table.info) for table in tables}
        if writes_to is not None:
            # What a killed server has left here, Reverb would prefer to any other checkpoint.
            shutil.rmtree(writes_to, ignore_errors=True)
            writes_to.mkdir(parents=True)
            checkpointer = reverb.checkpointers.DefaultCheckpointer(
                str(writes_to), fallback_checkpoint_path=str(saved) if saved else None
            )
        with readable(saved.parent) if saved else contextlib.nullcontext():
            server = reverb.Server(tables, port=self._settings.port, checkpointer=checkpointer)
        # A checkpoint brings its own settings, which Reverb prefers to new ones without a word.
        found = reverb.Client(f"localhost:{server.port}").server_info()
        try:
            for name, now in wanted.items():
                check_same(_settings(found[name]), now, name)
        except ValueError:
            server.stop()
            raise
        return server

    @property
    def size(self) -> int:
        return self._info(_SEQUENCES).current_size

    @property
    def inserted(self) -> int:
        return self._info(_SEQUENCES).rate_limiter_info.insert_stats.completed

    @property
    def sampled(self) -> int:
        return self._info(_SEQUENCES).rate_limiter_info.sample_stats.completed

    def writer(self) -> SequenceWriter:
        self._writers.append(SequenceWriter(self._client, self._layout))
        return self._writers[-1]

    def _batches(self, draws: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        signature = self._layout.signature

        def draw(_: tf.Tensor) -> tf.data.Dataset:
            return reverb.TrajectoryDataset(
                self.address,
                _SEQUENCES,
                dtypes={name: spec.dtype for name, spec in signature.items()},
                shapes={name: spec.shape for name, spec in signature.items()},
                max_in_flight_samples_per_worker=batch_size,
                max_samples=batch_size,
                rate_limiter_timeout_ms=_POLL_MS,
            )

        def unpack(sample: reverb.ReplaySample) -> tuple[Sequence, Drawn]:
            info, data = sample
            sequence = self._layout.sequence(data, tf.cast(info.probability, tf.float32), info.table_size)
            return sequence, Drawn(info.key, info.priority)

        # A draw that times out ends early; the next one goes on with the same batch.
        return draws.flat_map(draw).batch(batch_size, drop_remainder=True).map(unpack)

    def update_priorities(self, keys: tf.Tensor, priorities: tf.Tensor) -> None:
        self._tf_client.update_priorities(_SEQUENCES, keys, tf.cast(priorities, tf.float64))

    def put_statistics(self, report: StatisticsReport) -> None:
        # Reverb has no empty columns: a row of nothing follows the episodes.
        episodes = np.vstack([report["episodes"], np.zeros(len(Episode._fields))])
        self._put(_STATISTICS, {"moments": report["moments"], "episodes": episodes})

    def statistics(self) -> Iterator[tuple[int, StatisticsReport]]:
        for _ in range(self._info(_STATISTICS).current_size):
            sample = self._oldest(_STATISTICS)
            yield sample.info.key, sample.data | {"episodes": sample.data["episodes"][:-1]}
            self._client.mutate_priorities(_STATISTICS, deletes=[sample.info.key])

    def publish(self, step: int, data: np.ndarray) -> None:
        """Replaces the weights; `data` is uint8 [bytes], see `agents.storage.weights`."""
        self._put(_WEIGHTS, {"step": np.int64(step), "data": data})

    def _put(self, table: str, columns: dict[str, Any]) -> None:
        """Appends one row to a table, and waits until it is there."""
        writer = self._client.trajectory_writer(num_keep_alive_refs=1)
        try:
            writer.append(columns)
            writer.create_item(table, 1.0, {name: writer.history[name][-1] for name in columns})
            self._flush(writer)
        finally:
            writer.close()

    def weights(self, newer_than: int = -1) -> tuple[int, np.ndarray] | None:
        """The newest weights as `publish` got them; None if there are none of a later step, never waits for them.

        Raises:
          reverb.errors.ReverbError: the server is gone.
        """
        info = self._info(_WEIGHTS)
        inserted = info.rate_limiter_info.insert_stats.completed
        if info.current_size == 0 or inserted == self._weights_seen:
            return None
        sample = self._oldest(_WEIGHTS)
        self._weights_seen = inserted
        step = int(sample.data["step"])
        return (step, sample.data["data"]) if step > newer_than else None

    def checkpoint(self, folder: pathlib.Path) -> None:
        try:
            os.rename(self._client.checkpoint(), folder)
        except (IndexError, reverb.errors.ReverbError) as error:  # Reverb makes an IndexError of a full disk
            raise OSError(str(error)) from error

    def end_waits(self) -> None:
        """Lets datasets end and writers that wait raise `ReplayStopped`; from any thread."""
        self._stopping.set()
        self._stopped.assign(True)

    def stop(self) -> None:
        self.end_waits()
        # Draws end by themselves within a poll; the server's end would make errors of them.
        time.sleep(1.5 * _POLL_MS / 1000)
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _tables(self) -> list[reverb.Table]:
        def make_queue(name: str, max_size: int, **signature: tf.TensorSpec) -> reverb.Table:
            fifo = reverb.selectors.Fifo
            limiter = reverb.rate_limiters.MinSize(1)
            return reverb.Table(name, fifo(), fifo(), max_size, limiter, signature=signature)

        sequences = reverb.Table(
            _SEQUENCES,
            reverb.selectors.Prioritized(self._settings.priority_exponent),
            reverb.selectors.Fifo(),
            self._max_size,
            reverb.rate_limiters.SampleToInsertRatio(
                self.replay_ratio, self.min_sequences, float(self._settings.error_buffer)
            ),
            signature=self._layout.signature,
        )
        # `Table.queue` would remove a report as it is read, and lose it if the reader died before using it.
        moments = tf.TensorSpec(self._moments_shape, tf.float64)
        episodes = tf.TensorSpec((None, len(Episode._fields)), tf.float64)
        statistics = make_queue(_STATISTICS, _MOST_REPORTS, moments=moments, episodes=episodes)
        step = tf.TensorSpec((), tf.int64)
        data = tf.TensorSpec((None,), tf.uint8)
        return [sequences, statistics, make_queue(_WEIGHTS, 1, step=step, data=data)]

    def _oldest(self, table: str) -> reverb.ReplaySample:
        (sample,) = self._client.sample(table, 1, emit_timesteps=False, unpack_as_table_signature=True)
        return sample

    def _info(self, table: str) -> schema_pb2.TableInfo:
        infos = map(schema_pb2.TableInfo.FromString, self._counters.ServerInfo(_SERVER_SECONDS))
        return next(info for info in infos if info.name == table)

    def end_round(self) -> None:
        """As `Intake.end_round`; for a learner in another process it waits as long as it takes."""
        for writer in self._writers:
            self._flush(writer)

    def _flush(self, writer: SequenceWriter | reverb.TrajectoryWriter) -> None:
        end = time.monotonic() + (_PATIENCE if self._server is not None else math.inf)
        while True:
            try:
                writer.flush(timeout_ms=_POLL_MS)
                return
            except reverb.errors.DeadlineExceededError:
                if self._stopping.is_set():
                    raise ReplayStopped from None
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"The replay lets nothing in before something is read: it has {self.inserted} insertions and "
                        f"{self.sampled} samples. Raise Replay.error_buffer, or collect fewer steps per round "
                        "(train.steps_per_round)"
                    ) from None


class SequenceWriter(Writer):
    """Appends blocks and inserts sequences of them; made by `ReverbReplay.writer`."""

    def __init__(self, client: reverb.Client, layout: Layout):
        self._layout = layout
        blocks = layout.shape.blocks
        self._writer = client.trajectory_writer(num_keep_alive_refs=blocks)
        for column in layout.signature:
            length = 1 if column == "core_state" else _chunk_blocks(layout.shape)
            self._writer.configure((column,), num_keep_alive_refs=blocks, max_chunk_length=length)

    def append(self, block: Rows, starts_sequence: bool, priority: float | None = None) -> None:
        stored = self._layout.block(block, starts_sequence)
        if self._layout.level:
            stored = stored._replace(observation=np.array(stored.observation, object))
        columns = zip(self._layout.signature, stored, strict=True)
        self._writer.append({name: column for name, column in columns if column is not None})
        if priority is not None:
            history = self._writer.history
            blocks = self._layout.shape.blocks
            sequence = {name: history[name][-blocks:] for name in (self._layout.observations, "scalars")}
            sequence["core_state"] = history["core_state"][-blocks]
            self._writer.create_item(_SEQUENCES, priority, sequence)

    def flush(self, timeout_ms: int) -> None:
        """Waits until the server has every sequence; a `DeadlineExceededError` of Reverb's after `timeout_ms`."""
        self._writer.flush(timeout_ms=timeout_ms)

    def close(self) -> None:
        self._writer.close()


def _chunk_blocks(shape: SequenceShape) -> int:
    """Blocks per chunk; it divides the sequences' distance, as inserting a sequence closes the open chunk."""
    distance = shape.period // shape.block
    return max(
        n for n in range(1, distance + 1) if distance % n == 0 and (n == 1 or n * shape.block <= _CHUNK_ROWS)
    )


def _settings(info: reverb.reverb_types.TableInfo) -> dict[str, Any]:
    """Settings of a table that a checkpoint would override."""
    limiter = info.rate_limiter_info
    return {
        "capacity in sequences": info.max_size,
        "replay_ratio": limiter.samples_per_insert,
        "min_sequences": limiter.min_size_to_sample,
        "error_buffer": (limiter.min_diff, limiter.max_diff),
        "sampler": str(info.sampler_options).replace("\n", " ").strip(),
        "signature": {name: (tuple(spec.shape), spec.dtype.name) for name, spec in info.signature.items()},
    }


def check_free(port: int) -> None:
    """Raises ValueError for a port that another program has."""
    try:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("", port))
    except OSError as error:
        raise ValueError(
            f"Replay.port = {port} cannot be had: {error.strerror}. Write another one, or None for any that is free"
        ) from error


def _reach_directly(host: str) -> None:
    """Keeps gRPC from sending its calls through an HTTP proxy, where they would wait forever."""
    # It reads these names in lower case only.
    spared = (os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or "").split(",")  # noqa: SIM112
    os.environ["no_grpc_proxy"] = ",".join(filter(None, dict.fromkeys([*spared, host])))  # noqa: SIM112
