"""The log of drained statistics: nothing counts twice, nothing that was written is lost."""

import numpy as np
import pytest

from agents.errors import RunFolderError
from agents.storage import statistics_log
from agents.storage.statistics_log import StatisticsLog

REPORTS = {
    7: {"moments": np.arange(6.0).reshape(2, 3), "episodes": np.zeros((0, 4))},
    2**64 - 1: {"moments": np.full((2, 3), 1 / 3), "episodes": np.ones((5, 4))},
    8: {"moments": np.full((2, 3), -1e300), "episodes": np.ones((1, 4))},
}


def written(folder, keys=REPORTS):
    log = StatisticsLog(folder)
    append(log, *keys)
    return log


def append(log, *keys):
    for key in keys:
        log.append(key, REPORTS[key])


def checkpoint(log, step, oldest=0):
    """What a checkpoint does; returns what it remembers."""
    position = log.begin_file(step)
    log.forget_saved(oldest)
    return position


def assert_kept(log, *keys):
    kept = list(log.reports())
    assert len(kept) == len(keys) and log.keys == set(keys)
    for report, key in zip(kept, keys, strict=True):
        assert report.keys() == REPORTS[key].keys()
        for name, expected in REPORTS[key].items():
            np.testing.assert_array_equal(report[name], expected, strict=True)


def test_reports_come_back_bit_for_bit(tmp_path):
    log = written(tmp_path)
    assert_kept(StatisticsLog(tmp_path), *REPORTS)
    append(log, 7)
    assert log.keys == set(REPORTS)


def test_falling_back_to_an_older_checkpoint(tmp_path):
    log = written(tmp_path, [7])
    older = checkpoint(log, 100)
    append(log, 8)
    newer = log.begin_file(200)
    assert log.keys == {8}  # until it is written
    log.forget_saved(oldest=100)
    append(log, 2**64 - 1)
    assert log.keys == {2**64 - 1}
    assert_kept(StatisticsLog(tmp_path, newer), 2**64 - 1)
    fallen_back = StatisticsLog(tmp_path, older)
    assert_kept(fallen_back, 8, 2**64 - 1)
    # It goes on, and reaches the step of the checkpoint that was damaged.
    again = checkpoint(fallen_back, 200, oldest=100)
    append(fallen_back, 7)
    assert_kept(StatisticsLog(tmp_path, again), 7)


def test_files_are_read_in_order(tmp_path):
    log = written(tmp_path, [])
    for step in (9, 10):
        append(log, 8)
        for _ in range(6):
            log.begin_file(step)
        append(log, 7)
    assert_kept(StatisticsLog(tmp_path), 8, 7, 8, 7)


def names(folder):
    return sorted(path.name for path in (folder / "statistics").iterdir())


def test_old_files_are_deleted_and_others_left(tmp_path):
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "notes.tfrecord").write_text("mine")
    log = written(tmp_path, [7])
    for step in (100, 200, 300):
        append(log, 8)
        checkpoint(log, step, oldest=step - 100)
    assert names(tmp_path) == ["200-2.tfrecord", "300-3.tfrecord", "notes.tfrecord"]
    statistics_log.forget_after(tmp_path, (200, 3))
    assert names(tmp_path) == ["200-2.tfrecord", "notes.tfrecord"]
    statistics_log.forget_after(tmp_path, (0, 0))
    assert names(tmp_path) == ["notes.tfrecord"]


def keys_read(path):
    return [key for key, _ in statistics_log._read(path)]


def test_a_record_that_was_cut_off_is_dropped(tmp_path):
    log, path = written(tmp_path, [7, 2**64 - 1]), tmp_path / "statistics/0-0.tfrecord"
    end = path.stat().st_size
    append(log, 8)
    whole = path.read_bytes()
    for cut in (1, 11, 12, 40, len(whole) - end - 1):  # within the length, its checksum, the report, its own
        path.write_bytes(whole[: end + cut])
        assert keys_read(path) == [7, 2**64 - 1]
    append(StatisticsLog(tmp_path), 8)
    assert_kept(StatisticsLog(tmp_path), *REPORTS)


def test_a_full_disk_is_said_before_a_report_counts(tmp_path):
    log = StatisticsLog(tmp_path)
    log._writer = statistics_log.tf.io.TFRecordWriter("/dev/full")
    with pytest.raises(RunFolderError, match=f"Cannot write to {tmp_path}/statistics: .*No space left"):
        append(log, 7)
    assert not log.keys
