"""`python -m agents doctor` on this machine, and on one where nothing works."""

import sys

import pytest

from agents.commands import doctor
from tests.source_tree import ROOT

STUBS = {
    "reverb": "import os\nos.abort()",
    "ale_py": "raise ModuleNotFoundError(\"No module named 'ale_py._ale_py'\")",
    "minatar": "import sys\nsys.exit('minatar ends the program')",
    "tensorflow": "raise ImportError('libtensorflow.so:\\nundefined symbol: _ZN6google')",
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


def test_where_all_is_installed_no_check_fails(capsys):
    assert [doctor.main([f"--only={name}"]) for name in doctor.CHECKS] == [0] * len(doctor.CHECKS)
    found = lines(capsys.readouterr().out)
    assert [line for line in found.items() if line[1][0] == "failed"] == []
    assert found["tensorflow~=2.15.0"][1].startswith("2.15.")
    assert "CPU" in found["devices"][1]
    assert found["sigma"] == ("ok", "2 from XLA, expected 2")
    assert found["run: atari"] == ("ok", "a step of Pong gives (1, 4, 84, 84)")
    assert found["run: minatar"] == ("ok", "a step of Space Invaders gives (10, 10, 6)")
    assert found["run: reverb"] == ("ok", "0.5 read where 0.5 was written")


def test_every_check_that_fails_says_why_and_what_to_type_and_ends_no_other(broken, monkeypatch, capfd):
    broken(**STUBS)
    monkeypatch.chdir(ROOT)
    names = ("reverb", "atari", "tensorflow", "minatar", "machine")
    monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in names})
    assert doctor.main([]) == 1
    found = lines(capfd.readouterr().out)
    assert found["python"][0] == "ok"
    said = {what: detail for what, (status, detail) in found.items() if status == "failed"}
    for name, why in (
        ("atari", "No module named 'ale_py._ale_py'"),
        ("minatar", "minatar ends the program"),
        ("reverb", "SIGABRT"),
        ("tensorflow", "undefined symbol: _ZN6google"),
    ):
        detail = said.pop(f"run: {name}")
        assert why in detail and "Type: python -m pip install --force-reinstall" in detail, name
    assert said == {}
    monkeypatch.setattr(doctor, "CHECKS", {"minatar": doctor.CHECKS["minatar"]})
    assert doctor.main([]) == 1, "one that fails without a crash is a failure, too"


def test_a_check_that_hangs_is_ended_and_is_a_finding(broken, monkeypatch, capfd):
    broken(ale_py="import signal\nsignal.pause()")
    monkeypatch.setattr(doctor, "LIMIT", 1.0)
    assert doctor._isolated("atari") == 1
    said = capfd.readouterr().out
    assert said.startswith("failed  run: atari") and "--only=atari" in said and "timed out" in said


def test_a_package_of_another_version_or_none_is_named_with_the_command_that_mends_it(monkeypatch):
    real = doctor.importlib.metadata.version

    def version(name):
        if name in ("gym-notices", "ray"):
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return "82.0.1" if name == "setuptools" else real(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    findings = {what: (status, detail) for status, what, detail in doctor.check_packages()}
    assert findings["setuptools<80.9"] == ("failed", '82.0.1. Type: pip install "setuptools<80.9"')
    assert findings["gym-notices"] == ("failed", 'None. Type: pip install "gym-notices"')
    assert findings["tensorflow~=2.15.0"][0] == "ok"
    assert not [what for what in findings if what.startswith("ray")], "an extra may be missing"


def test_a_proxy_that_reverb_would_wait_for_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reverb", None)  # what comes after the proxy
    for variables, warned in (
        ({}, False),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1,localhost"}, False),
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
