"""`python -m agents doctor` on this machine, and on one where nothing works."""

import subprocess
import sys

import pytest

from agents.commands import doctor
from tests.source_tree import ROOT

STUBS = {
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
    lines = {line[8:32].strip(): (line[:7].strip(), line[33:]) for line in finished.stdout.splitlines()}
    assert len(lines) == len(finished.stdout.splitlines())
    return lines, finished.returncode


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Puts modules that fail in front of the real ones, for processes to come."""

    def put(**stubs):
        for name, code in stubs.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return put


def test_where_all_is_installed_nothing_has_failed():
    lines, status = report()
    assert [line for line in lines.items() if line[1][0] == "failed"] == [] and status == 0
    assert lines["tensorflow~=2.15.0"][1].startswith("2.15.")
    assert "CPU" in lines["devices"][1]
    assert lines["sigma"] == ("ok", "2 from XLA, expected 2")
    assert lines["run: atari"] == ("ok", "a step of Pong gives (1, 4, 84, 84)")
    assert lines["run: minatar"] == ("ok", "a step of Space Invaders gives (10, 10, 6)")
    assert lines["run: reverb"] == ("ok", "0.5 read where 0.5 was written")
    assert "plugins" in lines["run: tensorboard"][1]


def test_every_check_that_fails_says_why_and_what_to_type_and_ends_no_other(broken):
    broken(**STUBS)
    lines, status = report()
    assert status == 1
    assert lines["sigma"][0] == lines["python"][0] == "ok"
    said = {what: detail for what, (found, detail) in lines.items() if found == "failed"}
    assert said.keys() == {"run: atari", "run: minatar", "run: reverb", "run: tensorboard"}
    assert "No module named 'ale_py._ale_py'" in said["run: atari"]
    assert "minatar ends the program" in said["run: minatar"]
    assert "SIGABRT" in said["run: reverb"]
    assert "No module named 'pkg_resources'" in said["run: tensorboard"]
    assert all("Type: python -m pip install --force-reinstall" in detail for detail in said.values())


def test_a_broken_tensorflow_is_one_line(broken):
    broken(tensorflow="raise ImportError('libtensorflow.so:\\nundefined symbol: _ZN6google')")
    lines, status = report("--only=tensorflow")
    assert status == 1 and lines["run: tensorflow"][0] == "failed"
    assert "undefined symbol: _ZN6google" in lines["run: tensorflow"][1]


def test_a_check_that_hangs_is_ended_and_is_a_finding(broken, capfd):
    broken(ale_py="import time\ntime.sleep(3600)")
    assert doctor._isolated("atari", limit=5.0) == 1
    said = capfd.readouterr().out
    assert said.startswith("failed  run: atari") and "--only=atari" in said and "timed out" in said


def test_a_package_of_another_version_is_named_with_the_command_that_mends_it(monkeypatch):
    real = doctor.importlib.metadata.version
    monkeypatch.setattr(
        doctor.importlib.metadata, "version", lambda name: "82.0.1" if name == "setuptools" else real(name)
    )
    findings = {what: (status, detail) for status, what, detail in doctor.check_packages()}
    assert findings["setuptools<80.9"] == ("failed", '82.0.1. Type: pip install "setuptools<80.9"')
    assert findings["tensorflow~=2.15.0"][0] == "ok"


def test_a_missing_package_is_named_unless_it_is_an_extra(monkeypatch):
    def nothing(name):
        raise doctor.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", nothing)
    findings = {what: (status, detail) for status, what, detail in doctor.check_packages()}
    assert findings["gym-notices"] == ("failed", 'None. Type: pip install "gym-notices"')
    assert not [what for what in findings if what.startswith("ray")]


@pytest.mark.parametrize(
    ("variables", "warned"),
    [
        ({}, False),
        ({"http_proxy": "http://proxy:3128"}, True),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1,localhost"}, False),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "127.0.0.1"}, True),
        # gRPC does not read it in capitals
        ({"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost"}, True),
    ],
)
def test_a_proxy_that_reverb_would_wait_for_is_named(monkeypatch, variables, warned):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "reverb", None)  # what comes after the proxy
    said = []
    with pytest.raises(ImportError):
        said.extend(what for _, what, _ in doctor.check_reverb())
    assert said == ["proxy"] * warned
