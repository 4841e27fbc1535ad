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


def lines(said):
    """What is said of each thing that was looked at."""
    found = {line[8:32].strip(): (line[:7].strip(), line[33:]) for line in said.splitlines()}
    assert len(found) == len(said.splitlines())
    return found


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Puts modules that fail in front of the real ones, for processes to come."""

    def put(**stubs):
        for name, code in stubs.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return put


def assert_all_is_well(found):
    assert [line for line in found.items() if line[1][0] == "failed"] == []
    assert found["tensorflow~=2.15.0"][1].startswith("2.15.")
    assert "CPU" in found["devices"][1]
    assert found["sigma"] == ("ok", "2 from XLA, expected 2")
    assert found["run: atari"] == ("ok", "a step of Pong gives (1, 4, 84, 84)")
    assert found["run: minatar"] == ("ok", "a step of Space Invaders gives (10, 10, 6)")
    assert found["run: reverb"] == ("ok", "0.5 read where 0.5 was written")
    assert "plugins" in found["run: tensorboard"][1]


def test_where_all_is_installed_no_check_fails(capsys):
    assert [doctor.main([f"--only={name}"]) for name in doctor.CHECKS] == [0] * len(doctor.CHECKS)
    assert_all_is_well(lines(capsys.readouterr().out))


@pytest.mark.slow
def test_where_all_is_installed_nothing_has_failed():
    command = [sys.executable, "-m", "agents", "doctor"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert_all_is_well(lines(finished.stdout))


def test_every_check_that_fails_says_why_and_what_to_type_and_ends_no_other(broken, monkeypatch, capfd):
    broken(**STUBS)
    monkeypatch.chdir(ROOT)
    names = ("reverb", "atari", "minatar", "tensorboard", "machine")
    monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in names})
    assert doctor.main([]) == 1
    found = lines(capfd.readouterr().out)
    assert found["python"][0] == "ok"
    said = {what: detail for what, (status, detail) in found.items() if status == "failed"}
    assert said.keys() == {"run: atari", "run: minatar", "run: reverb", "run: tensorboard"}
    assert "No module named 'ale_py._ale_py'" in said["run: atari"]
    assert "minatar ends the program" in said["run: minatar"]
    assert "SIGABRT" in said["run: reverb"]
    assert "No module named 'pkg_resources'" in said["run: tensorboard"]
    assert all("Type: python -m pip install --force-reinstall" in detail for detail in said.values())
    monkeypatch.setattr(doctor, "CHECKS", {"minatar": doctor.CHECKS["minatar"]})
    assert doctor.main([]) == 1, "one that fails without a crash is a failure, too"


def test_a_broken_tensorflow_is_one_line(broken):
    broken(tensorflow="raise ImportError('libtensorflow.so:\\nundefined symbol: _ZN6google')")
    command = [sys.executable, "-m", "agents", "doctor", "--only=tensorflow"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (1, "")
    ((status, detail),) = lines(finished.stdout).values()
    assert status == "failed" and "undefined symbol: _ZN6google" in detail


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


def test_a_proxy_that_reverb_would_wait_for_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reverb", None)  # what comes after the proxy
    for variables, warned in (
        ({}, False),
        ({"http_proxy": "http://proxy:3128"}, True),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1,localhost"}, False),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "127.0.0.1"}, True),
        # gRPC does not read it in capitals
        ({"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost"}, True),
    ):
        for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        said = []
        with pytest.raises(ImportError):
            said.extend(what for _, what, _ in doctor.check_reverb())
        assert said == ["proxy"] * warned, variables
