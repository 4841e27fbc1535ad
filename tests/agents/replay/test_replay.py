"""Either replay, with the real thing behind it: what goes in comes out, at the ratio that was asked for."""

import math
import pathlib
import time

import numpy as np
import pytest
import tensorflow as tf

from agents.replay import memory as replay_memory
from agents.replay.compression import level_for
from agents.replay.replay import LOCAL, REVERB, StatisticsReport
from agents.replay.windows import Block
from agents.storage.checkpoint import ReplayFolders
from agents.storage.state import from_bytes, to_bytes
from agents.targets import SequenceShape, Steps
from rbs_tf import ReturnMoments
from tests.agents.queue import drained
from tests.agents.replay.streams import HEADS, OBSERVATION, SHAPE, STATE, Stream, first_rows, replay_class


@pytest.mark.parametrize("compression", [None, 3])
def test_a_sequence_comes_out_as_it_went_in(make, compression):
    replay = make(sampler="fifo", compression=compression)
    Stream(replay).insert(3)
    sequence, info = next(iter(replay.dataset(batch_size=3)))
    t = np.arange(8) + 2 * np.arange(3)[:, None]
    steps = sequence.steps
    assert [tuple(column.shape) for column in steps] == [(3, 8), (3, 8, 3), (3, 8), (3, 8), (3, 8)]
    assert [column.dtype for column in steps] == [tf.int32, tf.uint8, tf.int32, tf.float32, tf.float32]
    np.testing.assert_array_equal(steps.step_type, t % 3)
    np.testing.assert_array_equal(steps.observation, np.repeat(t[..., None], 3, axis=2))
    np.testing.assert_array_equal(steps.previous_action, t - 1)
    np.testing.assert_array_equal(steps.reward, np.float32(t * 0.1 + 1e7))
    np.testing.assert_array_equal(steps.discount, t % 2)
    np.testing.assert_array_equal(sequence.core_state[0], np.repeat(t[:, :1], 2, axis=1))
    np.testing.assert_array_equal(sequence.core_state[1], -np.repeat(t[:, :1], 2, axis=1))
    assert info.key.shape == info.priority.shape == sequence.probability.shape == (3,)
    assert sequence.probability.dtype == tf.float32 and sequence.table_size.dtype == tf.int64


