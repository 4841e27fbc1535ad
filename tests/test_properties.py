"""Property tests with examples that nobody has tried yet; elsewhere they repeat the same ones."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_properties_hold_for_new_examples():
    marked = ["-m", "hypothesis and not slow and not chaos", "--hypothesis-profile=exploring"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *marked]
    result = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-10_000:]
