"""A collector that is cut off from the network and comes back: a node of Ray in a network namespace of its own.

It needs the right to make namespaces (root), and takes minutes: `make chaos` runs it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agents.started import Started

pytest.importorskip("ray")

HERE, THERE, NAMESPACE = "10.77.0.1", "10.77.0.2", "rbs_tf_far"
SHORT, LONG = 5, 60  # seconds: the first one shorter than what Ray bears before it gives a node up


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=True)


@pytest.fixture
def far():
    """A network of two: this machine's namespace, and another one."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root, and the command ip")
    try:
        ip("netns", "add", NAMESPACE)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.decode()}")
    try:
        ip("link", "add", "rbs_here", "type", "veth", "peer", "name", "rbs_there")
        ip("link", "set", "rbs_there", "netns", NAMESPACE)
        ip("addr", "add", f"{HERE}/24", "dev", "rbs_here")
        ip("-n", NAMESPACE, "addr", "add", f"{THERE}/24", "dev", "rbs_there")
        for words in (["link", "set", "rbs_here"], ["-n", NAMESPACE, "link", "set", "rbs_there"]):
            ip(*words, "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        yield
    finally:
        ip("link", "del", "rbs_here", check=False)
        ip("netns", "del", NAMESPACE, check=False)


@pytest.fixture
def nodes(far):
    """Ray's address; its second node, with room for one collector, is far away."""
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 5, "node_ip_address": HERE, **quiet})
    start = [str(Path(sys.executable).with_name("ray")), "start", f"--address={cluster.address}"]
    start += [f"--node-ip-address={THERE}", "--num-cpus=1", "--object-store-memory=83886080", "--block"]
    there = subprocess.Popen(
        ["ip", "netns", "exec", NAMESPACE, *start],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield cluster.address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(there.pid, signal.SIGKILL)
        there.wait()
        cluster.shutdown()


def far_away(pid):
    """Whether a process lives in the namespace."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


@contextlib.contextmanager
def cut_off():
    ip("link", "set", "rbs_here", "down")
    try:
        yield
    finally:
        ip("link", "set", "rbs_here", "up")


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_a_collector_that_is_cut_off_goes_on_or_is_replaced(nodes, tmp_path):
    with Started(
        tmp_path / "run", f"--cluster={nodes}", collectors=2, environment={"RAY_AUTH_MODE": "disabled"}
    ) as run:
        run.wait_for(lambda: run.updates > 5 and all(run.pid(f"collector {i}") for i in range(2)))
        pids = {name: run.pid(name) for name in ("collector 0", "collector 1")}
        (cut,) = (name for name, pid in pids.items() if far_away(pid))
        before = run.pid(cut)
        with cut_off():
            run.wait_for_more_updates()  # the other one feeds the learner
            time.sleep(SHORT)
        run.wait_for_more_updates()
        assert run.pid(cut) == before and far_away(before), "it goes on"
        with cut_off():
            run.wait_for(lambda: run.pid(cut) not in (before, None))
            run.wait_for_more_updates()
            assert not far_away(run.pid(cut)), "its place is taken here"
            time.sleep(LONG)
            assert far_away(before), "it knows nothing of that"
        run.wait_for(lambda: not far_away(before))
        run.wait_for_more_updates()
        assert f"{cut}: its process died; it starts again." in run.said()
        assert not any("fault" in line for line in run.said())
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 128 + signal.SIGINT
