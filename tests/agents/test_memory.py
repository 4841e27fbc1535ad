"""Memory stays flat once the replay is full. Half an hour of every process: benchmarks/memory.py."""

import pytest

from benchmarks.memory import resident
from tests.agents.started import Started

SEQUENCES = 200  # of TINY's replay


def test_memory_stays_flat_with_a_full_replay(tmp_path):
    bindings = ("Replay.replay_ratio = 4.0", "Replay.error_buffer = 100.0", "train.checkpoint_interval = 100")
    with Started(tmp_path / "run", collectors=0, bindings=bindings) as run:
        marks = []
        for updates in (500, 1_000, 2_000):
            run.wait_for(lambda updates=updates: run.updates > updates)
            marks.append(resident(run.process.pid))
    print(marks)
    assert marks[-1] == pytest.approx(marks[0], rel=0.05)
