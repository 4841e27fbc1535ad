"""Either replay, with the real thing behind it: what goes in comes out, at the ratio that was asked for."""

import numpy as np
import pytest
import tensorflow as tf

from agents.errors import RunFolderError
from agents.replay import memory as replay_memory
from agents.replay.backends import REVERB
from agents.sequences import Packed, SequenceShape, unpack
from agents.settings import ReplaySettings
from tests.agents.replay.streams import OBSERVATION, SHAPE, Stream, drained, first_rows, report_of


@pytest.mark.parametrize("compression", [None, 3])
def test_a_sequence_comes_out_as_it_went_in(make, compression):
    replay = make(compression=compression)
    Stream(replay).insert(3)
    sequence, info = next(iter(replay.dataset(batch_size=20, packed=True)))
    assert isinstance(sequence.steps.observation, Packed) == bool(compression)
    sequence = unpack(sequence, OBSERVATION)
    starts = np.array(first_rows(sequence))
    assert set(starts) == {0, 2, 4}
    t = np.arange(8) + starts[:, None]
    steps = sequence.steps
    assert [tuple(column.shape) for column in steps] == [(20, 8), (20, 8, 3), (20, 8), (20, 8), (20, 8)]
    assert [column.dtype for column in steps] == [tf.int32, tf.uint8, tf.int32, tf.float32, tf.float32]
    np.testing.assert_array_equal(steps.step_type, t % 3)
    np.testing.assert_array_equal(steps.observation, np.repeat(t[..., None], 3, axis=2))
    np.testing.assert_array_equal(steps.previous_action, t - 1)
    np.testing.assert_array_equal(steps.reward, np.float32(t * 0.1 + 1e7))
    np.testing.assert_array_equal(steps.discount, t % 2)
    np.testing.assert_array_equal(sequence.core_state[0], np.repeat(t[:, :1], 2, axis=1))
    np.testing.assert_array_equal(sequence.core_state[1], -np.repeat(t[:, :1], 2, axis=1))
    np.testing.assert_allclose(sequence.probability, 1 / 3, rtol=1e-6)
    assert sequence.probability.dtype == tf.float32
    np.testing.assert_array_equal(sequence.table_size, np.full(20, 3, np.int64), strict=True)
    assert info.key.shape == info.priority.shape == (20,)


def test_probabilities_follow_priorities_to_the_power_of_the_exponent(make):
    replay = make(priority_exponent=0.5)
    stream = Stream(replay)
    stream.insert(1, priority=1.0)
    stream.insert(1, priority=9.0)
    sequence, info = next(iter(replay.dataset(batch_size=20)))
    expected = np.where(info.priority.numpy() == 9.0, 0.75, 0.25)
    np.testing.assert_allclose(sequence.probability, expected, rtol=1e-6)
    assert set(first_rows(sequence)) <= {0, 2}


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


def test_the_oldest_sequences_leave_a_full_table_and_their_keys_are_skipped(make):
    replay = make(capacity=10)
    stream = Stream(replay)
    stream.insert(5)
    _, info = next(iter(replay.dataset(batch_size=20)))
    stream.insert(5, priority=3.0)
    replay.update_priorities(info.key, tf.zeros(20))
    sequence, info = next(iter(replay.dataset(batch_size=20)))
    assert replay.size == 5 and set(first_rows(sequence)) <= {10, 12, 14, 16, 18}
    assert info.priority.numpy().tolist() == [3.0] * 20


def test_batches_end_when_the_replay_is_stopped(make):
    replay = make()
    Stream(replay).insert(2)
    batches = iter(replay.dataset(batch_size=1))
    next(batches)
    replay.stop()
    assert list(batches) == []


