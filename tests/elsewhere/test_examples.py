"""The programs of docs/examples, and the study that one of them is for."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import sac_scales
from tests.test_adopting import ROOT

torch = pytest.importorskip("torch", reason="make test-adopting runs this in .venv-rivals")


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/examples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scaling", ["off", "sigma", "units"])
def test_sac_runs_as_a_program_and_prints_returns(scaling):
    command = [sys.executable, "docs/examples/torch_sac.py", f"--scaling={scaling}", "--steps=1030"]
    environ = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "step 1,000  return of the last 10 episodes -" in done.stdout


def test_sac_in_units_does_the_same_for_rewards_times_a_power_of_two():
    torch.set_num_threads(1)
    sac, returns = example("torch_sac"), {}
    for scaling in ("units", "off"):
        for times in (1.0, 1024.0, 2.0**-10):
            returns[scaling, times] = sac.train(sac.make("Pendulum-v1", times), scaling, steps=1200)[1]
    assert len(returns["units", 1.0]) == 6
    assert returns["units", 1024.0] == returns["units", 2.0**-10] == returns["units", 1.0]
    assert returns["off", 1024.0] != returns["off", 1.0]


def test_an_episode_that_is_cut_goes_on_in_its_target(monkeypatch):
    """The discounts that SAC learns from are 0.99 at Pendulum's time-outs, and its replay holds no other."""
    sac, seen = example("torch_sac"), []
    values = sac.values

    def spied(critics, observations, actions):
        frame = sys._getframe(1)
        if "discounts" in frame.f_locals:
            seen.append(frame.f_locals["discounts"].numpy().copy())
        return values(critics, observations, actions)

    monkeypatch.setattr(sac, "values", spied)
    sac.train(sac.make("Pendulum-v1", 1.0), steps=1010)
    assert len(seen) > 9 and (np.concatenate(seen) == np.float32(0.99)).all()


def test_the_study_scores_the_last_fifth_and_names_where_units_are_below(tmp_path, monkeypatch):
    monkeypatch.setattr(sac_scales, "TABLE", tmp_path / "sac.csv")
    monkeypatch.setattr(sac_scales, "ENVIRONMENTS", {"Pendulum-v1": (5000, range(3))})
    asked = []

    def score(name, arm, times, seed, steps):
        asked.append((arm, times, seed, steps))
        level = -500.0 if arm == "fixed" and times != 1.0 else -400.0 if arm == "units" else -100.0
        return level + seed

    monkeypatch.setattr(sac_scales, "score", score)
    sac_scales.make()
    sac_scales.make()
    assert len(asked) == 3 * 3 * 4, "what is in the table is not run again"
    text = "\n".join(sac_scales.table())
    assert "| `units` | -399 [-401, -397] | -399 [-401, -397] | -399 [-401, -397] |" in text
    assert text.count("100 [98, 102]") == 2
    assert "below `learned` in Pendulum-v1 times 0.001" in text and "`fixed` in Pendulum-v1 times 1;" in text
    assert "`fixed` in Pendulum-v1 times 1000" not in text
