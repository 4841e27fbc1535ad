"""The log of drained statistics: nothing counts twice, nothing that was written is lost."""

import numpy as np
import pytest

from agents.statistics_log import StatisticsLog

REPORTS = {
    7: [np.arange(6.0).reshape(2, 3), np.zeros((0, 4))],
    2**64 - 1: [np.full((2, 3), 1 / 3), np.ones((5, 4))],
    8: [np.full((2, 3), -1e300), np.ones((1, 4))],
}


def written(folder, step=0, reports=REPORTS):
    log = StatisticsLog(folder, step)
    for key, arrays in reports.items():
        log.append(key, arrays)
    return log


def assert_kept(log, *keys):
    kept = list(log.kept())
    assert len(kept) == len(keys) and log.keys == set(keys)
    for arrays, key in zip(kept, keys, strict=True):
        for found, expected in zip(arrays, REPORTS[key], strict=True):
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == np.float64


def test_reports_come_back_bit_for_bit_though_the_log_was_never_closed(tmp_path):
    log = written(tmp_path)
    assert_kept(StatisticsLog(tmp_path, 0), *REPORTS)
    log.close()


def test_a_checkpoint_replaces_what_it_holds(tmp_path):
    log = written(tmp_path)
    log.saved(100, oldest=100)
    assert_kept(StatisticsLog(tmp_path, 100))
    log.append(8, REPORTS[8])
    assert_kept(StatisticsLog(tmp_path, 100), 8)


def test_falling_back_to_an_older_checkpoint_brings_what_came_after_it(tmp_path):
    log = written(tmp_path, reports={7: REPORTS[7]})
    log.saved(100, oldest=100)
    log.append(8, REPORTS[8])
    log.saved(200, oldest=100)
    log.append(2**64 - 1, REPORTS[2**64 - 1])
    assert_kept(StatisticsLog(tmp_path, 200), 2**64 - 1)
    assert_kept(StatisticsLog(tmp_path, 100), 8, 2**64 - 1)
    log.saved(300, oldest=200)
    assert_kept(StatisticsLog(tmp_path, 200), 2**64 - 1)


@pytest.mark.parametrize("cut", [1, 40, 10**6])
def test_a_record_that_was_cut_off_is_dropped_and_the_log_goes_on(cut, tmp_path):
    written(tmp_path).close()
    path = tmp_path / "statistics/0.log"
    whole = path.read_bytes()
    of_two = whole.index(np.full((2, 3), 1 / 3).tobytes()) + len(np.full((2, 3), 1 / 3).tobytes())
    end = whole.index((8).to_bytes(8, "little"), of_two)
    path.write_bytes(whole[: min(end + cut, len(whole) - 1)])
    log = StatisticsLog(tmp_path, 0)
    assert_kept(log, 7, 2**64 - 1)
    log.append(8, REPORTS[8])
    assert_kept(StatisticsLog(tmp_path, 0), *REPORTS)


def test_a_damaged_record_ends_the_log(tmp_path):
    written(tmp_path).close()
    path = tmp_path / "statistics/0.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert_kept(StatisticsLog(tmp_path, 0), 7, 2**64 - 1)
