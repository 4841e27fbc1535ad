"""Where an optional package is missing, the error says what to type, and what does without it works."""

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
