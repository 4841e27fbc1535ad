"""The local table in the learner's process, and the way there for the others: calls of the learner's actor in Ray.

A collector hands over what a round has written in one call: statistics, and the blocks of all its environments, each
once. The table keeps the last blocks of every stream, which later sequences refer to. A call carries its writer's
random number and a counter, so that a call sent twice counts once. Calls never wait: sequences that the replay ratio
does not let in yet stand in a line, and their writer polls until it is empty.

Weights are put into Ray's object store once; every machine fetches them once, and its processes share that memory.
"""

from __future__ import annotations

import collections
import math
import secrets
import threading
from typing import Any

import numpy as np
import ray

from agents.replay.backends import CALLS
from agents.replay.blocks import Block, Layout, pack_blocks, unpack_blocks
from agents.replay.local_replay import LocalReplay
from agents.replay.replay import Intake, ReplayStopped, StatisticsReport, Writer
from agents.replay.rows import Rows
from agents.settings import ReplaySettings

_POLL = 0.2  # seconds: between two looks at whether the replay has been stopped
_SOON = 0.005  # seconds to wait for others at first


class RayTable(LocalReplay):
    """The table that others write into, and the newest weights. They call `write`, `count_waiting` and `weights`.

    Arguments are those of `LocalReplay`. A draw waits until there is enough, and neither side runs ahead of the other.
    """

    def __init__(self, layout: Layout, num_heads: int, settings: ReplaySettings, **options: Any):
        super().__init__(layout, num_heads, settings, **options)
        self._had: dict[int, int] = {}  # the last round's number by writer
        # The last blocks of every environment, by writer and number.
        self._streams: dict[tuple[int, int], collections.deque[Block]] = {}
        self._line: collections.deque[tuple[int, tuple[Block, ...], float]] = collections.deque()
        self._weights_of: tuple[int, list[Any]] | None = None

    def write(self, writer: int, number: int, report: StatisticsReport, round_: dict[str, np.ndarray]) -> int:
        """Takes a round of a collector, once, and answers as `count_waiting`.

        Args:
          writer: random number of its start.
          number: of the round, from 0 on.
          report: what the round adds to the statistics.
          round_: its blocks, see `RayClient.end_round`.
        """
        with self._lock:
            if number > self._had.get(writer, -1):
                self._had[writer] = number
                if report:
                    super().put_statistics(report)
                streams = round_["stream"].tolist()
                priorities = round_["priority"].tolist()
                for stream, priority, block in zip(streams, priorities, unpack_blocks(round_), strict=True):
                    empty: collections.deque[Block] = collections.deque(maxlen=self._layout.shape.blocks)
                    latest = self._streams.setdefault((writer, stream), empty)
                    latest.append(block)
                    if not math.isnan(priority):
                        self._line.append((writer, tuple(latest), priority))
                self._admit()
            return self.count_waiting(writer)

    def count_waiting(self, writer: int) -> int:
        """Counts the sequences of a writer that are not in the table yet."""
        with self._lock:
            return sum(owner == writer for owner, *_ in self._line)

    def publish(self, step: int, data: np.ndarray) -> None:
        """Replaces the weights; `data` is uint8 [bytes], see `agents.storage.weights`."""
        self._weights_of = step, [ray.put(data)]

    def weights(self, newer_than: int) -> tuple[int, list[Any]] | None:
        """Step and reference of the newest weights, if they are of a later one; in a list Ray leaves it a reference."""
        newest = self._weights_of
        return newest if newest is not None and newest[0] > newer_than else None

    def end_waits(self) -> None:
        """Lets datasets end and draws that wait raise `ReplayStopped`; from any thread."""
        self.stop()

    def _draw_batch(self, batch_size: int) -> list[np.ndarray]:
        drawn = super()._draw_batch(batch_size)
        with self._lock:
            self._admit()
        return drawn

    def _draw(self, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        def allowed() -> bool:
            left = self._samples_due(self.inserted, self.sampled + batch_size)
            return self.size >= self.min_sequences and left >= -self._settings.error_buffer

        self._lock.wait_for(lambda: self._closed or allowed())
        if self._closed:
            raise ReplayStopped
        return super()._draw(batch_size)

    def _admit(self) -> None:
        """Lets in those who stand in line, as far as insertions may be ahead."""

        def allowed() -> bool:
            return self._samples_due(self.inserted + 1, self.sampled) <= self._settings.error_buffer

        while self._line and not self._closed and allowed():
            _, sequence, priority = self._line.popleft()
            self._insert(sequence, priority)
        self._lock.notify_all()


class RayClient(Intake):
    """The way to the table of the learner's process.

    Args:
      layout: of the sequences.
      learner: Ray's handle of the process, which has `write`, `count_waiting` and `weights`.
    """

    def __init__(self, layout: Layout, learner: Any):
        self._layout, self._learner = layout, learner
        self._stopping = threading.Event()
        self._id = secrets.randbits(64)
        self._number = 0
        self._streams = 0
        self._report: StatisticsReport = {}
        # Since the last round: stream, priority or NaN, block.
        self._written: list[tuple[int, float, Block]] = []

    def writer(self) -> RayWriter:
        self._streams += 1
        return RayWriter(self._streams - 1, self._layout, self._written)

    def put_statistics(self, report: StatisticsReport) -> None:
        self._report = report

    def end_round(self) -> None:
        """Hands over the round, and waits until its sequences are in the table, as long as it takes.

        Beside the columns of `pack_blocks`, it has of each block the stream, and the priority of the sequence that ends
        with it, NaN without one.

        Raises:
          ReplayStopped: see `end_waits`.
          ray.exceptions.RayError: its process is gone.
        """
        parts = pack_blocks([block for *_, block in self._written])
        columns = {name: np.concatenate(of) for name, of in parts.items()}
        columns["stream"] = np.array([stream for stream, *_ in self._written], np.int32)
        columns["priority"] = np.array([priority for _, priority, _ in self._written])
        left = self._ask(self._learner.write, self._id, self._number, self._report, columns)
        self._written.clear()
        self._report = {}
        self._number += 1
        pause = _SOON
        while left:
            # In proportion to the wait: polling costs neither side much.
            if self._stopping.wait(pause):
                raise ReplayStopped
            pause = min(1.5 * pause, _POLL)
            left = self._ask(self._learner.count_waiting, self._id)

    def weights(self, newer_than: int = -1) -> tuple[int, np.ndarray] | None:
        """The newest weights as `RayTable.publish` got them; None if there are none of a later step.

        Raises what `end_round` does.
        """
        newest = self._ask(self._learner.weights, newer_than)
        return None if newest is None else (newest[0], self._wait_for(newest[1][0]))

    def end_waits(self) -> None:
        """Makes waiting calls raise `ReplayStopped`; from any thread."""
        self._stopping.set()

    def _ask(self, method: Any, *args: Any) -> Any:
        """Calls the table; again where the network has lost the call or the answer."""
        while True:
            try:
                return self._wait_for(method.options(concurrency_group=CALLS).remote(*args))
            except ray.exceptions.ActorUnavailableError:
                if self._stopping.wait(_POLL):
                    raise ReplayStopped from None

    def _wait_for(self, answer: Any) -> Any:
        while not ray.wait([answer], timeout=_POLL)[0]:
            if self._stopping.is_set():
                raise ReplayStopped
        return ray.get(answer)


class RayWriter(Writer):
    """Gathers the blocks of one environment; made by `RayClient.writer`."""

    def __init__(self, stream: int, layout: Layout, written: list[tuple[int, float, Block]]):
        self._stream = stream
        self._layout = layout
        self._written = written

    def append(self, block: Rows, starts_sequence: bool, priority: float | None = None) -> None:
        stored = self._layout.block(block, starts_sequence)
        self._written.append((self._stream, math.nan if priority is None else priority, stored))
