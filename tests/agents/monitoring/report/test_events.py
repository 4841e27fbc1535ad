"""Event files written by TensorFlow, whole, resumed and damaged."""

import numpy as np
import pytest

from agents.monitoring.report import events
from tests.agents.monitoring.report.written import write_events

LATER = "events.out.tfevents.1700000100.host.2.0.v2"


def test_what_was_written_is_read(tmp_path):
    write_events(tmp_path, {1: {"a": 0.5, "b": 2.0}, 3: {"a": [1.5, 2.5]}})
    found = events.scalars(tmp_path)
    assert found["a"].tolist() == [[1, 0.5], [3, 1.5], [3, 2.5]]
    assert found["b"].tolist() == [[1, 2.0]]
    assert events.read(tmp_path).damaged == ()


def test_a_resumed_run_counts_no_update_twice(tmp_path):
    # Killed after update 40, gone on from the checkpoint of update 20. Returns come several at an update.
    write_events(
        tmp_path,
        {10: {"loss": 1.0}, 20: {"loss": 2.0, "return": [5.0, 6.0]}, 30: {"loss": 3.0}, 40: {"loss": 4.0}},
    )
    write_events(tmp_path, {20: {"return": 7.0}, 30: {"loss": 3.5}}, LATER)
    found = events.scalars(tmp_path)
    assert found["loss"].tolist() == [[10, 1.0], [20, 2.0], [30, 3.5]]
    assert found["return"].tolist() == [[20, 7.0]]


def test_half_a_record_hides_nothing_that_stands_before_it(tmp_path):
    path = write_events(tmp_path, {step: {"loss": float(step)} for step in (1, 2, 3)})
    path.write_bytes(path.read_bytes()[:-7])
    found = events.read(tmp_path)
    assert found.scalars["loss"].tolist() == [[1, 1.0], [2, 2.0]]
    assert found.damaged == (path.name,)


def test_a_file_without_events_is_no_error(tmp_path):
    path = tmp_path / LATER
    for content, damaged in ((b"", ()), (b"no event file at all", (path.name,))):
        path.write_bytes(content)
        found = events.read(tmp_path)
        assert found.scalars == {} and found.damaged == damaged, content


def test_a_missing_folder_is_an_empty_one(tmp_path):
    assert events.read(tmp_path / "eval") == events.Events({}, {}, ())


@pytest.mark.parametrize("heads", [[3], [0, 1, 1], [0, 0, 9, 4, 9, 3], list(range(10)) * 7])
def test_heads_can_be_counted_in_tensorboards_histograms(tmp_path, heads):
    write_events(tmp_path, {5: {}}, heads=heads)
    ((step, buckets),) = events.read(tmp_path).histograms["episode/head"]
    assert step == 5
    assert events.head_counts(buckets, 10).tolist() == np.bincount(heads, minlength=10).tolist()