def test_updates_come_due_at_the_replay_ratio_and_one_thread_that_keeps_to_it_never_waits(make):
    replay = make(min_sequences=3, replay_ratio=2.0, error_buffer=6.0)
    stream, batches, made = Stream(replay), iter(replay.dataset(batch_size=3)), []
    for _ in range(30):
        stream.insert(1)
        made.append(made[-1] if made else 0)
        while replay.updates_due(made[-1], 3):
            assert replay.batch_due(3)
            next(batches)
            made[-1] += 1
        assert not replay.batch_due(3)
    assert made[:7] == [0, 0, 0, 0, 1, 2, 2] and made[-1] == 18
    assert (replay.inserted, replay.sampled) == (30, 54)


def test_a_tolerance_of_less_than_the_ratio_or_than_what_is_read_ahead_is_refused():
    for settings, needed in (({"replay_ratio": 8.0, "error_buffer": 7.0}, 8.0), ({"error_buffer": 5.0}, 6)):
        with pytest.raises(ValueError, match=f"Replay.error_buffer = {needed} or more"):
            ReplaySettings(**settings).check_buffer(read_ahead=2, batch_size=2)
    ReplaySettings(error_buffer=6.0).check_buffer(read_ahead=2, batch_size=2)


def test_reading_ahead_draws_no_more_than_told(make):
    replay = make(read_ahead=2)
    Stream(replay).insert(40)
    batches = iter(replay.dataset(batch_size=4))
    for used in range(1, 6):
        next(batches)
        while replay.sampled < 4 * (used + 2):  # one batch in use, two waiting
            pass
        assert replay.sampled == 4 * (used + 2)


def test_statistics_leave_the_queue_in_order_and_once(make):
    replay = make()
    reports = [report_of(value, episodes) for value, episodes in ((1 / 3, 0), (2.0, 2), (3.0, 1), (5.0, 300))]
    for report in reports:
        replay.put_statistics(report)
    for report, got in zip(reports, drained(replay), strict=True):
        assert got.keys() == report.keys()
        for name, values in report.items():
            np.testing.assert_array_equal(got[name], values, strict=True, err_msg=name)
    assert drained(replay) == []


def test_a_report_leaves_the_queue_when_the_next_is_asked_for_and_keeps_its_key(make, tmp_path):
    replay = make()
    for value in (1.0, 2.0):
        replay.put_statistics(report_of(value, 1))
    first, _ = next(replay.statistics())  # by a reader that died
    reports = replay.statistics()
    keys = [next(reports)[0] for _ in range(2)]
    assert keys[0] == first and len(set(keys)) == 2
    replay.checkpoint(tmp_path / "saved")
    replay.stop()
    resumed = make(saved=tmp_path / "saved")
    assert [key for key, _ in resumed.statistics()] == keys[1:]


def test_a_checkpoint_brings_everything_back(make, tmp_path):
    settings = {"replay_ratio": 2.0, "compression": 3}
    replay = make(**settings)
    stream = Stream(replay)
    stream.insert(5, priority=0.0)
    stream.insert(1, priority=7.0)
    next(iter(replay.dataset(4)))
    replay.put_statistics(report_of(1.0, 1))
    replay.checkpoint(tmp_path / "saved")
    replay.stop()

    resumed = make(saved=tmp_path / "saved", **settings)
    assert (resumed.size, resumed.inserted, resumed.sampled) == (6, 6, 4)
    assert len(drained(resumed)) == 1
    sequence, info = next(iter(resumed.dataset(4)))
    assert first_rows(sequence) == [10] * 4 and info.priority.numpy().tolist() == [7.0] * 4
    np.testing.assert_array_equal(sequence.steps.previous_action, np.tile(np.arange(9, 17), (4, 1)))
    np.testing.assert_array_equal(sequence.core_state[1], np.full((4, 2), -10.0))


def test_a_checkpoint_of_other_settings_is_refused(make, backend, tmp_path):
    cases = [
        ({"replay_ratio": 4.0}, "replay_ratio: 1.0 then, 4.0 now"),
        ({"capacity": 300}, "capacity in sequences: 100 then, 150 now"),
        ({"compression": 3}, "signature"),
        ({"priority_exponent": 0.6}, "(sampler|priority_exponent): .*0.9.* then, .*0.6.* now"),
    ]
    if backend == REVERB:
        cases.append(({"error_buffer": 60.0}, "error_buffer"))
    replay = make()
    replay.checkpoint(tmp_path / "saved")
    replay.stop()
    for settings, words in cases:
        with pytest.raises(ValueError, match=words):
            make(saved=tmp_path / "saved", **settings)


