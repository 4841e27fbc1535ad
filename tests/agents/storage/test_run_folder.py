import errno
import fcntl
import subprocess
import sys
import threading

import gin
import pytest

import agents.settings  # noqa: F401  registers train
from agents.errors import RunFolderError, UsageError
from agents.storage import run_folder
from agents.storage.run_folder import opened

COMMAND = ["python", "train.py", "--gin_bindings=seed = 1"]


def start(folder, *bindings):
    gin.clear_config()
    gin.parse_config(list(bindings))
    with opened(folder) as run:
        run.begin(COMMAND)
        return run.path


def test_a_start_leaves_a_record(tmp_path):
    folder = start(tmp_path / "a" / "run", "train.seed = 3")
    assert "train.seed = 3" in (folder / "config.gin").read_text()
    assert (folder / "command.txt").read_text().endswith("  python train.py '--gin_bindings=seed = 1'\n")
    recorded = (folder / "versions.txt").read_text()
    assert f"python {sys.version.split()[0]}" in recorded
    assert "numpy " in recorded and "commit " in recorded


def test_the_same_configuration_goes_on(tmp_path):
    start(tmp_path, "train.seed = 3", "train.num_envs = 2")
    start(tmp_path, "train.num_envs = 2", "train.seed = 3", "train.updates = 10")
    assert "train.updates = 10" in (tmp_path / "config.gin").read_text()
    assert len((tmp_path / "command.txt").read_text().splitlines()) == 2


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "lock"}


def test_another_configuration_or_format_is_refused(tmp_path):
    start(tmp_path, "train.seed = 3", "train.num_envs = 2")
    before = contents(tmp_path)
    with pytest.raises(RunFolderError) as refusal:
        start(tmp_path, "train.seed = 4", "train.num_envs = 2")
    message = str(refusal.value)
    assert "-train.seed = 3\n  +train.seed = 4" in message and "--root_dir" in message
    assert "train.num_envs" not in message and contents(tmp_path) == before
    (tmp_path / "versions.txt").write_text("format 2\ncommit abc123\n")
    with pytest.raises(RunFolderError, match=r"another version of this program \(commit abc123\)"):
        start(tmp_path, "train.seed = 3", "train.num_envs = 2")
    assert (tmp_path / "versions.txt").read_text() == "format 2\ncommit abc123\n"


def test_a_killed_start_can_be_repeated(tmp_path):
    start(tmp_path)
    (tmp_path / "config.gin").rename(tmp_path / "config.gin.new")
    (tmp_path / "command.txt").unlink()  # which comes later
    start(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="file is a file"):
        start(tmp_path / "file")
    for where in ("file/run", "file/run/deeper"):
        with pytest.raises(UsageError, match=rf"{where}' cannot be used: .* Give another path"):
            start(tmp_path / where)


def test_a_disk_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(RunFolderError, match=r"keeps no file locks \(No locks available\).*on another disk"):
        start(tmp_path)


HOLDER = """
import sys
from agents.storage.run_folder import opened
with opened(sys.argv[1]) as folder:
    folder.begin(["holder"])
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


def test_a_look_at_the_lock_says_whether_a_run_goes_on_and_stops_none_that_starts(tmp_path):
    folder = start(tmp_path / "run")
    assert not run_folder.is_locked(folder) and not run_folder.is_locked(tmp_path)
    with open(folder / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_folder.is_locked(folder)
        fcntl.flock(lock, fcntl.LOCK_SH)  # somebody looks, for a moment
        threading.Timer(0.02, lock.close).start()
        start(folder)


def test_nothing_is_made_before_a_run_begins(tmp_path):
    def fails(folder, begin):
        with pytest.raises(KeyError), opened(folder) as run:
            if begin:
                run.begin(COMMAND)
            raise KeyError

    for folder in (tmp_path / "new" / "run", tmp_path / "mine"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        before = sorted(tmp_path.rglob("*"))
        fails(folder, begin=False)
        assert sorted(tmp_path.rglob("*")) == before
        fails(folder, begin=True)
        assert (folder / "config.gin").exists()
        start(folder)


def test_two_starts_of_a_new_folder_do_not_share_it(tmp_path):
    with opened(tmp_path / "run") as first, opened(tmp_path / "run") as second:
        first.begin(COMMAND)
        with pytest.raises(RunFolderError, match="Another process"):
            second.begin(COMMAND)


def test_what_a_run_has_finished_is_known_until_it_begins_again(tmp_path):
    with opened(tmp_path) as run:
        run.begin(COMMAND)
        run.finish(12, "a head")
    assert [run_folder.find_made_updates(tmp_path, updates) for updates in (8, 12, 13)] == [8, 12, None]
    assert run_folder.acting_head(tmp_path) == "a head"
    (tmp_path / "finished.json").unlink()
    (tmp_path / "checkpoints/20").mkdir(parents=True)
    assert run_folder.find_made_updates(tmp_path, 12) is None, "nobody's checkpoint"
    (tmp_path / "checkpoints/20/extra.json").touch()
    assert (
        run_folder.find_made_updates(tmp_path, 12) == 20
        and run_folder.find_made_updates(tmp_path, 20) is None
    )


@pytest.mark.parametrize("name", ["config.gin", "versions.txt", "mine"])
def test_a_folder_of_something_else_is_refused_and_left(tmp_path, name):
    (tmp_path / name).write_text("mine")
    for use in (start, run_folder.set_aside):
        with pytest.raises(RunFolderError, match=f"holds something else than a run: {name}"):
            use(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "write", full)
    with pytest.raises(
        RunFolderError, match=rf"Cannot write to {tmp_path}/a/run: No space left .*--root_dir"
    ):
        start(tmp_path / "a" / "run")


def test_what_is_set_and_read_by_nothing_is_named():
    @gin.configurable(module="tests")
    def reads(one=1, other=2):
        return one, other

    gin.clear_config()
    gin.parse_config("ONE = 3\ntests.reads.one = %ONE\ntests.reads.other = 4")
    assert run_folder.unread_note().endswith("reads.one, reads.other.")
    assert reads() == (3, 4) and run_folder.unread_note() == ""
