"""Ray is joined or started, twice in one process as well, and what keeps it from that is said in a sentence."""

import os
import socket
import subprocess
import sys

import pytest

from agents import UsageError
from agents.running import ray_connection
from agents.storage.run_folder import REPOSITORY

pytest.importorskip("ray")


TWICE = """
import os
from agents.running import ray_connection

def niceness():
    return os.nice(0)

def settings():
    return {name: value for name, value in os.environ.items() if name.startswith(("RAY_", "PYTHONPATH"))}

before = settings()
for _ in range(2):
    with ray_connection.opened(None, slots=1) as ray:
        print(ray.get(ray.remote(os.getenv).remote("RAY_AUTH_MODE")))
        print(ray.get(ray.remote(niceness).remote()) - niceness())
    print(settings().items() - before.items() - {("RAY_CLIENT_MODE", "0")})  # the import of Ray leaves that one
"""


@pytest.mark.parametrize(("first", "mode"), [("", "token"), ("import ray", "None")])
def test_it_can_be_opened_twice_and_leaves_the_environment_as_it_was(first, mode):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ran = subprocess.run(
        [sys.executable, "-c", first + TWICE], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )
    # Workers of the same priority as the process: others that compute beside them do not starve them.
    assert ran.stdout.split() == [mode, "0", "set()"] * 2, ran.stderr


def test_a_ray_that_cannot_start_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("long" * 50)))
    with (
        pytest.raises(
            UsageError, match="Ray cannot start on this machine: .*Leave out --collectors"
        ) as caught,
        ray_connection.opened(None, slots=1),
    ):
        pass
    assert len(str(caught.value).splitlines()) == 1


def test_a_cluster_that_is_not_there_is_refused_at_once():
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = "127.0.0.1:" + str(nobody_listens.getsockname()[1])
        with (
            pytest.raises(UsageError, match=f"--cluster={address} cannot be reached: .* refused"),
            ray_connection.opened(address, slots=1),
        ):
            pass
