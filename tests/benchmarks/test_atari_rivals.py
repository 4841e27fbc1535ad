"""Stable-Baselines3 on Atari: settings, and the table; training itself takes hours and PyTorch."""

import subprocess
import sys

from benchmarks.rivals import sb3_atari
from tests.source_tree import ROOT

COMMITTED = ROOT / "docs/results/atari_rivals.csv"


def test_lines_are_added_below_those_that_the_table_has(tmp_path):
    table, lines = tmp_path / "new/rivals.csv", sb3_atari.read(COMMITTED)
    assert len(lines) == 16 and tuple(lines[0]) == sb3_atari.FIELDS
    assert sb3_atari.read(table) == []
    sb3_atari.write(table, lines[:4])
    sb3_atari.write(table, lines[4:])
    assert table.read_bytes() == COMMITTED.read_bytes()


def test_a_finished_run_is_not_repeated_and_needs_neither_pytorch_nor_tensorflow_to_see_it():
    command = [sys.executable, "-m", "benchmarks.rivals.sb3_atari", "--algorithm=qrdqn", "--game=breakout"]
    ended = subprocess.run([*command, "--core=0"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f"qrdqn breakout 0: already in {COMMITTED}" in ended.stdout
