"""A Python that cannot import Reverb trains in one process."""

import sys

import pytest

from agents.errors import UsageError
from agents.replay import replay
from agents.storage.checkpoint import ReplayFolders
from tests.agents.running.test_embedded import command, finished_process

BLOCKED = """
import sys
sys.modules["reverb"] = None  # whoever imports it gets an ImportError
from agents.running.startup import quiet
quiet()
from agents.commands.train import main
sys.exit(main(sys.argv[1:]))
"""


def train(root_dir, *arguments):
    _, _, *flags = command(root_dir, *arguments, updates=3)
    return finished_process([sys.executable, "-c", BLOCKED, *flags])


def test_one_process_takes_the_local_replay(tmp_path):
    result = train(tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "updates 3/3" in result.stdout and result.stderr == ""
    assert (tmp_path / "run/checkpoints/3/replay/table.json").exists()


@pytest.mark.parametrize("flag", ["--collectors=2", "--replay=reverb"])
def test_what_needs_reverb_is_refused_with_what_to_install(tmp_path, flag):
    result = train(tmp_path / "run", flag)
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert "pip install 'dm-reverb~=0.14.0'" in result.stderr and "--replay=local" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_that_needs_reverb_is_refused_with_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "saved").mkdir()  # without the local replay's table
    monkeypatch.setattr(replay, "why_no_reverb", lambda: "no wheel")
    with pytest.raises(
        UsageError, match="folder's checkpoint needs Reverb.*no wheel.*pip install.*--root_dir=DIR"
    ):
        replay.chosen_backend(ReplayFolders(tmp_path, tmp_path / "saved"))
