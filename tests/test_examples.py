"""The programs of docs/examples that need TensorFlow run, and all of them keep their form."""

import os
import re
import subprocess
import sys

import pytest

from tests.source_tree import ROOT

FOLDER = ROOT / "docs/examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
START = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
# Compiling the agent's update takes longer than all the rest.
NOT_COMPILED = "import networks.loss_behind_torsos as compiled; compiled.MOST_COMPILED_UNITS = 0; "


@pytest.mark.parametrize(
    ("name", "scaling", "steps", "needs"),
    [
        ("keras_dqn", "off", 1020, ()),
        ("keras_dqn", "sigma", 1020, ()),
        ("keras_dqn", "units", 1020, ()),
        ("tf_agents_dqn", "units", 1020, ("tf_agents",)),
        ("tf_agents_sac", "units", 1010, ("tf_agents",)),
        ("tf_agents_r2d2", "units", 600, ("tf_agents", "reverb")),
    ],
)
def test_it_runs_as_a_program_and_prints_returns(name, scaling, steps, needs):
    tf = pytest.importorskip("tensorflow")
    for package in needs:
        pytest.importorskip(package)
    environ = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    if needs and hasattr(tf.keras, "ops"):
        pytest.importorskip("tf_keras")
        environ["TF_USE_LEGACY_KERAS"] = "1"
    start = NOT_COMPILED + START if name == "tf_agents_r2d2" else START
    options = [f"--scaling={scaling}", f"--steps={steps}", "--reward-scale=1000"]
    command = [sys.executable, "-c", start, str(FOLDER / f"{name}.py"), *options]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^step ([\d,]+)  return of the last \d+ episodes (\S+)$", done.stdout, re.M)
    assert len(found) == 1, done.stdout
    # Played at random, and without the rewards' factor: CartPole, Pendulum, the corridor.
    low, high = {"tf_agents_sac": (-1900, -500), "tf_agents_r2d2": (1, 108)}.get(name, (8, 60))
    assert low < float(found[0][1]) < high


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_marks_what_changes(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 150
    assert f"python docs/examples/{name}.py" in text.splitlines()[0]
    blocks = re.findall(r"# --- return-based scaling.* ---\n(.*?)^ *# ---$", text, re.M | re.S)
    assert 1 <= len(blocks) <= 2 and all(block.count("\n") <= 5 for block in blocks)
    for option in ("--reward-scale", "--scaling", "--seed", "--steps"):
        assert f'"{option}"' in text
    assert "def train(" in text and "def main()" in text and "print(" in text or name == "sb3_ppo"


def test_the_folders_page_lists_every_example():
    listed = re.findall(r"^\| \[`(\w+)\.py`\]\(\1\.py\)", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == NAMES
