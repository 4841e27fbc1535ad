"""Where an optional package is missing, the error says what to type; what needs none works and imports none."""

import subprocess
import sys

import pytest

from tests.source_tree import ROOT

MAKE = "import rbs_tf.environments as e; e.make"
NUMPY_ONLY = (
    "rbs_tf.ReturnMoments.from_episode([1.0, 2.0], [0.9, 0.0]); rbs_tf.numpy.ReturnScaling(); dir(rbs_tf)"
)


def run(program, *argv):
    return subprocess.run(
        [sys.executable, "-c", program, *argv], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("missing", "works", "refused"),
    [
        (
            ["tensorflow", "gymnasium", "scipy"],
            NUMPY_ONLY,
            [
                ("rbs_tf.ReturnScaling", "rbs_tf.ReturnScaling", "tensorflow", "tensorflow"),
                ("rbs_tf.collect_returns", "rbs_tf.collect_returns", "gymnasium", "gymnasium"),
            ],
        ),
        (
            ["tf_agents", "ale_py", "minatar"],
            "",
            [
                (f"{MAKE}('CartPole-v1')", "rbs_tf.environments", "tf_agents", "tf-agents"),
                (f"{MAKE}('pong')", "Atari", "ale_py", "atari"),
                (f"{MAKE}('minatar/freeway')", "MinAtar", "minatar", "minatar"),
            ],
        ),
    ],
)
def test_missing_packages(missing, works, refused):
    program = f"""import sys; sys.modules.update(dict.fromkeys({missing})); import rbs_tf
{works}
for program in {[program for program, *_ in refused]}:
    try:
        exec(program)
    except ImportError as error:
        print("ImportError:", error)
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stdout.splitlines() if line.startswith("ImportError: ")]
    for said, (_, what, package, extra) in zip(errors, refused, strict=True):
        assert f"{what} needs {package}, " in said and f'".[{extra}]"' in said


REFUSALS = """
from agents.__main__ import main
empty = sys.argv[1]
for argv in [], ["nowhere"], ["--pretrained=none"], ["."], [".", "--sead=1"], [empty], [empty, "--video=x.avi"]:
    assert main(["play", *argv]) == 2
"""


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import rbs_tf; rbs_tf.numpy.ReturnScaling()", {"tensorflow", "keras", "gymnasium"}),
        ("import agents; from agents import UsageError", {"tensorflow", "numpy", "gin"}),
        (REFUSALS, {"tensorflow"}),
    ],
)
def test_what_is_not_needed_is_not_imported(program, absent, tmp_path):
    (tmp_path / "config.gin").touch()
    done = run(f"import sys\n{program}\nassert not {absent} & {{*sys.modules}}", str(tmp_path))
    assert done.returncode == 0, done.stderr
