"""Whatever has the name of a file of a run: no command overwrites it, removes it, follows it or waits for it."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

from agents.storage import run_folder
from tests.agents.commands.small_runs import on_folder, seen

KINDS = "file", "link", "dangling link", "pipe", "folder"
FILES = (
    *run_folder._FILES,
    *(name + ".new" for name in run_folder._FILES),
    "best.npz.damaged",
    "tensorboard.new",
)
FOLDERS = *run_folder._FOLDERS, "replay", "replay/local"
INSIDE = (
    *(f"checkpoints/25/{name}" for name in ("manifest.json", "extra.json", "variables.index", "mine.txt")),
    "checkpoints/20/replay/mine.npy",
    *(f"checkpoints/{name}" for name in ("25.tmp", "27", "27.tmp", "27.replaced", "99", "mine.tmp")),
    *("statistics/0-0.tfrecord", "statistics/25-7.tfrecord", "statistics/mine.tfrecord"),
    *("train/events.out.tfevents.1.mine", "eval/mine.csv", "replay/mine.txt", "replay/local/table.json"),
)
NAMES = tuple(dict.fromkeys((*FILES, *FOLDERS, *INSIDE)))
CONTENT = "precious\n"


def put(path: Path, kind: str) -> None:
    """Puts something of a user's at a path, in place of what is there."""
    target = next(parent for parent in path.parents if parent.name == "run").with_name("target")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "file":
        path.write_text(CONTENT)
    elif kind == "link":
        target.write_text(CONTENT)
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        (path / "mine.txt").write_text(CONTENT)


def check(code, err, name, refused=False):
    assert code in ((2,) if refused else (0, 1, 2)), err
    assert "Traceback" not in err and "bug of rbs_tf" not in err and len(err.splitlines()) <= 6, err
    culprit = name.split("/")[0] if refused else Path(name).name
    assert code == 0 or culprit in err or "checkpoints" in err, (name, err)


def start(tmp_path, capsys, name, kind):
    root = tmp_path / f"{abs(hash((name, kind)))}" / "run"
    put(root / name, kind)
    before = seen(root.parent)
    code = on_folder("start", root)
    check(code, capsys.readouterr().err, name, refused=True)
    assert seen(root.parent) == before, (name, kind)


def go_on(finished, tmp_path, capsys, command, name, kind):
    root = tmp_path / f"{abs(hash((command, name, kind)))}" / "run"
    shutil.copytree(finished, root)
    put(root / name, kind)
    before = seen(root / name)
    code = on_folder(command, root)
    err = capsys.readouterr().err
    check(code, err, name)
    # A file by the name of one of the run's is the run's: that it is another's nobody can see.
    if kind != "file" or name in INSIDE:
        # A checkpoint that is damaged by it goes to another name, with all that is in it.
        assert seen(root / name) == before or name.startswith("checkpoints/25"), (command, name, kind)


def test_a_start_in_a_folder_that_holds_somebody_elses_leaves_it_as_it_was(tmp_path, capsys):
    for name, kind in [*itertools.product(NAMES, KINDS)][::13]:
        start(tmp_path, capsys, name, kind)


def test_a_run_that_goes_on_is_refused_where_its_names_are_taken(finished, tmp_path, capsys):
    for name, kind in [*itertools.product(run_folder._FILES, KINDS[1:])][::3]:
        go_on(finished, tmp_path, capsys, "resume", name, kind)


@pytest.mark.chaos
def test_every_command_where_every_name_is_taken(finished, tmp_path, capsys):
    for command, name, kind in itertools.product(("resume", "play", "export", "report"), NAMES, KINDS):
        go_on(finished, tmp_path, capsys, command, name, kind)
