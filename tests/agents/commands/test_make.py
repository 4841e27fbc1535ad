"""What can be imported after `make train`."""

import subprocess
import venv

from agents.storage.run_folder import REPOSITORY


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
