"""What `make train` says before it installs, and what can be imported then."""

import subprocess
import venv

import pytest

from agents.storage.run_folder import REPOSITORY

# A Python of this minor version whose pip has nothing to do.
PYTHON = """#!/bin/sh
[ "$1" = -c ] && echo {minor}
exit 0
"""


@pytest.mark.parametrize(("minor", "size"), [(10, "2.9 GB"), (13, "2.7 GB")])
def test_the_first_installation_says_how_much_it_takes_and_no_other_does(tmp_path, minor, size):
    (tmp_path / "bin").mkdir()
    python, installed = tmp_path / "bin" / "python", tmp_path / ".installed"
    python.write_text(PYTHON.format(minor=minor))
    python.chmod(0o755)

    def make(*options):
        command = ["make", "train", f"VENV={tmp_path}", *options]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    first = make()
    assert f"This happens once, and takes {size} of disk" in first and "Installing requirements" in first
    assert installed.exists()
    for said in (make(), make(f"--what-if={REPOSITORY}/requirements.lock", "--what-if=requirements.lock")):
        assert "once" not in said
    assert "Installing" in said  # the lock file has changed


def test_the_agent_is_found_from_any_folder(tmp_path):
    venv.create(tmp_path / "real")
    real, python = tmp_path / "real/bin/python", tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\n[ "$1" != -c ] || exec {real} "$@"\n')  # no pip, and no train.py
    python.chmod(0o755)
    subprocess.run(["make", "train", f"VENV={tmp_path}"], cwd=REPOSITORY, check=True)
    says = [real, "-c", "import agents, sys; print(agents.__file__, sys.path[-1])"]
    found = subprocess.run(says, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.split() == [str(REPOSITORY / "agents/__init__.py"), str(REPOSITORY)]
