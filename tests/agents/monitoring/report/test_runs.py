"""Run folders whose answers are known by hand, their event files whole, resumed and damaged."""

import fcntl

import pytest

from agents.errors import RunFolderError
from agents.monitoring.report import runs
from agents.monitoring.report.runs import scalars
from tests.agents.monitoring.report.written import write_events, write_run

LATER = "events.out.tfevents.1700000100.host.2.0.v2"


def test_what_was_written_is_read_over_updates_only(tmp_path):
    write_events(tmp_path, {1: {"a": 0.5, "b": 2.0}, 3: {"a": [1.5, 2.5], "a_vs_environment_steps": 1.0}})
    found = scalars(tmp_path)
    assert found["a"].tolist() == [[1, 0.5], [3, 1.5], [3, 2.5]]
    assert found["b"].tolist() == [[1, 2.0]] and found.keys() == {"a", "b"}


def test_a_resumed_run_counts_no_update_twice(tmp_path):
    # Killed after update 40, gone on from the checkpoint of update 20. Returns come several at an update.
    write_events(
        tmp_path,
        {10: {"loss": 1.0}, 20: {"loss": 2.0, "return": [5.0, 6.0]}, 30: {"loss": 3.0}, 40: {"loss": 4.0}},
    )
    write_events(tmp_path, {20: {"return": 7.0}, 30: {"loss": 3.5}}, LATER)
    found = scalars(tmp_path)
    assert found["loss"].tolist() == [[10, 1.0], [20, 2.0], [30, 3.5]]
    assert found["return"].tolist() == [[20, 7.0]]


def test_damage_hides_nothing_that_stands_before_it(tmp_path):
    assert scalars(tmp_path / "missing") == {}
    path = write_events(tmp_path, {step: {"loss": float(step)} for step in (1, 2, 3)})
    path.write_bytes(path.read_bytes()[:-7])
    for content in (b"", b"no event file at all"):
        (tmp_path / LATER).write_bytes(content)
        assert scalars(tmp_path)["loss"].tolist() == [[1, 1.0], [2, 2.0]]


def test_a_lock_that_is_held_means_running_and_a_checkpoint_counts_as_progress(tmp_path):
    folder = write_run(tmp_path / "run", updates=20, planned=25)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert runs.read_run(folder).state == "running"
    assert (runs.read_run(folder).updates, runs.read_run(folder).state) == (20, "stopped")
    (folder / "checkpoints" / "25").mkdir(parents=True)
    (folder / "checkpoints" / "25" / "extra.json").write_text("{}")
    assert (runs.read_run(folder).updates, runs.read_run(folder).state) == (25, "finished")


def test_a_configuration_that_says_nothing_is_refused_with_the_reason(tmp_path):
    folder = write_run(tmp_path / "run")
    for text in ("train.env = 'po", "train.updates =", "Heads.pairs = ((0.0, True),", "a.b = 1"):
        (folder / "operative_config.gin").write_text(text)
        with pytest.raises(RunFolderError, match="cannot be read"):
            runs.read_run(folder)
    (folder / "operative_config.gin").unlink()
    with pytest.raises(RunFolderError, match="not got as far"):
        runs.read_run(folder)
