"""Programs for accelerators; compiling them is slow, and needs `make accelerators`."""

import csv
import dataclasses

import pytest

from agents.sequences import SequenceShape
from benchmarks.accelerators import __main__ as accelerators
from benchmarks.accelerators import programs


def test_replicas_replace_variables_and_exchange_gradients_and_what_the_scaling_takes(monkeypatch):
    small = dataclasses.replace(programs.NETWORKS["quickstart"], shape=SequenceShape(1, 2, 1, 1))
    monkeypatch.setitem(programs.NETWORKS, "quickstart", small)
    none, ours = (programs.trace("quickstart", name, "float32", replicas=4) for name in ("none", "return"))
    # Network, Adam's two moments of it and its counter, sigma_v, and whether it is set.
    assert len(ours.replaced) == 3 * 15 + 3
    assert len(ours.results) > len(ours.replaced) and ours.float64 > 0
    assert ours.module.count(b"all-reduce.") > none.module.count(b"all-reduce.") >= 15


def test_the_page_is_made_of_the_rows():
    with accelerators.ROWS.open(newline="") as file:
        lines = list(accelerators.tables(list(csv.DictReader(file))))
    assert "\n".join(lines) in accelerators.PAGE.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("target", accelerators.NAMES)
def test_the_quickstart_compiles(target):
    if not accelerators.COMPILER.exists():
        pytest.skip("make accelerators installs the compilers")
    row = accelerators.compiled(programs.trace("quickstart", "return", "float32"), target)
    assert "failure" not in row and row["host"] == "{}" and int(row["temporaries"]) > 0
