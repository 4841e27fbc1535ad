"""That the agent learns an Atari game from pixels: ten minutes on one core."""

import subprocess
import sys
from pathlib import Path

import pytest

from rbs_tf import scores
from tests.agents.quickstart import scalars

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_breakout_is_learned_from_pixels(tmp_path):
    """Three times what a random policy gets, by exploring heads, after 100,000 steps."""
    command = [sys.executable, "train.py", "--config=atari_small", "--env=breakout", f"--root_dir={tmp_path}"]
    flags = ["--updates=2200", "--gin_bindings=train.final_eval_rounds = 0"]
    result = subprocess.run([*command, *flags], cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    returns = scalars(tmp_path / "train")["episode/return"]
    assert returns[-30:].mean() > 3 * scores.RANDOM["breakout"]
    assert returns[:20].mean() < 2 * scores.RANDOM["breakout"]
