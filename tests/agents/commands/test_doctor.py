"""`python -m agents doctor` on this machine, and on one where nothing works."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agents.commands import doctor
from tests.source_tree import ROOT

STUBS = {
    "tensorflow": "raise ImportError({home!r} + '/lib/libtensorflow.so: undefined symbol: _ZN6google')",
    "reverb": "import os\nos.abort()",
    "ale_py": "raise ModuleNotFoundError(\"No module named 'ale_py._ale_py'\")",
    "minatar": "import sys\nsys.exit('minatar ends the program')",
    # What a setuptools that is too new does to TensorBoard 2.15.
    "pkg_resources": "raise ModuleNotFoundError(\"No module named 'pkg_resources'\")",
}


def report(*arguments):
    """Lines by what they are about, and the exit status."""
    command = [sys.executable, "-m", "agents", "doctor", *arguments]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.stderr == ""
    lines = {line[8:26].strip(): (line[:7].strip(), line[27:]) for line in finished.stdout.splitlines()}
    assert len(lines) == len(finished.stdout.splitlines())
    return lines, finished.returncode


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Puts modules that fail in front of the real ones, for processes to come."""

    def put(**stubs):
        for name, code in stubs.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(code.format(home=str(Path.home())))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return put


def test_where_all_is_installed_nothing_has_failed():
    lines, status = report()
    assert [line for line in lines.items() if line[1][0] == "failed"] == [] and status == 0
    assert lines["tensorflow"][1].startswith("2.15.") and "~=2.15.0" in lines["tensorflow"][1]
    assert "CPU" in lines["devices"][1]
    assert lines["sigma"] == ("ok", "2, expected 2")
    assert lines["xla"] == ("ok", "3 * 3 + 4 * 4 = 25, compiled")
    assert "written and read" in lines["run: reverb"][1]
    assert "shows 0.5 where 0.5 was written" in lines["run: tensorboard"][1]


def test_where_nothing_works_every_check_says_why_and_what_to_type(broken):
    broken(**STUBS)
    lines, status = report()
    assert status == 1
    assert lines["python"][0] == "ok"  # what can be told is told
    said = {
        what.removeprefix("run: "): detail for what, (found, detail) in lines.items() if found == "failed"
    }
    assert said.keys() == {"tensorflow", "atari", "minatar", "reverb", "tensorboard"}
    assert "undefined symbol: _ZN6google" in said["tensorflow"]
    assert '"tensorflow~=2.15.0"' in said["tensorflow"]
    assert str(Path.home()) not in said["tensorflow"]
    assert "died of SIGABRT" in said["reverb"] and '"dm-reverb~=0.14.0"' in said["reverb"]
    assert "minatar ends the program" in said["minatar"]
    assert "No module named 'pkg_resources'" in said["tensorboard"]
    assert '"setuptools<80.9"' in said["tensorboard"]


def test_a_check_that_hangs_is_ended_with_all_that_it_has_started(broken, tmp_path):
    child = tmp_path / "child"
    broken(
        ale_py=f"""
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
pathlib.Path({str(child)!r}).write_text(str(child.pid))
child.wait()
"""
    )
    (finding,) = doctor._isolated("atari", limit=5.0)
    assert finding.status == "failed" and "no answer within 5 s" in finding.detail
    # On a slow machine the check may not have come so far as to start it.
    end = time.monotonic() + 30.0  # it has been killed, and takes a moment to be gone
    while child.exists() and _runs(child.read_text()):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_package_of_another_version_is_named_with_the_command_that_mends_it(monkeypatch):
    real = doctor.importlib.metadata.version
    monkeypatch.setattr(
        doctor.importlib.metadata, "version", lambda name: "82.0.1" if name == "setuptools" else real(name)
    )
    findings = {finding.what: finding for finding in doctor.check_packages()}
    assert findings["setuptools"].status == "failed"
    assert findings["setuptools"].detail.endswith('82.0.1, needs <80.9. Type: pip install "setuptools<80.9"')
    assert findings["numpy"].status == "ok"


@pytest.mark.parametrize(
    "found", ["0.9", "2.15.1", "2.15.0.post1", "2.16", "4.5.0", "80.8.0", "80.9.0", "80.10.2"]
)
def test_versions_are_judged_as_pip_judges_them(found):
    for text in doctor.importlib.metadata.requires("rbs-tf"):
        requirement = Requirement(text)
        assert doctor._satisfies(found, str(requirement.specifier)) == requirement.specifier.contains(
            found
        ), text
    names = [name for name, _, _ in doctor._requirements()]
    assert names == [Requirement(text).name for text in doctor.importlib.metadata.requires("rbs-tf")]


@pytest.mark.parametrize(
    ("variables", "culprit"),
    [
        ({}, None),
        ({"http_proxy": "http://proxy:3128"}, "http_proxy"),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1,localhost"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "127.0.0.1"}, "https_proxy"),
        (
            {"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost"},
            "https_proxy",
        ),  # gRPC does not read it
    ],
)
def test_a_proxy_that_reverb_would_wait_for_is_named(monkeypatch, variables, culprit):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert doctor._proxy_for_localhost() == culprit
