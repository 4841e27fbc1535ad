"""`python -m agents doctor` on this machine, and on one where nothing works."""

import sys

import pytest

from agents.commands import doctor
from tests.source_tree import ROOT


def lines(said):
    """What is said of each thing that was looked at."""
    found = {line[8:32].strip(): (line[:7].strip(), line[33:]) for line in said.splitlines()}
    assert len(found) == len(said.splitlines())
    return found


def test_where_all_is_installed_no_check_fails(capsys):
    assert doctor.main([]) == 0
    found = lines(capsys.readouterr().out)
    assert found["python"][0] == "ok"
    assert found["tensorflow"][1].startswith("2.15.") and found["commit"][0] == "ok"
    assert "CPU" in found["devices"][1]
    assert found["sigma"] == ("ok", "2 from XLA, expected 2")
    assert found["run: reverb"] == ("ok", "0.5 read where 0.5 was written")


def test_a_check_that_fails_says_why_and_what_to_type_and_ends_no_other(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "reverb", None)
    names = ("reverb", "machine")
    monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in names})
    assert doctor.main([]) == 1
    found = lines(capsys.readouterr().out)
    assert found["python"][0] == "ok"
    status, detail = found["run: reverb"]
    assert status == "failed" and "import of reverb halted" in detail
    assert "Type: python -m pip install --force-reinstall" in detail


def test_whose_agents_a_program_elsewhere_imports_is_said(tmp_path, monkeypatch):
    def whose():
        return next((status, detail) for status, what, detail in doctor.check_machine() if what == "agents")

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert whose() == ("ok", str(ROOT / "agents/__init__.py"))
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/__init__.py").touch()  # OpenAI's package has this name
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
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
