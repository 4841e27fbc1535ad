import json
import os
import pathlib
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import tensorflow as tf

from agents.errors import RunFolderError
from agents.storage.checkpoint import Checkpointer, read_newest


class Run:
    """What a checkpoint is made of: a variable, and a replay of numbers."""

    def __init__(self, root_dir: pathlib.Path):
        self.variable = tf.Variable(0.0)
        self.checkpointer = Checkpointer(root_dir, {"variable": self.variable}, self.write_replay)
        self.writes_to, saved = self.checkpointer.replay_folders()
        self.numbers = json.loads((saved / "numbers").read_text()) if saved else []

    def write_replay(self) -> str:
        folder = self.writes_to / "replay"
        folder.mkdir()
        (folder / "numbers").write_text(json.dumps(self.numbers))
        return str(folder)

    def go_to(self, step: int) -> None:
        """One number into the replay and one checkpoint for every step from here to `step`."""
        while self.variable < step:
            self.variable.assign_add(1.0)
            self.numbers.append(int(self.variable))
            self.save()

    def save(self) -> None:
        self.checkpointer.save(int(self.variable), {"step": int(self.variable)})


def saved(root_dir: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (root_dir / "checkpoints").iterdir())


def test_save_and_restore(tmp_path):
    run = Run(tmp_path)
    assert run.checkpointer.restore() is None and run.numbers == []
    for end in (2, 4):
        run.go_to(end)
        # The last two are kept, each with its replay.
        assert saved(tmp_path) == [str(end - 1), str(end)]
        assert all((tmp_path / "checkpoints" / step / "replay/numbers").exists() for step in saved(tmp_path))
        assert list(run.writes_to.iterdir()) == []
        run = Run(tmp_path)
        assert run.checkpointer.restore() == (end, {"step": end})
        assert run.variable.numpy() == end
    assert run.numbers == [1, 2, 3, 4]


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    run, synced, fsync = Run(tmp_path), [], os.fsync

    def seen(descriptor):
        synced.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    run.go_to(1)
    checkpoints = tmp_path / "checkpoints"
    parts = [path.relative_to(checkpoints / "1") for path in (checkpoints / "1").rglob("*")]
    assert len(parts) >= 6
    assert set(synced[:-1]) == {checkpoints / "1.tmp" / part for part in (*parts, "")}
    assert synced[-1] == checkpoints  # which has the name


def test_steps_are_numbers(tmp_path):
    checkpointer = Checkpointer(tmp_path, {})
    for step in (9, 10, 100):
        checkpointer.save(step)
    assert saved(tmp_path) == ["10", "100"]
    assert Checkpointer(tmp_path, {}).restore()[0] == 100


@pytest.mark.parametrize("name", ["a[b]", "a\\b", "a*?"])
def test_paths_are_no_patterns(tmp_path, name):
    root, part = tmp_path / name, tf.train.Checkpoint(variable=tf.Variable(3.0))
    Checkpointer(root, {"part": part}).save(7)
    for read in (lambda parts: Checkpointer(root, parts).restore(), lambda parts: read_newest(root, parts)):
        part = tf.train.Checkpoint()
        read({"part": part})
        part.variable = tf.Variable(0.0)  # created later, as an optimizer's are
        assert part.variable.numpy() == 3.0


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage, file",
    [
        (truncate, "extra.json"),
        (pathlib.Path.unlink, "variables.index"),
        (flip_a_bit, "replay/numbers"),
        (flip_a_bit, "extra.json"),
        (flip_a_bit, "variables.data-00000-of-00001"),
        (lambda path: path.write_text('{"extra.json": {"bytes": 1}}'), "manifest.json"),
        (lambda path: path.write_text("[]"), "manifest.json"),
    ],
)
def test_a_damaged_checkpoint_is_skipped(tmp_path, caplog, damage, file):
    Run(tmp_path).go_to(3)
    damage(tmp_path / "checkpoints" / "3" / file)
    run = Run(tmp_path)
    assert run.checkpointer.restore() == (2, {"step": 2})
    assert run.variable.numpy() == 2.0
    assert run.numbers == [1, 2]
    assert "3 is damaged" in caplog.text
    assert saved(tmp_path) == ["2", "3.damaged"]
    run.go_to(3)
    assert saved(tmp_path) == ["2", "3", "3.damaged"]
    assert Run(tmp_path).checkpointer.restore()[0] == 3


def test_all_damaged_is_refused(tmp_path):
    Run(tmp_path).go_to(3)
    for step in (2, 3):
        truncate(tmp_path / "checkpoints" / f"{step}" / "extra.json")
    for _ in range(2):
        with pytest.raises(RunFolderError, match=r"^All checkpoints in .* are damaged \(3: .*; 2: .*--anew"):
            Run(tmp_path)
        assert saved(tmp_path) == ["2", "3"]


