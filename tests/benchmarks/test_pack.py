"""A packed folder: unpacked, it has the project and the packages; pip itself, which downloads, is left out."""

import subprocess
import sys

import pytest

from benchmarks import pack


@pytest.mark.parametrize("gpu", [False, True])
def test_packages_are_the_locked_ones_and_cudas_on_demand(gpu, tmp_path, monkeypatch):
    run, asked = subprocess.run, []

    def without_pip(command, **options):
        return asked.append(command) if "pip" in command else run(command, **options)

    monkeypatch.setattr(subprocess, "run", without_pip)
    monkeypatch.setattr(sys, "argv", ["pack", str(tmp_path / "packed"), *["--gpu"] * gpu])
    pack.main()
    ((*_, lock, cuda),) = asked if gpu else ([*asked[0], ""],)
    assert lock == "requirements.lock" and cuda.startswith("tensorflow[and-cuda]==") is gpu

    # Stands for the environment's interpreter: it writes down what it is asked to install.
    tools = tmp_path / "tools"
    tools.mkdir()
    python = tools / pack.PYTHON
    python.write_text(
        '#!/bin/sh\nmkdir -p .venv/bin\nprintf "#!/bin/sh\\necho \\$* > asked" > .venv/bin/python\n'
    )
    python.write_text(python.read_text() + "chmod +x .venv/bin/python\n")
    python.chmod(0o755)
    (tmp_path / "packed/wheels/one-1-py3-none-any.whl").touch()
    command = ["sh", "packed/unpack.sh", "there"]
    ended = run(command, cwd=tmp_path, env={"PATH": f"{tools}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    there = tmp_path / "there"
    assert (there / "train.py").exists() and (there / "configs/quickstart.gin").exists()
    assert (there / "asked").read_text().split()[-1] == str(tmp_path / "packed/wheels/one-1-py3-none-any.whl")
    assert f"cd {there}" in ended.stdout
