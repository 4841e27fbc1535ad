import json
import pathlib
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import reverb
import tensorflow as tf

from agents.errors import RunFolderError
from agents.replay.reverb_replay import reverb_checkpoint, reverb_checkpointer
from agents.storage.checkpoint import Checkpointer, read_newest


class Run:
    """What a checkpoint is made of: a variable, and a Reverb server whose only table holds numbers."""

    def __init__(self, root_dir: pathlib.Path, keep: int = 2):
        self.variable = tf.Variable(0.0)
        self.checkpointer = Checkpointer(
            root_dir, {"variable": self.variable}, lambda: reverb_checkpoint(self.client), keep
        )
        table = reverb.Table.queue("numbers", 100)
        self.server = reverb.Server(
            [table], checkpointer=reverb_checkpointer(self.checkpointer.replay_folders())
        )
        self.client = reverb.Client(f"localhost:{self.server.port}")

    def go_to(self, step: int) -> None:
        """One number into the replay and one checkpoint for every step from here to `step`."""
        while self.variable < step:
            self.variable.assign_add(1.0)
            self.client.insert([self.variable.numpy()], {"numbers": 1.0})
            self.save()

    def save(self) -> str:
        return self.checkpointer.save(int(self.variable), {"step": int(self.variable)})

    def replay(self) -> list[float]:
        """Takes all numbers out of the replay."""
        size = self.client.server_info()["numbers"].current_size
        return [float(item[0].data[0]) for item in self.client.sample("numbers", size)] if size else []


@pytest.fixture
def started(tmp_path) -> Iterator:
    """Starts runs in `tmp_path`, one at a time."""
    servers = []

    def start(**settings) -> Run:
        stop()
        run = Run(tmp_path, **settings)
        servers.append(run.server)
        return run

    def stop() -> None:
        while servers:
            servers.pop().stop()

    yield start
    stop()


def saved(root_dir: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (root_dir / "checkpoints").iterdir())


def test_a_new_folder_has_nothing_to_restore(started):
    run = started()
    assert run.checkpointer.restore() is None
    assert run.replay() == []


def test_variables_replay_and_extra_come_back(started):
    started().go_to(3)
    run = started()
    assert run.checkpointer.restore() == (3, {"step": 3})
    assert run.variable.numpy() == 3.0
    assert run.replay() == [1.0, 2.0, 3.0]


def test_a_restored_run_goes_on_and_can_be_restored_again(started):
    started().go_to(2)
    run = started()
    run.checkpointer.restore()
    run.go_to(4)
    run = started()
    assert run.checkpointer.restore()[0] == 4
    assert run.replay() == [1.0, 2.0, 3.0, 4.0]


def test_the_last_two_are_kept_each_with_its_replay(started, tmp_path):
    started().go_to(4)
    assert saved(tmp_path) == ["3", "4"]
    assert all((tmp_path / "checkpoints" / step / "replay" / "DONE").exists() for step in ("3", "4"))
    assert list((tmp_path / "replay").iterdir()) == []


def test_steps_count_as_numbers_not_as_text(tmp_path):
    checkpointer = Checkpointer(tmp_path, {})
    for step in (9, 10, 100):
        checkpointer.save(step)
    assert saved(tmp_path) == ["10", "100"]
    assert Checkpointer(tmp_path, {}).restore()[0] == 100


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_files_are_kept_in_the_checkpoint_that_they_belong_to(tmp_path):
    checkpointer = Checkpointer(tmp_path, {})
    assert checkpointer.newest() is None and checkpointer.file("state") is None
    checkpointer.save(1, {"a": 2}, {"state": b"\x00 one", "other": b""})
    assert checkpointer.newest() == checkpointer.restore() == (1, {"a": 2})
    assert (checkpointer.file("state"), checkpointer.file("other")) == (b"\x00 one", b"")
    checkpointer.save(2)
    again = Checkpointer(tmp_path, {})
    assert again.newest()[0] == 2 and again.file("state") is None


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, pathlib.Path.unlink])
def test_a_damaged_file_makes_the_checkpoint_before_it_the_newest(tmp_path, damage):
    for step in (1, 2):
        Checkpointer(tmp_path, {}).save(step, files={"state": b"state of %d" % step})
    damage(tmp_path / "checkpoints/2/state")
    checkpointer = Checkpointer(tmp_path, {})
    assert checkpointer.file("state") == b"state of 1" and checkpointer.newest()[0] == 1


