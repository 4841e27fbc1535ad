"""Addresses such as gs://bucket/run are refused wherever a path is taken, and leave nothing behind."""

from pathlib import Path

import gin
import pytest

from agents import __main__ as agents_main
from agents.commands.loading import check_folder
from agents.commands.train import main
from agents.errors import UsageError, local_path
from agents.storage import run_folder

ADDRESSES = ("gs://bucket/run", "s3://bucket/a.gin", "hdfs:///x.sweep", "abfs+x.2://x@y/z", "FILE:///z")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_refused_where_a_path_is_expected(address, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.sweep").write_text(f'config = "{address}.gin"')
    (tmp_path / "own.gin").write_text(f'include "{address}"')
    commands = [
        (main, flags)
        for flags in (
            [f"--root_dir={address}"],
            ["--root_dir", address],
            [f"--config={address}"],
            [f"--scaling={address}"],
            [f"--sweep={address}"],
            ["--sweep=own.sweep"],
            ["--config=own.gin"],
            [f"--gin_bindings=include '{address}'"],
        )
    ] + [
        (agents_main.main, command)
        for command in (
            ["play", address],
            ["play", "--pretrained=pong", f"--video={address}"],
            ["export", address, "out"],
            ["export", "--pretrained=pong", address],
            ["report", address],
            ["report", ".", f"--output={address}"],
        )
    ]
    for run, command in commands:
        assert run(command) == 2, command
        said = capsys.readouterr().err
        sentence, *where = said.splitlines()
        assert "is an address" in sentence and address in sentence and "Traceback" not in said, said
        assert not where or "include" in "".join(where)  # gin's: the file and its line
    for refused in (
        lambda: check_folder(Path(address)),
        lambda: run_folder.opened(address, []).__enter__(),
    ):
        with pytest.raises(UsageError, match="is an address"):
            refused()
    gin.clear_config()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.gin", "own.sweep"]


def test_the_path_in_a_files_address_is_named():
    with pytest.raises(UsageError, match="give /tmp/run.$"):
        local_path("file:///tmp/run")
    for path in ("runs/a:b", "./gs:/x", "C:", "/x/gs://y", "~/x", "scale:2"):
        assert local_path(path) == path