@pytest.mark.parametrize(("ratio", "times"), [(1.0, 1), (2.0, 2), (1.5, 2)])
def test_fifo_hands_out_each_sequence_ratio_times_in_order(make, ratio, times):
    replay = make(sampler="fifo", replay_ratio=ratio)
    Stream(replay).insert(8)
    batches = iter(replay.dataset(batch_size=2))
    drawn = [row for _ in range(2) for row in first_rows(next(batches)[0])]
    assert drawn == [2 * (k // times) for k in range(4)]


def test_a_fifo_draw_has_no_probability(make):
    replay = make(sampler="fifo")
    Stream(replay).insert(2)
    assert next(iter(replay.dataset(2)))[0].probability.numpy().tolist() == [0.0, 0.0]


def test_probabilities_follow_priorities_to_the_power_of_the_exponent(make):
    replay = make(priority_exponent=0.5)
    stream = Stream(replay)
    stream.insert(1, priority=1.0)
    stream.insert(1, priority=9.0)
    sequence, info = next(iter(replay.dataset(batch_size=20)))
    expected = np.where(info.priority.numpy() == 9.0, 0.75, 0.25)
    np.testing.assert_allclose(sequence.probability, expected, rtol=1e-6)
    assert set(first_rows(sequence)) <= {0, 2} and sequence.table_size.numpy().tolist() == [2] * 20


def test_new_priorities_count_in_the_next_draw(make):
    replay = make(priority_exponent=1.0)
    Stream(replay).insert(4)
    batches = iter(replay.dataset(batch_size=16))
    sequence, info = next(batches)
    chosen = first_rows(sequence)[0]
    priorities = tf.cast(sequence.steps.observation[:, 0, 0] == chosen, tf.float32)
    tf.function(replay.update_priorities)(info.key, priorities)
    remaining = {0, 2, 4, 6} - set(first_rows(sequence)) | {chosen}
    assert set(first_rows(next(batches)[0])) <= remaining
    replay.update_priorities(info.key, 1.0 - priorities)
    assert chosen not in first_rows(next(batches)[0])


def test_a_priority_of_zero_is_drawn_only_where_all_are(make):
    replay = make(priority_exponent=0.0)
    stream = Stream(replay)
    stream.insert(3, priority=0.0)
    sequence, _ = next(iter(replay.dataset(batch_size=40)))
    assert set(first_rows(sequence)) == {0, 2, 4}
    np.testing.assert_allclose(sequence.probability, 1 / 3, rtol=1e-6)
    stream.insert(1, priority=2.0)
    sequence, _ = next(iter(replay.dataset(batch_size=10)))
    assert set(first_rows(sequence)) == {6} and sequence.probability.numpy().tolist() == [1.0] * 10


def test_keys_of_sequences_that_have_left_are_skipped(make):
    replay = make(capacity=10)
    stream = Stream(replay)
    stream.insert(5)
    _, info = next(iter(replay.dataset(batch_size=20)))
    stream.insert(5, priority=3.0)
    replay.update_priorities(info.key, tf.zeros(20))
    _, info = next(iter(replay.dataset(batch_size=20)))
    assert info.priority.numpy().tolist() == [3.0] * 20


def test_batches_end_when_the_replay_is_stopped(make):
    replay = make()
    Stream(replay).insert(2)
    batches = iter(replay.dataset(batch_size=1))
    next(batches)
    replay.stop()
    assert list(batches) == []


def test_the_oldest_sequences_leave_a_full_table(make):
    replay = make(capacity=10, sampler="uniform")
    Stream(replay).insert(8)
    sequence, _ = next(iter(replay.dataset(batch_size=40)))
    assert replay.size == 5 and set(first_rows(sequence)) <= {6, 8, 10, 12, 14}


def test_updates_come_due_with_insertions_at_the_replay_ratio(make):
    replay = make(min_sequences=3, replay_ratio=2.0)
    stream = Stream(replay)
    due = []
    for _ in range(6):
        stream.insert(1)
        due.append([updates for updates in range(4) if replay.updates_due(updates, batch_size=3)])
    assert due == [[], [], [], [], [0], [0, 1]]


def test_one_thread_that_keeps_to_what_is_due_never_waits(make):
    replay = make(min_sequences=3, replay_ratio=2.0, error_buffer=6.0, patience=0.0)
    stream, batches, updates = Stream(replay), iter(replay.dataset(batch_size=3)), 0
    for _ in range(30):
        stream.insert(1)
        while replay.updates_due(updates, 3):
            next(batches)
            updates += 1
    assert (replay.inserted, replay.sampled, updates) == (30, 54, 18)


def test_updates_come_due_with_environment_steps_whatever_is_inserted(make):
    replay = make(min_sequences=3, replay_ratio=1.0, error_buffer=math.inf, patience=0.0)
    stream, batches = Stream(replay), iter(replay.dataset(batch_size=3))

    def due(steps):
        return [updates for updates in range(9) if replay.updates_due_by_steps(updates, steps, 1.5)]

    stream.insert(2)
    assert due(100) == []
    stream.insert(1)
    # Counted from step 3 x 2, and caught up with.
    assert [due(steps) for steps in (0, 6, 7, 8, 9, 11)] == [[], [], [], [0], [0, 1], [0, 1, 2]]
    for _ in range(20):
        next(batches)
    stream.insert(90)
    assert due(11) == [0, 1, 2] and replay.sampled == 60


def test_reading_ahead_draws_no_more_than_told(make):
    replay = make(read_ahead=2)
    Stream(replay).insert(40)
    batches = iter(replay.dataset(batch_size=4))
    next(batches)
    while replay.sampled < 12:
        time.sleep(0.01)
    time.sleep(0.1)
    assert replay.sampled == 12  # one batch in use, two waiting


def test_reading_further_ahead_than_the_ratio_tolerates_is_refused(make):
    with pytest.raises(ValueError, match="Replay.error_buffer = 60 or more"):
        make(read_ahead=2).dataset(batch_size=20)


def test_a_writer_that_nobody_reads_from_gives_up_and_says_why(make):
    replay = make(error_buffer=2.0, patience=0.5)
    with pytest.raises(TimeoutError, match="3 insertions and 0 samples.*error_buffer"):
        Stream(replay).insert(20)


@pytest.mark.parametrize("priority", [math.nan, math.inf, -1.0])
def test_a_priority_that_no_draw_could_use_is_refused(make, priority):
    with pytest.raises(FloatingPointError, match="finite"):
        Stream(make()).insert(1, priority)


NEEDS = {"n_step": ReturnMoments}


def report_of(value: float, episodes: int) -> StatisticsReport:
    shapes = {"moments": (8, HEADS), "n_step": (8, HEADS), "episodes": (episodes, 4)}
    return {
        name: value * (index + np.arange(np.prod(shape)).reshape(shape))
        for index, (name, shape) in enumerate(shapes.items(), start=1)
    }


def test_statistics_leave_the_queue_in_order_and_once(make):
    replay = make(needs=NEEDS)
    reports = [
        report_of(value, episodes)
        for value, episodes in ((1.0 / 3.0, 0), (2.0, 2), (3.0, 1), (4.0, 0), (5.0, 300))
    ]
    assert drained(replay) == []
    for report in reports:
        replay.put_statistics(report)
    found = drained(replay)
    assert len(found) == 5 and drained(replay) == []
    for report, got in zip(reports, found, strict=True):
        assert got.keys() == report.keys()
        for name, values in report.items():
            np.testing.assert_array_equal(got[name], values, strict=True, err_msg=name)


def emptied(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("compression", [0, 3])
def test_a_checkpoint_brings_everything_back(make, tmp_path, compression):
    settings = {"sampler": "fifo", "replay_ratio": 2.0, "compression": compression, "needs": NEEDS}
    replay = make(folders=ReplayFolders(tmp_path, None), **settings)
    Stream(replay).insert(6)
    next(iter(replay.dataset(4)))
    replay.put_statistics(report_of(1.0, 1))
    saved = pathlib.Path(replay.checkpoint())
    replay.stop()

    resumed = make(folders=ReplayFolders(emptied(tmp_path / "next"), saved), **settings)
    assert (resumed.size, resumed.inserted, resumed.sampled) == (4, 6, 4)
    assert len(drained(resumed)) == 1
    assert first_rows(next(iter(resumed.dataset(4)))[0]) == [4, 4, 6, 6]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"replay_ratio": 4.0}, "replay_ratio: 1.0 then, 4.0 now"),
        ({"capacity": 300}, "capacity in sequences: 100 then, 150 now"),
        ({"min_sequences": 2}, "min_sequences: 1 then, 2 now"),
        ({"error_buffer": 60.0}, "error_buffer"),
        ({"sampler": "uniform"}, "sampler"),
        ({"compression": 3}, "signature"),
        ({"priority_exponent": 0.6}, "sampler: .*0.9.* then, .*0.6.* now"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(make, tmp_path, settings, words):
    replay = make(folders=ReplayFolders(tmp_path, None))
    saved = pathlib.Path(replay.checkpoint())
    replay.stop()
    with pytest.raises(ValueError, match=words):
        make(folders=ReplayFolders(emptied(tmp_path / "next"), saved), **settings)


def test_a_checkpoint_from_before_there_were_pieces_is_refused(make, tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr("agents.replay.replay.observation_column", lambda _: "observation")
        replay = make(compression=3, folders=ReplayFolders(tmp_path, None))
    saved = pathlib.Path(replay.checkpoint())
    replay.stop()
    with pytest.raises(ValueError, match="signature: .*'observation'.* then, .*'pieces'.* now"):
        make(compression=3, folders=ReplayFolders(emptied(tmp_path / "next"), saved))


def test_a_checkpoint_of_the_other_backend_is_refused_with_what_to_type(make, backend, tmp_path):
    pytest.importorskip("reverb")
    other = {REVERB: LOCAL, LOCAL: REVERB}[backend]
    settings = {"capacity": 200, "min_sequences": 1, "folders": ReplayFolders(tmp_path, None)}
    replay = replay_class(other)(SHAPE, OBSERVATION, STATE, HEADS, **settings)
    saved = pathlib.Path(replay.checkpoint())
    replay.stop()
    with pytest.raises(ValueError, match=f"the {other} replay.* has the {backend} one.*--replay={other}"):
        make(folders=ReplayFolders(emptied(tmp_path / "next"), saved))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"min_sequences": 101}, "a number from 1 to 100"),
        ({"replay_ratio": 0.0}, "must be positive"),
        ({"replay_ratio": 8.0, "error_buffer": 7.0}, "at least as large"),
        ({"capacity": 4_000_000_000_000}, "Lower Replay.capacity"),
        ({"compression": 10}, "from 1 to 9, 0 for none"),
    ],
)
def test_impossible_settings_are_refused(make, settings, words):
    with pytest.raises(ValueError, match=words):
        make(**settings)


