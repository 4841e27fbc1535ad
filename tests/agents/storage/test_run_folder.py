import fcntl
import subprocess
import sys

import gin
import pytest

from agents.errors import RunFolderError, UsageError
from agents.storage import run_folder
from agents.storage.run_folder import opened

COMMAND = ["python", "train.py", "--gin_bindings=seed = 1"]


@pytest.fixture(autouse=True)
def configuration(no_train):
    """Sets gin up with one configurable, `train`, and nothing bound."""

    @gin.configurable(module="run_folder_test")
    def train(updates=1, seed=0, rate=0.5):
        return updates, seed, rate

    return train


def start(folder, *bindings):
    gin.clear_config()
    gin.parse_config(list(bindings))
    with opened(folder, COMMAND) as path:
        return path


def test_a_start_leaves_a_record(tmp_path):
    gin.parse_config("train.seed = 3")
    with opened(tmp_path / "a" / "run", COMMAND) as folder:
        assert "train.seed = 3" in (folder / "config.gin").read_text()
        assert (folder / "command.txt").read_text().endswith("  python train.py '--gin_bindings=seed = 1'\n")
        recorded = (folder / "versions.txt").read_text()
    assert f"python {sys.version.split()[0]}" in recorded
    assert "numpy " in recorded and "commit " in recorded


def test_the_same_configuration_goes_on(tmp_path):
    start(tmp_path, "train.seed = 3", "train.rate = 0.1")
    start(tmp_path, "train.rate = 0.1", "train.seed = 3", "train.updates = 10")
    start(tmp_path, "train.rate = 0.1", "train.seed = 3", "train.updates = 20")
    assert "train.updates = 20" in (tmp_path / "config.gin").read_text()
    assert len((tmp_path / "command.txt").read_text().splitlines()) == 3


def test_another_format_is_refused(tmp_path):
    start(tmp_path, "train.seed = 3")
    for text in ("commit abc123\n", "format 2\ncommit abc123\n"):
        (tmp_path / "versions.txt").write_text(text)
        with pytest.raises(RunFolderError, match=r"another version of this program \(commit abc123\)"):
            start(tmp_path, "train.seed = 3")
        assert (tmp_path / "versions.txt").read_text() == text


def test_another_configuration_is_refused(tmp_path):
    start(tmp_path, "train.seed = 3", "train.rate = 0.1")
    before = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "lock"}
    with pytest.raises(RunFolderError) as refusal:
        start(tmp_path, "train.seed = 4", "train.rate = 0.1")
    message = str(refusal.value)
    assert "-train.seed = 3\n  +train.seed = 4" in message and "--root_dir" in message
    assert "train.rate" not in message
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "lock"} == before


def test_a_killed_start_can_be_repeated(tmp_path):
    start(tmp_path)
    (tmp_path / "config.gin").rename(tmp_path / "config.gin.new")
    start(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="file is a file"):
        start(tmp_path / "file")
    for where in ("file/run", "file/run/deeper"):
        with pytest.raises(UsageError, match=rf"{where}' cannot be used: .* Give another path"):
            start(tmp_path / where)


HOLDER = """
import sys
from agents.storage.run_folder import opened
with opened(sys.argv[1], ["holder"]):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_use_one_folder(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=run_folder.REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunFolderError, match=rf"process {holder.pid} .* is working in {tmp_path}"):
            start(tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    start(tmp_path)


def test_a_lock_that_its_holder_has_just_removed_holds_nothing(tmp_path, monkeypatch):
    flock = fcntl.flock

    def removed_meanwhile(lock, how):
        (tmp_path / "lock").unlink()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with pytest.raises(RunFolderError, match="Another process"):
        start(tmp_path)


@pytest.mark.parametrize("error", [UsageError, KeyboardInterrupt])
def test_a_start_that_fails_leaves_nothing(tmp_path, error):
    def fails(folder):
        with pytest.raises(error), run_folder.opened(folder, ["train.py"]) as root:
            (root / "train").mkdir(exist_ok=True)
            raise error("no")

    folder = tmp_path / "runs" / "run"
    fails(folder)
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)  # the user's own
    fails(folder)
    assert list(folder.iterdir()) == []
    start(folder)
    fails(folder)
    assert {"config.gin", "command.txt", "train"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("work", ["checkpoints/5", "statistics/0-0.tfrecord"])
def test_a_run_that_has_collected_something_stays(tmp_path, work):
    with pytest.raises(KeyError), run_folder.opened(tmp_path / "run", ["train.py"]) as root:
        (root / work).parent.mkdir()
        (root / work).write_text("x")
        raise KeyError
    assert (tmp_path / "run" / work).exists() and (tmp_path / "run" / "config.gin").exists()


def test_a_failing_start_removes_only_its_own(tmp_path):
    def fails(folder):
        with pytest.raises(UsageError), opened(folder, COMMAND) as root:
            for name in ("train/events.out.tfevents.1", "statistics/0-0.tfrecord", "native.log", "eval/x/y"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            (root / "train/mine.txt").touch()  # meanwhile
            (root / "mine.txt").touch()
            raise UsageError("no")

    fails(tmp_path / "new")
    left = {path.name for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert left == {"mine.txt", "y"}
    start(tmp_path / "killed")
    (tmp_path / "killed/config.gin").rename(tmp_path / "killed/config.gin.new")
    with pytest.raises(UsageError), opened(tmp_path / "killed", COMMAND):
        raise UsageError("no")
    assert list((tmp_path / "killed").iterdir()) == []


def test_a_folder_of_something_else_is_refused_and_left(tmp_path):
    for name in ("config.gin", "versions.txt", "lock", "command.txt", "config.gin.new", "mine"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("process of mine\n")
        before = (folder / name).stat().st_mtime_ns
        with pytest.raises(RunFolderError, match=name):
            start(folder)
        assert (folder / name).read_text() == "process of mine\n"
        assert (folder / name).stat().st_mtime_ns == before
        assert {path.name for path in folder.iterdir()} - {"lock"} == {name} - {"lock"}
    for folder in ("a/b/" + "x" * 300, "c/\udcff" + "x" * 255):
        with pytest.raises((RunFolderError, UsageError), match="[Gg]ive a"):
            start(tmp_path / "new" / folder)
        assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "write", full)
    with pytest.raises(
        RunFolderError, match=rf"Cannot write to {tmp_path}/a/run: No space left .*--root_dir"
    ):
        start(tmp_path / "a" / "run")
    assert list(tmp_path.iterdir()) == []


def test_new_files_take_free_names(tmp_path):
    start(tmp_path)
    (tmp_path / "config.gin.new").write_text("precious")
    start(tmp_path, "train.updates = 7")
    assert (tmp_path / "config.gin.new").read_text() == "precious"
    assert "updates = 7" in (tmp_path / "config.gin").read_text()
