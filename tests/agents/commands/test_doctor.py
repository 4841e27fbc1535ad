"""`python -m agents doctor` on this machine, and on one where nothing works."""

import sys

import pytest

from agents.commands import doctor
from tests.source_tree import ROOT

STUBS = {
    "reverb": "import os\nos.abort()",
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
    assert found["tensorflow"][1].startswith("2.15.") and found["commit"][0] == "ok"
    assert "CPU" in found["devices"][1]
    assert found["sigma"] == ("ok", "2 from XLA, expected 2")
    assert found["run: reverb"] == ("ok", "0.5 read where 0.5 was written")


def test_every_check_that_fails_says_why_and_what_to_type_and_ends_no_other(broken, monkeypatch, capfd):
    broken(**STUBS)
    monkeypatch.chdir(ROOT)
    names = ("reverb", "tensorflow", "machine")
    monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in names})
    assert doctor.main([]) == 1
    found = lines(capfd.readouterr().out)
    assert found["python"][0] == "ok"
    said = {what: detail for what, (status, detail) in found.items() if status == "failed"}
    for name, why in (
        ("reverb", "SIGABRT"),
        ("tensorflow", "undefined symbol: _ZN6google"),
    ):
        detail = said.pop(f"run: {name}")
        assert why in detail and "Type: python -m pip install --force-reinstall" in detail, name
    assert said == {}
    monkeypatch.setattr(doctor, "CHECKS", {"tensorflow": doctor.CHECKS["tensorflow"]})
    assert doctor.main([]) == 1, "one that fails without a crash is a failure, too"


def test_a_check_that_hangs_is_ended_and_is_a_finding(broken, monkeypatch, capfd):
    broken(tensorflow="import signal\nsignal.pause()")
    monkeypatch.setattr(doctor, "LIMIT", 1.0)
    assert doctor._isolated("tensorflow") == 1
    said = capfd.readouterr().out
    assert said.startswith("failed  run: tensorflow") and "--only=tensorflow" in said and "timed out" in said


def test_whose_agents_a_program_elsewhere_imports_is_said(broken, monkeypatch):
    def whose():
        return next((status, detail) for status, what, detail in doctor.check_machine() if what == "agents")

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert whose() == ("ok", str(ROOT / "agents/__init__.py"))
    broken(agents="")  # OpenAI's package has this name
    status, detail = whose()
    assert status == "warn" and "/agents/__init__.py, not this clone's. Type: export PYTHONPATH=" in detail


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