@pytest.mark.parametrize("file", ["extra.json", "variables.index", "replay/chunks.tfrecord"])
def test_a_damaged_newest_falls_back_to_the_one_before_as_a_whole(started, tmp_path, caplog, file):
    started().go_to(3)
    flip_a_bit(tmp_path / "checkpoints" / "3" / file)
    run = started()
    assert run.checkpointer.restore() == (2, {"step": 2})
    assert run.variable.numpy() == 2.0
    assert run.replay() == [1.0, 2.0]
    assert "3 is damaged" in caplog.text
    assert saved(tmp_path) == ["2", "3.damaged"]


def test_a_damaged_checkpoint_does_not_push_out_a_whole_one(started, tmp_path):
    started().go_to(3)
    truncate(tmp_path / "checkpoints" / "3" / "extra.json")
    run = started()
    run.checkpointer.restore()
    run.go_to(3)
    assert saved(tmp_path) == ["2", "3", "3.damaged"]
    assert started().checkpointer.restore()[0] == 3


def test_with_nothing_whole_left_a_run_is_refused_and_nothing_changes(started, tmp_path):
    started().go_to(3)
    for step in (2, 3):
        truncate(tmp_path / "checkpoints" / f"{step}" / "extra.json")
    for _ in range(2):
        with pytest.raises(RunFolderError, match=r"All checkpoints in .* are damaged \(3: .*; 2: .*--anew"):
            started()
        assert saved(tmp_path) == ["2", "3"]


@pytest.mark.parametrize(
    "manifest", ["", "[]", "{}", "3", "null", '{"extra.json": 5}', '{"extra.json": {"bytes": 1}}']
)
def test_a_manifest_of_another_form_counts_as_damage(tmp_path, manifest):
    for step in (2, 3):
        Checkpointer(tmp_path, {}).save(step)
    (tmp_path / "checkpoints" / "3" / "manifest.json").write_text(manifest)
    assert Checkpointer(tmp_path, {}).restore()[0] == 2


def test_files_of_other_peoples_are_left_alone(started, tmp_path):
    names = ["mine.tmp", "notes", "old.replaced", "5.damaged"]
    for name in names:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    started().go_to(3)
    truncate(tmp_path / "checkpoints" / "3" / "extra.json")
    started().checkpointer.restore()
    assert saved(tmp_path) == sorted(["2", "3.damaged", *names])


def test_what_the_server_wrote_after_the_checkpoint_is_not_restored(started):
    run = started()
    run.go_to(2)
    run.client.insert([np.float32(9.0)], {"numbers": 1.0})
    run.client.checkpoint()  # and killed before the rest was saved
    assert started().replay() == [1.0, 2.0]


def test_saving_a_step_again_replaces_it(started, tmp_path):
    run = started()
    run.go_to(1)
    run.client.insert([np.float32(5.0)], {"numbers": 1.0})
    run.save()
    assert saved(tmp_path) == ["1"]
    assert started().replay() == [1.0, 5.0]


