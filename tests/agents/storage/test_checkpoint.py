import contextlib
import itertools
import json
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from agents.errors import RunFolderError
from agents.storage import checkpoint
from agents.storage.checkpoint import Checkpointer, Counters, read_newest
from agents.storage.run_folder import checkpoints, newest_replay


class Run:
    """What a checkpoint is made of: a variable, and a replay of numbers."""

    def __init__(self, root_dir: pathlib.Path):
        saved = newest_replay(root_dir)
        self.numbers = json.loads((saved / "table.json").read_text()) if saved else []
        self.variable = tf.Variable(0.0)
        self.checkpointer = Checkpointer(root_dir, {"variable": self.variable}, self.write_replay)

    def write_replay(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        (folder / "table.json").write_text(json.dumps(self.numbers))
        np.save(folder / "scalars.npy", self.numbers)

    def go_to(self, step: int) -> None:
        """One number into the replay and one checkpoint for every step from here to `step`."""
        while self.variable < step:
            self.variable.assign_add(1.0)
            self.numbers.append(int(self.variable))
            self.save()

    def save(self) -> None:
        self.checkpointer.save(int(self.variable), Counters(10 * int(self.variable), len(self.numbers)))


def saved(root_dir: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (root_dir / "checkpoints").iterdir())


def test_save_and_restore(tmp_path):
    run = Run(tmp_path)
    assert run.checkpointer.restore() is None and run.numbers == []
    for end in (2, 4):
        run.go_to(end)
        # The last two are kept, each with its replay.
        assert saved(tmp_path) == [str(end - 1), str(end)]
        assert all((tmp_path / "checkpoints" / step / "replay").exists() for step in saved(tmp_path))
        run = Run(tmp_path)
        assert (
            run.checkpointer.restore() == checkpoint.find_newest(tmp_path) == (end, (10 * end, end, [0, 0]))
        )
        assert run.variable.numpy() == end
    assert run.numbers == [1, 2, 3, 4]


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    run, done, fsync, rename = Run(tmp_path), [], os.fsync, pathlib.Path.rename

    def seen(descriptor):
        done.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(pathlib.Path, "rename", lambda path, to: done.append("named") or rename(path, to))
    run.go_to(1)
    new, final = tmp_path / "checkpoints/1.new", tmp_path / "checkpoints/1"
    parts = {path.relative_to(final) for path in final.rglob("*")} - {pathlib.Path("extra.json")}
    assert len(parts) >= 5 and set(done[: len(parts) + 1]) == {new / part for part in (*parts, "")}
    # The mark of a whole one comes last.
    assert done[len(parts) + 1 :] == [new / "extra.json.new", new, "named", final.parent]


def test_steps_are_numbers(tmp_path):
    checkpointer = Checkpointer(tmp_path, {})
    for step in (9, 10, 100):
        checkpointer.save(step, Counters())
    assert saved(tmp_path) == ["10", "100"] and checkpointer.oldest == 10
    assert Checkpointer(tmp_path, {}).restore()[0] == 100


@pytest.mark.parametrize("name", ["a[b]", "a\\b", "a*?"])
def test_paths_are_no_patterns(tmp_path, name):
    root, part = tmp_path / name, tf.train.Checkpoint(variable=tf.Variable(3.0))
    Checkpointer(root, {"part": part}).save(7, Counters())
    for read in (lambda parts: Checkpointer(root, parts).restore(), lambda parts: read_newest(root, parts)):
        part = tf.train.Checkpoint()
        read({"part": part})
        part.variable = tf.Variable(0.0)  # created later, as an optimizer's are
        assert part.variable.numpy() == 3.0


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("file", ["extra.json", "variables.index", "variables.data-00000-of-00001"])
def test_a_checkpoint_that_cannot_be_read_is_refused_until_it_is_removed(tmp_path, file):
    """In a sentence that says so, and nothing on disk is changed."""
    Run(tmp_path).go_to(3)
    newest, before = tmp_path / "checkpoints/3", tmp_path / "checkpoints/2"
    truncate(newest / file)
    for then in ("goes on from checkpoint 2", "starts from the beginning"):
        words = rf"^The checkpoint {newest} cannot be read \(.*\)\. Remove that folder, then .* {then}; or .*--anew"
        left = saved(tmp_path)
        for read in (Run(tmp_path).checkpointer.restore, lambda: checkpoint.check_readable(tmp_path)):
            with pytest.raises(RunFolderError, match=words):
                read()
        assert saved(tmp_path) == left
        shutil.rmtree(before, ignore_errors=True)
    shutil.rmtree(newest)
    assert Run(tmp_path).checkpointer.restore() is None


class Killed(BaseException):
    pass


STEPS = (
    *((pathlib.Path, name) for name in ("mkdir", "unlink", "rename", "replace")),
    *((os, name) for name in ("fsync", "rmdir")),
)


def dying(real, done, moment):
    """The same function for as long as fewer than so many have been `done`."""

    def until_killed(*args, **options):
        if len(done) >= moment:
            raise Killed
        done.append(args)
        return real(*args, **options)

    return until_killed


def test_a_kill_at_any_moment_leaves_the_old_checkpoint_or_the_new_one(tmp_path, monkeypatch):
    """Where one is written again: each step on the disk is the first that is not done any more."""
    seen = []
    for moment in itertools.count():
        root, done = tmp_path / str(moment), []
        run = Run(root)
        run.go_to(2)
        run.numbers.append(7)
        with monkeypatch.context() as context:
            for where, name in STEPS:
                context.setattr(where, name, dying(getattr(where, name), done, moment))
            with contextlib.suppress(Killed):
                run.save()
        if len(done) < moment:
            break
        for folder in checkpoints(root):  # what says that it is whole is whole
            assert (folder / "variables.index").exists() and (folder / "replay/scalars.npy").exists()
        again = Run(root)
        step, counters = again.checkpointer.restore()
        assert (step, counters.episodes) == (2, len(again.numbers)), "all of it is of one checkpoint"
        seen.append(list(again.numbers))
        again.go_to(3)
        assert saved(root) == ["2", "3"]
    old, new = seen.count([1, 2]), seen.count([1, 2, 7])
    assert old > 5 and new > 5 and seen == old * [[1, 2]] + new * [[1, 2, 7]]


@pytest.mark.parametrize("limit", [10, 3000, 100_000])
def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, file_size_limit, limit):
    weights = tf.Variable(tf.zeros(100_000))
    checkpointer = Checkpointer(tmp_path, {"weights": weights})
    checkpointer.save(1, Counters(1))
    weights.assign(tf.ones(100_000))
    refused = pytest.raises(RunFolderError, match=rf"Cannot write to {tmp_path}/checkpoints")
    with file_size_limit(limit), refused:
        checkpointer.save(2, Counters())
    assert saved(tmp_path) == ["1"]
    assert checkpointer.restore()[1].environment_steps == 1
    assert not weights.numpy().any()
    checkpointer.save(2, Counters())


