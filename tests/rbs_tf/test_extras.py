"""Where an optional package is missing, the error says what to type, and what does without it works."""

import subprocess
import sys

import pytest

from tests.source_tree import ROOT


@pytest.mark.parametrize(
    ("missing", "program", "said"),
    [
        (
            "tensorflow",
            "rbs_tf.ReturnScaling",
            'rbs_tf.ReturnScaling needs tensorflow, [...] "rbs-tf[tensorflow]"',
        ),
        (
            "tensorflow",
            "import rbs_tf.scalings",
            'rbs_tf.scalings needs tensorflow, [...] "rbs-tf[tensorflow]"',
        ),
        (
            "gymnasium",
            "rbs_tf.CollectReturns",
            'rbs_tf.CollectReturns needs gymnasium, [...] "rbs-tf[gymnasium]"',
        ),
        ("gymnasium", "import rbs_tf.environments", 'needs gymnasium, [...] "rbs-tf[gymnasium]"'),
        (
            "tf_agents",
            "import rbs_tf.environments as e; e.make('CartPole-v1')",
            'rbs_tf.environments needs tf_agents, [...] "rbs-tf[tf-agents]"',
        ),
        (
            "ale_py",
            "import rbs_tf.environments as e; e.make('pong')",
            'Atari needs ale_py, [...] "rbs-tf[atari]"',
        ),
        (
            "minatar",
            "import rbs_tf.environments as e; e.make('minatar/freeway')",
            'MinAtar needs minatar, [...] "rbs-tf[minatar]"',
        ),
        ("ale_py", "import rbs_tf.environments as e; e.make('CartPole-v1').reset()", ""),
        ("gin", "import rbs_tf.scalings as s; s.PopArt(2)", ""),
        ("scipy, tensorflow, gymnasium", "rbs_tf.discounted_returns([1.0, 2.0], [0.5, 0.0])", ""),
    ],
)
def test_a_missing_package(missing, program, said):
    blocked = (
        f"import sys; sys.modules.update(dict.fromkeys('{missing}'.split(', '))); import rbs_tf; {program}"
    )
    done = subprocess.run([sys.executable, "-c", blocked], cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ImportError: ")]
    assert (done.returncode == 0) == (not said), done.stderr
    assert all(part in errors[0] for part in said.split(" [...] ") if said)
