"""Event files written by TensorFlow, whole, resumed and damaged."""

from agents.monitoring.report import events, runs
from tests.agents.monitoring.report import written
from tests.agents.monitoring.report.written import write_events

LATER = "events.out.tfevents.1700000100.host.2.0.v2"


def test_what_was_written_is_read(tmp_path):
    write_events(tmp_path, {1: {"a": 0.5, "b": 2.0}, 3: {"a": [1.5, 2.5]}})
    found, damaged = events.read(tmp_path)
    assert found["a"].tolist() == [[1, 0.5], [3, 1.5], [3, 2.5]]
    assert found["b"].tolist() == [[1, 2.0]] and found.keys() == {"a", "b"}
    assert damaged == []


def test_what_is_over_environment_steps_counts_as_no_update(tmp_path):
    write_events(tmp_path, {10: {"return": 1.0}, 5000: {"return_vs_environment_steps": 1.0}})
    assert events.read(tmp_path)[0].keys() == {"return"}


def test_a_resumed_run_counts_no_update_twice(tmp_path):
    # Killed after update 40, gone on from the checkpoint of update 20. Returns come several at an update.
    write_events(
        tmp_path,
        {10: {"loss": 1.0}, 20: {"loss": 2.0, "return": [5.0, 6.0]}, 30: {"loss": 3.0}, 40: {"loss": 4.0}},
    )
    write_events(tmp_path, {20: {"return": 7.0}, 30: {"loss": 3.5}}, LATER)
    found = events.read(tmp_path)[0]
    assert found["loss"].tolist() == [[10, 1.0], [20, 2.0], [30, 3.5]]
    assert found["return"].tolist() == [[20, 7.0]]


def test_the_second_start_wins_though_the_clock_was_set_back_before_it(tmp_path):
    run, second = tmp_path / "run", "events.out.tfevents.1700000100.host.2.0.v2"
    written.write_run(run, updates=0)
    times = ("2023-11-14T22:29:59+00:00", "2023-11-14T22:14:20+00:00")  # 1700000999, 1700000060
    (run / "command.txt").write_text("".join(f"{time}  python train.py\n" for time in times))
    first = "events.out.tfevents.1700001000.host.1.0.v2"
    write_events(run / "train", {20: {"loss": 2.0}, 30: {"loss": 3.0}, 40: {"loss": 4.0}}, first)
    write_events(run / "train", {30: {"loss": 3.5}}, second)
    assert runs.read(run).train["loss"].tolist() == [[20, 2.0], [30, 3.5]]


def test_damage_hides_nothing_that_stands_before_it(tmp_path):
    assert events.read(tmp_path / "missing") == ({}, [])
    path = write_events(tmp_path, {step: {"loss": float(step)} for step in (1, 2, 3)})
    path.write_bytes(path.read_bytes()[:-7])
    for content, damaged in ((b"", []), (b"no event file at all", [LATER])):
        (tmp_path / LATER).write_bytes(content)
        found, names = events.read(tmp_path)
        assert found["loss"].tolist() == [[1, 1.0], [2, 2.0]]
        assert names == [path.name, *damaged]
