"""Memory stays flat once the replay is full."""

from pathlib import Path

import pytest

from tests.agents.started import Started


def resident(pid: int) -> float:
    """Resident memory of a process that is alive [MB], shared pages included."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@pytest.mark.slow
def test_memory_stays_flat_with_a_full_replay(tmp_path):
    bindings = ("Replay.replay_ratio = 4.0", "Replay.error_buffer = 100.0", "train.checkpoint_interval = 100")
    with Started(tmp_path / "run", collectors=0, bindings=bindings) as run:
        # The replay of 200 sequences is full; a batch that was kept at every update would make it 8% more.
        run.wait_for(lambda: run.updates > 200)
        before = resident(run.process.pid)
        run.wait_for(lambda: run.updates > 1_000)
        assert resident(run.process.pid) == pytest.approx(before, rel=0.05)