def test_killed_while_a_checkpoint_is_replaced(tmp_path):
    checkpoints, others = tmp_path / "checkpoints", ["5.damaged", "mine.tmp", "notes", "old.replaced"]
    Checkpointer(tmp_path, {}).save(7, {"kept": True})
    (checkpoints / "7").rename(checkpoints / "7.replaced")
    for name in others:
        (checkpoints / name).mkdir()
    shutil.copytree(checkpoints / "7.replaced", checkpoints / "7.tmp")
    (checkpoints / "7.tmp" / "manifest.json").write_text('{"extra.json": null, "variables.*": null}')
    assert Checkpointer(tmp_path, {}).restore() == (7, {"kept": True})
    assert saved(tmp_path) == sorted(["7", *others])


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Stands for a full disk: the kernel refuses to write past `size` bytes of any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [100, 3000, 100_000])
def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, limit):
    weights = tf.Variable(tf.zeros(100_000))
    checkpointer = Checkpointer(tmp_path, {"weights": weights})
    checkpointer.save(1, {"good": 1})
    weights.assign(tf.ones(100_000))
    refused = pytest.raises(RunFolderError, match=rf"Cannot write to {tmp_path}/checkpoints")
    with file_size_limit(limit), refused:
        checkpointer.save(2, {"large": list(range(1000))})
    assert saved(tmp_path) == ["1"]
    assert checkpointer.restore() == (1, {"good": 1})
    assert not weights.numpy().any()
    checkpointer.save(2)


def test_a_replay_that_cannot_be_written_leaves_the_old_checkpoint(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="Cannot write to .*/file/checkpoints"):
        Checkpointer(tmp_path / "file", {})
    run = Run(tmp_path)
    run.go_to(1)
    shutil.rmtree(tmp_path / "replay")
    (tmp_path / "replay").write_text("in the way")
    with pytest.raises(RunFolderError, match="Cannot write"):
        run.go_to(2)
    (tmp_path / "replay").unlink()
    assert Run(tmp_path).checkpointer.restore()[0] == 1


def test_another_program_is_refused(tmp_path):
    Checkpointer(tmp_path, {"weights": tf.Variable(1.0)}).save(1)
    with pytest.raises(RunFolderError, match="different version of this program"):
        Checkpointer(tmp_path, {"weights": tf.Variable(1.0), "bandit": tf.Variable(1.0)}).restore()


def test_read_newest(tmp_path):
    with pytest.raises(RunFolderError, match="no whole checkpoint"):
        read_newest(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    variable = tf.Variable(0.0)
    checkpointer = Checkpointer(tmp_path, {"variable": variable})
    for step in (1, 2, 3):
        variable.assign(step)
        checkpointer.save(step)
    truncate(tmp_path / "checkpoints" / "3" / "variables.data-00000-of-00001")
    (tmp_path / "checkpoints" / "4.tmp").mkdir()  # one that is being written
    read = tf.Variable(0.0)
    assert read_newest(tmp_path, {"variable": read}) == 2
    assert read == 2.0
    assert saved(tmp_path) == ["2", "3", "4.tmp"]


def test_read_while_the_run_saves(tmp_path):
    written, read = tf.Variable([0] * 1000), tf.Variable([0] * 1000)
    checkpointer = Checkpointer(tmp_path, {"variable": written})
    checkpointer.save(0)
    done = threading.Event()

    def go_on():
        while not done.is_set():
            written.assign_add([1] * 1000)
            checkpointer.save(int(written[0]))

    run = threading.Thread(target=go_on)
    run.start()
    try:
        steps = []
        while len(set(steps)) < 10:
            steps.append(read_newest(tmp_path, {"variable": read}, attempts=1000))
            np.testing.assert_array_equal(read, steps[-1])
    finally:
        done.set()
        run.join()
    assert steps == sorted(steps)


def test_files_of_the_users_stay(tmp_path):
    run = Run(tmp_path)
    run.go_to(2)
    checkpoints, aside = tmp_path / "checkpoints", {"2/c": "2.replaced/c", "3/d": "3.replaced/d"}
    mine = ["1/a", "1/replay/b", *aside, "3.tmp/e", "4.tmp/extra", "5.replaced/f"]
    for name in mine:
        (checkpoints / name).parent.mkdir(exist_ok=True)
        (checkpoints / name).write_text("precious")
    (tmp_path / "replay/g").write_text("precious")
    run = Run(tmp_path)
    assert run.checkpointer.restore() == (2, {"step": 2})
    run.variable.assign(2)
    run.save()  # again, in place of the one that holds something else
    run.go_to(5)
    found = {str(path.relative_to(checkpoints)) for path in checkpoints.rglob("*") if path.is_file()}
    ours = {name for name in found if name.partition("/")[0] in ("4", "5")}
    assert found - ours == {aside.get(name, name) for name in mine}
    assert all((checkpoints / name).read_text() == "precious" for name in found - ours)
    assert (tmp_path / "replay/g").read_text() == "precious"
    again = Run(tmp_path)
    assert again.checkpointer.restore() == (5, {"step": 5}) and again.numbers == [1, 2, 3, 4, 5]
