"""Programs for accelerators; compiling them is slow, and needs `make accelerators`."""

import csv
import json
import subprocess
import sys

import pytest

from benchmarks.accelerators import __main__ as accelerators
from benchmarks.accelerators import carrying, programs


def test_a_program_replaces_its_variables_and_is_the_same_next_time():
    program = programs.trace("quickstart", "return", "float32")
    assert program.signature == programs.trace("quickstart", "return", "float32").signature
    # Network, Adam's two moments of it and its counter, sigma_v, and whether it is set.
    assert len(program.replaced) == 3 * 15 + 3
    assert len(program.results) > len(program.replaced) and program.float64 > 0


def test_replicas_exchange_gradients_and_what_the_scaling_takes_from_the_batch(tmp_path):
    count = {
        name: programs.trace("quickstart", name, "float32", replicas=4).module.count(b"all-reduce.")
        for name in ("none", "return")
    }
    assert count["none"] >= 15 and count["return"] > count["none"]


def test_without_compilers_it_says_what_to_type(monkeypatch, tmp_path):
    monkeypatch.setattr(accelerators, "COMPILER", tmp_path / "python")
    monkeypatch.setattr(sys, "argv", ["accelerators"])
    with pytest.raises(SystemExit, match="Type: make accelerators"):
        accelerators.main()


def test_the_page_is_made_of_the_rows():
    with accelerators.ROWS.open(newline="") as file:
        lines = list(accelerators.tables(list(csv.DictReader(file))))
    assert "\n".join(lines) in accelerators.PAGE.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("target", accelerators.CARDS)
def test_the_quickstart_compiles(target):
    if not accelerators.COMPILER.exists():
        pytest.skip("make accelerators installs the compilers")
    row = accelerators.compiled(programs.trace("quickstart", "return", "float32"), target)
    assert "failure" not in row and row["host"] == "{}" and int(row["temporaries"]) > 0


@pytest.mark.slow
def test_a_carried_program_has_tensorflows_losses_elsewhere(tmp_path, monkeypatch):
    if not accelerators.COMPILER.exists():
        pytest.skip("make accelerators installs JAX")
    monkeypatch.setattr(carrying, "CASES", [("quickstart", "return", "float32", False, True)])
    monkeypatch.setattr(sys, "argv", ["carrying", str(tmp_path)])
    carrying.main()
    assert len(json.loads((tmp_path / "00/program.json").read_text())["losses"]) == carrying.UPDATES
    command = [accelerators.COMPILER, tmp_path / "running.py", tmp_path]
    (row,) = csv.DictReader(subprocess.check_output(command, text=True).splitlines())
    assert max(map(float, row["errors"].split())) < 1e-4 and float(row["ms"]) > 0