def test_compression_halves_the_papers_replay():
    frames, state = tf.TensorSpec((210, 160, 3), tf.uint8), (tf.TensorSpec((512,), tf.float32),) * 2
    for compression, row in ((3, 2_400), (0, 5_700)):
        estimate = replay_memory.estimate_memory(frames, state, SequenceShape(), 4_000_000, compression)
        assert estimate == 4_000_000 * row + 100_000 * (4_096 + 1_000)


def test_small_pictures_count_as_compressed_and_none_as_larger_than_they_are():
    frames, shape = tf.TensorSpec((84, 84, 2), tf.uint8), SequenceShape(5, 20, 20, 5)
    estimates = [replay_memory.estimate_memory(frames, (), shape, 200_000, level) for level in (3, 0)]
    raw = 200_000 * frames.shape.num_elements()
    assert raw / 8 < estimates[0] < estimates[1] < raw / 3
    same = tf.TensorSpec((41, 84, 2), tf.uint8), tf.TensorSpec((84, 84, 2), tf.float32)
    for spec in same:  # too small, and no pixels
        size = spec.shape.num_elements() * spec.dtype.size
        assert replay_memory.estimate_memory(spec, (), shape, 20) == 20 * (size + 166) + 1_000


def test_large_images_alone_are_compressed_unasked():
    frames, flags = tf.TensorSpec((210, 160, 3), tf.uint8), tf.TensorSpec((10, 10, 6), tf.uint8)
    vectors = tf.TensorSpec((20_000,), tf.float32)
    assert [level_for(spec, None) for spec in (frames, flags, vectors)] == [3, 0, 0]
    assert level_for(flags, 9) == 9 and level_for(frames, 0) == 0


