"""A cluster of several nodes, simulated on this machine: one of them is lost."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.agents.started import Started

pytest.importorskip("ray")


OPEN = {"RAY_AUTH_MODE": "disabled"}  # as the cluster that a test makes


@pytest.fixture
def cluster():
    """Two nodes of Ray; the first has room for everything."""
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 5, **quiet})
    try:
        yield nodes, nodes.add_node(num_cpus=5, **quiet)
    finally:
        nodes.shutdown()


def on(node, run, names):
    """Which of the roles have their process on a node."""
    (raylet,) = node.all_processes["raylet"]
    found = set()
    for name in names:
        with contextlib.suppress(OSError):
            if (
                int(Path(f"/proc/{run.pid(name)}/stat").read_text().rsplit(")", 1)[1].split()[1])
                == raylet.process.pid
            ):
                found.add(name)
    return found


@pytest.mark.slow
def test_a_run_goes_on_when_a_node_with_half_of_the_collectors_is_lost(cluster, tmp_path):
    nodes, second = cluster
    collectors = {"collector 0", "collector 1"}
    with Started(tmp_path / "run", f"--cluster={nodes.address}", collectors=2, environment=OPEN) as run:
        run.wait_for(lambda: run.updates > 5 and all(run.pid(name) for name in collectors))
        everybody = {"replay", "learner", "evaluator"} | collectors
        (lost,) = on(second, run, everybody)
        assert lost in collectors, "the others stay where the command was given"
        before = run.pid(lost)
        nodes.remove_node(second, allow_graceful=False)
        run.wait_for(lambda: run.pid(lost) not in (before, None))
        run.wait_for_more_updates()
        assert on(nodes.head_node, run, everybody) == everybody
        left = [run.pid(name) for name in everybody]
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 128 + signal.SIGINT
        assert "Traceback" not in run.output
    for pid in left:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