def test_a_checkpoint_that_cannot_be_read_is_refused(make, tmp_path):
    """In a sentence that names the run's checkpoint, not the replay's part of it."""
    replay = make()
    Stream(replay).insert(5)
    saved = tmp_path / "checkpoints/20/replay"
    saved.parent.mkdir(parents=True)
    replay.checkpoint(saved)
    replay.stop()
    for path in saved.iterdir():
        whole = path.read_bytes()
        if path.suffix in (".npy", ".json", ".npz", ".tfrecord"):
            path.write_bytes(bytes(len(whole)))  # Reverb takes a file that is cut off for a short one
            with pytest.raises(
                RunFolderError, match=rf"{tmp_path}/checkpoints/20 cannot be read .*--root_dir"
            ):
                make(saved=saved)
            path.write_bytes(whole)
    assert make(saved=saved).size == 5


def test_compression_halves_the_papers_replay_and_other_observations_count_in_full():
    frames, state = tf.TensorSpec((210, 160, 3), tf.uint8), (tf.TensorSpec((512,), tf.float32),) * 2
    for compression, row in ((3, 2_400), (0, 5_700)):
        estimate = replay_memory.estimate_memory(
            frames, state, SequenceShape(), 4_000_000, compression, REVERB
        )
        assert estimate == 4_000_000 * row + 100_000 * (4_096 + 1_000)
    uncompressed = replay_memory.estimate_memory(frames, (), SHAPE, 100, 0, "local")
    assert uncompressed == 100 * (100_800 + 16 + 450 // SHAPE.block) + 50 * 420


def test_small_pictures_count_as_compressed_and_none_as_larger_than_they_are():
    frames, shape = tf.TensorSpec((84, 84, 2), tf.uint8), SequenceShape(5, 20, 20, 5)
    estimates = [replay_memory.estimate_memory(frames, (), shape, 200_000, level, REVERB) for level in (3, 0)]
    raw = 200_000 * frames.shape.num_elements()
    assert raw / 8 < estimates[0] < estimates[1] < raw / 3
    same = tf.TensorSpec((41, 84, 2), tf.uint8), tf.TensorSpec((84, 84, 2), tf.float32)
    for spec in same:  # too small, and no pixels
        size = spec.shape.num_elements() * spec.dtype.size
        assert replay_memory.estimate_memory(spec, (), shape, 20, 0, REVERB) == 20 * (size + 166) + 1_000


@pytest.mark.parametrize("free", [1.95e6, 999e6, 2.2e9])
def test_a_capacity_that_is_told_would_fit(monkeypatch, free):
    monkeypatch.setattr(replay_memory, "available_memory", lambda: free)
    with pytest.raises(ValueError, match="Lower Replay.capacity") as refused:
        replay_memory.check_memory(4_000_000_000, 4_000_000, 20)
    fits = int(str(refused.value).split()[-3])
    assert 0.4 * free < 1000 * fits < free
    assert replay_memory.check_memory(1000 * fits, fits, 20)


def test_available_memory_is_what_the_tightest_limit_leaves(tmp_path):
    def available(groups, **files):
        machine = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1000 kB\n", "proc/self/cgroup": groups}
        for name, text in (
            machine | {f"sys/fs/cgroup/job/memory.{what}": text for what, text in files.items()}
        ).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return replay_memory.available_memory(tmp_path)

    assert available("") == available("3:cpu:/\n0::/job\n", max="max") == 1_024_000
    limits = {"max": "5000\n", "current": "3000\n", "stat": "anon 2500\ninactive_file 500\n"}
    assert available("0::/job/step\n", **limits) == 2_500