def test_a_process_killed_while_it_replaces_a_checkpoint_loses_nothing(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    Checkpointer(tmp_path, {}).save(7, {"kept": True})
    (checkpoints / "7").rename(checkpoints / "7.replaced")
    (checkpoints / "7.tmp").mkdir()
    assert Checkpointer(tmp_path, {}).restore() == (7, {"kept": True})
    assert saved(tmp_path) == ["7"]


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
def test_a_full_disk_is_an_error_that_names_the_folder_and_leaves_the_old_checkpoint_whole(tmp_path, limit):
    weights = tf.Variable(tf.zeros(100_000))
    checkpointer = Checkpointer(tmp_path, {"weights": weights})
    checkpointer.save(1, {"good": 1})
    weights.assign(tf.ones(100_000))
    with (
        file_size_limit(limit),
        pytest.raises(RunFolderError, match=rf"Cannot write to {tmp_path}/checkpoints"),
    ):
        checkpointer.save(2, {"large": list(range(1000))})
    assert saved(tmp_path) == ["1"]
    assert checkpointer.restore() == (1, {"good": 1})
    assert not weights.numpy().any()
    checkpointer.save(2)


def test_a_replay_that_cannot_be_written_is_an_error_that_leaves_the_old_checkpoint_whole(started, tmp_path):
    run = started()
    run.go_to(1)
    shutil.rmtree(tmp_path / "replay")
    (tmp_path / "replay").write_text("in the way")
    with pytest.raises(RunFolderError, match="Cannot write"):
        run.go_to(2)
    (tmp_path / "replay").unlink()
    assert started().checkpointer.restore()[0] == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(RunFolderError, match=rf"Cannot write to {tmp_path}/checkpoints"):
        Checkpointer(tmp_path, {})


def test_an_optimizer_goes_on_as_if_it_had_never_stopped(tmp_path):
    def learner():
        weights = tf.Variable([1.0, -2.0])
        optimizer = tf.keras.optimizers.Adam(0.1)

        def learn(updates):
            for _ in range(updates):
                optimizer.apply_gradients([(weights**2, weights)])
            return weights.numpy()

        return {"weights": weights, "optimizer": optimizer}, learn

    _, learn_at_once = learner()
    trackables, learn = learner()
    learn(5)
    Checkpointer(tmp_path, trackables).save(5)
    trackables, learn = learner()
    Checkpointer(tmp_path, trackables).restore()
    np.testing.assert_array_equal(learn(5), learn_at_once(10))


def test_a_checkpoint_of_another_program_is_refused(tmp_path):
    Checkpointer(tmp_path, {"weights": tf.Variable(1.0)}).save(1)
    with pytest.raises(RunFolderError, match="different version of this program"):
        Checkpointer(tmp_path, {"weights": tf.Variable(1.0), "bandit": tf.Variable(1.0)}).restore()


def test_random_generators_and_arrays_come_back_exactly(tmp_path):
    generators = [np.random.Generator(kind(3)) for kind in (np.random.PCG64, np.random.MT19937)]
    for generator in generators:
        generator.random(10)
    extra = {
        "generators": [generator.bit_generator.state for generator in generators],
        "float32": np.array([[0.1, np.nan], [-np.inf, 1e-45]], np.float32),
        "float64": np.array(np.pi),
        "empty": np.zeros((0, 3), np.int16),
        "flags": np.array([True, False]),
        "scalar": np.int64(2**62),
    }
    Checkpointer(tmp_path, {}).save(0, extra)
    _, restored = Checkpointer(tmp_path, {}).restore()
    for generator, state in zip(generators, restored["generators"], strict=True):
        twin = np.random.Generator(type(generator.bit_generator)(0))
        twin.bit_generator.state = state
        np.testing.assert_array_equal(twin.random(100), generator.random(100))
    for name in ("float32", "float64", "empty", "flags"):
        np.testing.assert_array_equal(restored[name], extra[name], strict=True)
    assert restored["scalar"] == 2**62


def test_what_json_cannot_hold_is_refused_by_name(tmp_path):
    checkpointer = Checkpointer(tmp_path, {})
    with pytest.raises(TypeError, match="numbers, strings, lists, dictionaries and arrays, not {1}"):
        checkpointer.save(1, {"seen": {1}})
    assert saved(tmp_path) == []


def test_the_manifest_describes_every_file(tmp_path):
    folder = pathlib.Path(Checkpointer(tmp_path, {"weights": tf.Variable(1.0)}).save(1))
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert set(manifest) == files
    assert all(entry["bytes"] == (folder / name).stat().st_size for name, entry in manifest.items())


def test_an_onlooker_reads_the_newest_whole_checkpoint_and_changes_nothing(tmp_path):
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


def test_an_onlooker_needs_a_whole_checkpoint(tmp_path):
    with pytest.raises(RunFolderError, match="no whole checkpoint"):
        read_newest(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_can_be_read_while_the_run_replaces_them(tmp_path):
    written, read = tf.Variable([0] * 1000), tf.Variable([0] * 1000)
    checkpointer = Checkpointer(tmp_path, {"variable": written}, keep=1)
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
        while len(set(steps)) < 20:
            steps.append(read_newest(tmp_path, {"variable": read}, attempts=1000))
            np.testing.assert_array_equal(read, steps[-1])
    finally:
        done.set()
        run.join()
    assert steps == sorted(steps)
