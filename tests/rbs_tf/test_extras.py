"""Where an optional package is missing, the error says what to type; what needs none works and imports none."""

import subprocess
import sys

import pytest

from tests.source_tree import ROOT

MAKE = "import rbs_tf.environments as e; e.make"
NUMPY_ALONE = (
    "rbs_tf.ReturnMoments.from_episode([1.0, 2.0], [0.9, 0.0]); assert rbs_tf.__version__ and dir(rbs_tf)"
)


@pytest.mark.parametrize(
    ("missing", "program", "what", "extra"),
    [
        ("tensorflow", "rbs_tf.ReturnScaling", "rbs_tf.ReturnScaling", "tensorflow"),
        ("gymnasium", "rbs_tf.CollectReturns", "rbs_tf.CollectReturns", "gymnasium"),
        ("tf_agents", f"{MAKE}('CartPole-v1')", "rbs_tf.environments", "tf-agents"),
        ("ale_py", f"{MAKE}('pong')", "Atari", "atari"),
        ("minatar", f"{MAKE}('minatar/freeway')", "MinAtar", "minatar"),
        ("ale_py", f"{MAKE}('CartPole-v1').reset()", "", ""),
        ("scipy, tensorflow, gymnasium", NUMPY_ALONE, "", ""),
    ],
)
def test_a_missing_package(missing, program, what, extra):
    blocked = (
        f"import sys; sys.modules.update(dict.fromkeys('{missing}'.split(', '))); import rbs_tf; {program}"
    )
    done = subprocess.run([sys.executable, "-c", blocked], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode == 0) == (not what), done.stderr
    if what:
        error = next(line for line in done.stderr.splitlines() if line.startswith("ImportError: "))
        assert f"{what} needs {missing}, " in error and f'"rbs-tf[{extra}]"' in error


HELP = """
from agents.commands.report import main
try:
    main(["--help"])
except SystemExit as end:
    assert not end.code
"""
REFUSALS = """
from agents.__main__ import main
empty = sys.argv[1]
for argv in [], ["nowhere"], ["--pretrained=none"], ["."], [".", "--sead=1"], [empty], [empty, "--video=x.avi"]:
    assert main(["play", *argv]) == 2
"""


@pytest.mark.parametrize(
    ("program", "said", "absent"),
    [
        ("import rbs_tf; rbs_tf.Scale()", "", {"tensorflow", "keras", "gymnasium"}),
        (
            "import agents; from agents import UsageError; assert not hasattr(agents, 'Agnet')",
            "",
            {"tensorflow", "numpy", "gin"},
        ),
        (HELP, "RUN_DIR --output", {"tensorflow"}),
        (REFUSALS, "", {"tensorflow"}),
    ],
)
def test_what_does_without_a_package_does_not_import_it(program, said, absent, tmp_path):
    (tmp_path / "config.gin").touch()
    program = f"import sys\n{program}\nassert not {absent} & {{*sys.modules}}"
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in said.split())