def test_other_observations_count_uncompressed():
    grid = tf.TensorSpec((10, 10, 6), tf.uint8)
    assert replay_memory.estimate_memory(grid, (), SHAPE, 100) == 100 * (600 + 166) + 50 * 1_000


def machine(folder: pathlib.Path, groups: str, files: dict[str, str]) -> pathlib.Path:
    for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1000 kB\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "proc/self").mkdir(exist_ok=True)
    (folder / "proc/self/cgroup").write_text(groups)
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "available"),
    [
        ("", {}, 1_024_000),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "max"}, 1_024_000),
        (
            "0::/job/step\n",
            {
                "sys/fs/cgroup/job/memory.max": "5000\n",
                "sys/fs/cgroup/job/memory.current": "3000\n",
                "sys/fs/cgroup/job/memory.stat": "anon 2500\ninactive_file 500\n",
            },
            2_500,
        ),
        (
            "3:cpu:/\n9:memory:/\n",
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
            },
            6_000,
        ),
    ],
)
def test_available_memory_is_what_the_tightest_limit_leaves(tmp_path, groups, files, available):
    assert replay_memory.available_memory(machine(tmp_path, groups, files)) == available


@pytest.mark.parametrize("appended", [0, 1, 3, 7, 8])
@pytest.mark.parametrize("compression", [0, 3])
def test_a_writer_goes_on_where_another_was_and_inserts_nothing_twice(make, appended, compression):
    """Windows refer to blocks that the first writer had appended; observations and core states come from there."""
    tables = []
    for handed_over in (False, True):
        replay = make(sampler="fifo", compression=compression)
        stream = Stream(replay)
        for block in range(12):
            if handed_over and block == appended:
                stream.writer.flush()  # as collectors do at the end of every round
                state = from_bytes(to_bytes(stream.writer.state()))
                stream.writer.close()
                stream.writer = replay.writer()
                stream.writer.restore(state)
                assert len(state["starts"]) == min(appended, SHAPE.blocks - 1)
            stream.append()
            if stream.row >= SHAPE.rows:
                stream.writer.insert(1.0)
        stream.writer.flush()
        assert replay.size == 9
        tables.append(next(iter(replay.dataset(batch_size=9)))[0])
    for a, b in zip(*map(tf.nest.flatten, tables), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_writer_keeps_nothing_from_before_the_first_start_of_a_window_to_come(backend):
    """Blocks of one row: a window starts at every second of them."""
    shape = SequenceShape(burn_in=1, length=4, period=2, n_step=2)
    settings = {"capacity": 200, "min_sequences": 1, "error_buffer": 50.0}
    replay = replay_class(backend)(shape, OBSERVATION, STATE, HEADS, **settings)
    writer = replay.writer()
    steps = Steps(np.ones(1), np.zeros((1, 3), np.uint8), *np.zeros((3, 1)))
    for block in range(10):
        writer.append(Block(steps, (np.zeros(2, np.float32),) * 2 if block % 2 == 0 else None))
    state = writer.state()
    assert state["starts"].tolist() == [True, False] * 3 and state["core_state"].shape == (3, 4)
    writer.append(Block(steps, (np.zeros(2, np.float32),) * 2))
    assert writer.state()["starts"].tolist() == [True, False, True, False, True]
    writer.close()
    replay.stop()
