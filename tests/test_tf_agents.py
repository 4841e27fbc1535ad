"""The programs of docs/tf_agents.md run as they stand, but for how long."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.pages import passes_with_keras_2, programs

PAGE = "docs/tf_agents.md"
PROGRAMS = programs(PAGE)
SHORTEST, PRIORITISED = PROGRAMS
SHORTER = {
    SHORTEST: ("range(600)", "range(23)"),
    PRIORITISED: ("2000", "20"),
}


def run(name, capsys, request, shorter):
    """Runs a program; returns its names and what it prints. In a process with Keras 2, if this one has Keras 3."""
    tf = pytest.importorskip("tensorflow")
    if name == PRIORITISED:
        pytest.importorskip("reverb")
        pytest.importorskip("minatar")
    if hasattr(tf.keras, "ops"):
        pytest.importorskip("tf_keras")  # it is too late for that in this process
        passes_with_keras_2(request)
        pytest.skip("it has passed with Keras 2")
    names = {"__name__": "program"}
    exec(compile(PROGRAMS[name].replace(*shorter), f"{PAGE}, {name}", "exec"), names)
    return names, capsys.readouterr().out


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_run(name, capsys, request, monkeypatch):
    # Not compiled, as larger networks are: compiling takes longer than all the rest.
    monkeypatch.setattr("networks.loss_behind_torsos.MOST_COMPILED_UNITS", 0)
    names, printed = run(name, capsys, request, SHORTER[name])
    assert re.search(r"^sigma .*[1-9]", printed, re.M)
    agent = names["agent"]
    assert agent.train_step_counter.numpy() >= 12
    if name == PRIORITISED:
        policies = {folder.name for folder in Path(names["root_dir"], "policies").iterdir()}
        assert {"policy", "greedy_policy", "collect_policy"} <= policies
        assert names["time_step"].is_last() and names["saved"].get_initial_state(1).core_state
    if name == SHORTEST:
        sigma = names["scaling"].sigma.numpy()
        assert sigma.shape == (10,) and names["scaling"] is agent.scaling.layer
        assert (np.diff(sigma[:5]) > 0).all()  # with the discounts


@pytest.mark.slow
def test_the_shortest_learns(capsys, request):
    """A greedy return of 150 or more; the lowest of seven runs was 200."""
    _, printed = run(SHORTEST, capsys, request, ("", ""))
    assert float(re.search(r"^return ([\d.]+)", printed, re.M)[1]) >= 150


def test_the_shortest_has_forty_lines():
    assert len([line for line in PROGRAMS[SHORTEST].splitlines() if line]) <= 40
