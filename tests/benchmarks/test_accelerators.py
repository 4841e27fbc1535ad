"""Programs for accelerators; compiling them is slow, and needs `make accelerators`."""

import csv

import pytest

from benchmarks.accelerators import __main__ as accelerators
from benchmarks.accelerators import programs


def test_a_program_replaces_its_variables():
    program = programs.trace("quickstart", "return", "float32")
    # Network, Adam's two moments of it and its counter, sigma_v, and whether it is set.
    assert len(program.replaced) == 3 * 15 + 3
    assert len(program.results) > len(program.replaced) and program.float64 > 0


def test_replicas_exchange_gradients_and_what_the_scaling_takes_from_the_batch():
    none, ours = (
        programs.trace("quickstart", name, "float32", replicas=4).module.count(b"all-reduce.")
        for name in ("none", "return")
    )
    assert ours > none >= 15


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
