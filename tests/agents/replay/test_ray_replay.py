"""What only Ray's replay has: rounds that come in calls, of many collectors at a time, and wait in a line."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("ray")

from agents.replay.backends import RAY  # noqa: E402
from agents.replay.local_replay import LocalReplay  # noqa: E402
from agents.replay.replay import ReplayStopped  # noqa: E402
from agents.settings import ReplaySettings
from tests.agents.replay.streams import (  # noqa: E402
    HEADS,
    Stream,
    drained,
    report_of,
    whole_table,
)

pytestmark = pytest.mark.parametrize("backend", [RAY], indirect=True)


class Collector(Stream):
    """One environment's stream, written by a client of its own, in rounds."""

    def __init__(self, table):
        self.client = table.another_client()
        super().__init__(self.client, rounds=False)

    def end_round(self, windows, report=1.0):
        self.client.put_statistics(report_of(report, 1))
        self.insert(windows)
        self.client.end_round()


def assert_same_tables(one, other):
    for ours, theirs in zip(*(tf.nest.flatten(whole_table(table)) for table in (one, other)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("compression", [0, 3])
def test_rounds_of_several_environments_make_the_table_that_one_process_makes(make, compression):
    table = make(compression=compression)
    local = LocalReplay(table._layout, HEADS, ReplaySettings(capacity=200, min_sequences=1))
    client = table.another_client()
    ours, theirs = ([Stream(replay, rounds=False) for _ in range(2)] for replay in (client, local))
    for counts in ((3, 1), (0, 2), (0, 0), (2, 2)):
        for streams in (ours, theirs):
            for stream, count in zip(streams, counts, strict=True):
                stream.insert(count, priority=1.0 + count)
                # Blocks whose windows come in a later round; in the third no window begins.
                stream.append(starts_sequence=any(counts))
        client.end_round()
    assert table.size == local.size == 10
    assert_same_tables(table, local)


def test_a_call_that_is_sent_again_counts_once_whatever_was_lost(make):
    losses = [None, "answer", "call", "answer", "answer", None]
    for lost in (losses, [None] * len(losses)):
        table = make(losses=lost)
        collector = Collector(table)
        for value in (1.0, 2.0, 3.0):
            collector.end_round(2, value)
        collector.client.end_round()
        assert table.inserted == 6
        assert [report["moments"][0, 0] for report in drained(table)] == [1.0, 2.0, 3.0]


def test_rounds_of_several_collectors_are_told_apart(make):
    table = make()
    collectors = [Collector(table) for _ in range(3)]  # one may be the first, started again
    for collector in [*collectors, *collectors]:
        collector.end_round(1)
    assert len({key for key, _ in table.statistics()}) == table.inserted == 6
    rows = whole_table(table)[0].steps.observation[:, :, 0].astype(int)
    assert (np.diff(rows) == 1).all(), "the blocks of a window are of one stream"


def test_neither_side_runs_ahead_of_the_other_by_more_than_the_buffer(make):
    table = make(error_buffer=4.0, min_sequences=2, replay_ratio=2.0)
    collector, rounds = Collector(table), []
    writing = threading.Thread(target=lambda: rounds.extend(collector.end_round(10) for _ in range(2)))
    batches, drawing = iter(table.dataset(batch_size=2)), []
    writing.start()
    for _ in range(16):
        while table.inserted < 4 + len(drawing):
            pass
        assert table.inserted == 4 + len(drawing)  # min_sequences, and the buffer of two insertions
        drawing.append(next(batches))
    writing.join()
    assert (table.inserted, table.sampled) == (20, 32)
    # What is drawn ahead is as much: 2 x (20 - 2) samples are due, and 4 more come without waiting.
    for _ in range(4):
        next(batches)
    waiting = threading.Thread(target=lambda: drawing.append(next(batches)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive() and table.sampled == 40
    Collector(table).end_round(1)
    waiting.join()
    assert table.sampled == 42 and set(drawing[-1][0].table_size.numpy()) == {21}


def test_stopping_ends_waiting_readers_and_writers_and_lets_nothing_in(make):
    table, empty = make(error_buffer=2.0, min_sequences=2), make(min_sequences=2)
    collector = Collector(table)
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(collector.end_round, 20)
        reading = threads.submit(next, iter(empty.dataset(batch_size=2)))
        while table.inserted < 4 or not empty._lock._waiters:
            pass
        table.stop()
        empty.end_waits()
        collector.client.end_waits()
        with pytest.raises(ReplayStopped):
            writing.result()
        with pytest.raises(tf.errors.OpError, match="was stopped"):
            reading.result()
    assert table.inserted == 4


def test_weights_are_fetched_once_for_every_step(make):
    table = make()
    client = table.another_client()
    assert client.weights() is None
    for step in (0, 7):
        table.publish(step, np.arange(step + 1, dtype=np.uint8))
        found, data = client.weights(newer_than=step - 1)
        assert found == step and data.tolist() == list(range(step + 1))
        assert client.weights(newer_than=step) is None