def test_another_program_is_refused(tmp_path):
    Checkpointer(tmp_path, {"weights": tf.Variable(1.0)}).save(1, Counters())
    with pytest.raises(RunFolderError, match="different version of this program"):
        Checkpointer(tmp_path, {"weights": tf.Variable(1.0), "bandit": tf.Variable(1.0)}).restore()


def test_read_newest(tmp_path):
    with pytest.raises(RunFolderError, match="There is no checkpoint in"):
        read_newest(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
    variable = tf.Variable(0.0)
    checkpointer = Checkpointer(tmp_path, {"variable": variable})
    for step in (1, 2, 3):
        variable.assign(step)
        checkpointer.save(step, Counters())
    (tmp_path / "checkpoints" / "4.new").mkdir()  # one that is being written
    read = tf.Variable(0.0)
    assert read_newest(tmp_path, {"variable": read}) == 3
    assert read == 3.0
    assert saved(tmp_path) == ["2", "3", "4.new"]
    truncate(tmp_path / "checkpoints" / "3" / "variables.data-00000-of-00001")
    with pytest.raises(RunFolderError, match="checkpoints/3 cannot be read"):
        read_newest(tmp_path, {"variable": read})


def test_read_while_the_run_saves(tmp_path):
    written, read = tf.Variable([0] * 1000), tf.Variable([0] * 1000)
    checkpointer = Checkpointer(tmp_path, {"variable": written})
    checkpointer.save(0, Counters())
    done = threading.Event()

    def go_on():
        while not done.is_set():
            written.assign_add([1] * 1000)
            checkpointer.save(int(written[0]), Counters())

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
