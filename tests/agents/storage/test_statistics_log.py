"""The log of drained statistics: nothing counts twice, nothing that was written is lost."""

import numpy as np
import pytest

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
    position = log.position
    log.saved(step, oldest)
    return position


def assert_kept(log, *keys):
    kept = list(log.kept())
    assert len(kept) == len(keys) and log.keys == set(keys)
    for report, key in zip(kept, keys, strict=True):
        assert report.keys() == REPORTS[key].keys()
        for name, expected in REPORTS[key].items():
            np.testing.assert_array_equal(report[name], expected, strict=True)


def test_reports_come_back_bit_for_bit_though_the_log_was_never_closed(tmp_path):
    log = written(tmp_path)
    assert_kept(StatisticsLog(tmp_path), *REPORTS)
    log.close()


def test_what_a_checkpoint_holds_does_not_come_back(tmp_path):
    log = written(tmp_path)
    position = checkpoint(log, 100)
    assert_kept(StatisticsLog(tmp_path, position))
    append(log, 8)
    assert_kept(StatisticsLog(tmp_path, position), 8)


def test_a_process_that_dies_between_checkpoint_and_rotation_counts_nothing_twice(tmp_path):
    log = written(tmp_path, [7])
    position = log.position
    resumed = StatisticsLog(tmp_path, position)
    assert_kept(resumed)
    append(resumed, 8)
    assert_kept(StatisticsLog(tmp_path, position), 8)


def test_a_checkpoint_of_the_same_step_again_holds_what_came_in_between(tmp_path):
    log = written(tmp_path, [7])
    checkpoint(log, 100)
    append(log, 8)
    position = checkpoint(log, 100, oldest=100)
    assert_kept(StatisticsLog(tmp_path, position))
    append(log, 2**64 - 1)
    assert_kept(StatisticsLog(tmp_path, position), 2**64 - 1)


def test_falling_back_to_an_older_checkpoint_brings_what_came_after_it(tmp_path):
    log = written(tmp_path, [7])
    older = checkpoint(log, 100)
    append(log, 8)
    newer = checkpoint(log, 200, oldest=100)
    append(log, 2**64 - 1)
    assert_kept(StatisticsLog(tmp_path, newer), 2**64 - 1)
    fallen_back = StatisticsLog(tmp_path, older)
    assert_kept(fallen_back, 8, 2**64 - 1)
    # It goes on, and reaches the step of the checkpoint that was damaged.
    again = checkpoint(fallen_back, 200, oldest=100)
    append(fallen_back, 7)
    assert_kept(StatisticsLog(tmp_path, again), 7)


def test_records_that_no_checkpoint_needs_are_deleted(tmp_path):
    log = written(tmp_path, [7])
    for step in (100, 200, 300):
        append(log, 8)
        checkpoint(log, step, oldest=step - 100)
    assert sorted(path.name for path in (tmp_path / "statistics").iterdir()) == ["200.log", "300.log"]


@pytest.mark.parametrize("cut", [1, 40, 10**6])
def test_a_record_that_was_cut_off_is_dropped_and_the_log_goes_on(cut, tmp_path):
    written(tmp_path, [7, 2**64 - 1]).close()
    path = tmp_path / "statistics/0.log"
    end = path.stat().st_size
    log = StatisticsLog(tmp_path)
    append(log, 8)
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: min(end + cut, len(whole) - 1)])
    log = StatisticsLog(tmp_path)
    assert_kept(log, 7, 2**64 - 1)
    log.append(8, REPORTS[8])
    assert_kept(StatisticsLog(tmp_path), *REPORTS)


def test_a_flipped_bit_anywhere_costs_the_record_that_it_is_in_and_no_other(tmp_path, caplog):
    written(tmp_path).close()
    path = tmp_path / "statistics/0.log"
    whole = path.read_bytes()
    ends = [end for *_, end in statistics_log._records(path)]
    rng = np.random.default_rng(0)
    for place in (*range(24), *rng.integers(24, len(whole), 200)):
        data = bytearray(whole)
        data[place] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        caplog.clear()
        hit = int(np.searchsorted(ends, place, side="right"))
        assert_kept(StatisticsLog(tmp_path), *(key for index, key in enumerate(REPORTS) if index != hit))
        assert f"{path} is damaged" in caplog.text


def test_files_of_other_peoples_are_left_alone(tmp_path):
    (tmp_path / "statistics").mkdir()
    notes = tmp_path / "statistics" / "notes.log"
    notes.write_text("mine")
    log = written(tmp_path)
    for step in (100, 200):
        checkpoint(log, step, oldest=step)
    statistics_log.forget_after(tmp_path, (200, 0))
    assert notes.read_text() == "mine"
