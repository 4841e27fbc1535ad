"""Stable-Baselines3 on Atari; training itself takes hours and PyTorch."""

import subprocess
import sys

from benchmarks.rivals import sb3_atari
from tests.source_tree import ROOT


def test_a_finished_run_is_not_repeated_and_needs_no_pytorch_to_see_it():
    command = [sys.executable, "-m", "benchmarks.rivals.sb3_atari", "--algorithm=qrdqn", "--game=breakout"]
    ended = subprocess.run([*command, "--core=0"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f"qrdqn breakout 0: already in {sb3_atari.TABLE}" in ended.stdout
