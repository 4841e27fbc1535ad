"""Ray is joined or started, twice in one process as well, and what keeps it from that is said in a sentence."""

import importlib
import os
import signal
import socket
import subprocess
import sys

import pytest

from agents.errors import UsageError
from agents.running import ray_connection
from agents.storage.run_folder import REPOSITORY
from tests.agents.started import listening, session

pytest.importorskip("ray")


MISMATCH = """Version mismatch: The cluster was started with:
    Python: 3.11.7
This process was started with:
    Python: 3.13.0"""


STAND_IN = """
import os
import signal

seen = []

def init(**options):
    if "BROKEN" in os.environ:
        raise ConnectionError("The path is too long.\\n  A hint, in many lines.")
    handlers = {name: signal.getsignal(getattr(signal, name)) for name in ("SIGHUP", "SIGUSR1")}
    seen.append(dict(os.environ) | handlers)

def shutdown():
    seen.append("shut down")
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Puts a module in front of the real one, which has not been imported yet."""
    (tmp_path / "ray.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray")
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    ray_connection._token.cache_clear()
    yield
    ray_connection._token.cache_clear()


def test_the_settings_of_ray_are_there_while_it_starts_and_no_longer(stand_in):
    before, handler, found = dict(os.environ), signal.getsignal(signal.SIGHUP), []
    for _ in range(2):
        with ray_connection.opened(None, slots=1) as ray:
            found.append(ray.seen[-1])
        assert ray.seen[-1] == "shut down" and dict(os.environ) == before
        assert signal.getsignal(signal.SIGHUP) is handler
    for environment in found:
        assert environment["RAY_AUTH_MODE"] == "token" and environment["RAY_worker_niceness"] == "0"
        # Its processes inherit this: a signal to all of a job shall not end them before the run has saved.
        assert environment["SIGHUP"] == environment["SIGUSR1"] == signal.SIG_IGN
        assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(REPOSITORY)
    assert len({environment["RAY_AUTH_TOKEN"] for environment in found}) == 1
    assert len(found[0]["RAY_AUTH_TOKEN"]) == 64


def test_a_ray_that_the_caller_has_imported_keeps_the_callers_settings(stand_in, monkeypatch):
    importlib.import_module("ray")
    monkeypatch.setenv("RAY_worker_niceness", "7")
    with ray_connection.opened(None, slots=1) as ray:
        assert "RAY_AUTH_MODE" not in ray.seen[-1] and ray.seen[-1]["RAY_worker_niceness"] == "7"


def test_a_ray_that_cannot_start_is_a_sentence(stand_in, monkeypatch):
    monkeypatch.setenv("BROKEN", "1")
    said = "Ray cannot start on this machine: .*leave out --collectors"
    with pytest.raises(UsageError, match=said) as caught, ray_connection.opened(None, slots=1):
        pass
    assert len(str(caught.value).splitlines()) == 1


HOST = """
from agents.running import ray_connection

with ray_connection.opened(None, 1) as ray:
    actor = ray.remote(type("Actor", (), {"ask": lambda self: 1})).remote()
    ray.get(actor.ask.remote())
    print(ray.get_runtime_context().gcs_address, ray_connection._token(), flush=True)
    input()
"""
VISITOR = """
import sys, ray
ray.init(address=sys.argv[1], configure_logging=False, log_to_driver=False)
print(ray.get(ray.remote(num_cpus=0)(lambda: "has run").remote()))
"""


@pytest.mark.slow
def test_ray_listens_on_the_loopback_only_and_runs_nothing_for_those_without_the_token():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    program = [sys.executable, "-c", HOST]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(program, cwd=REPOSITORY, start_new_session=True, **pipes) as host:
        address, token = host.stdout.readline().split()
        found = listening(session(host.pid))
        assert len(found) >= 5 and all(where.is_loopback for where, _ in found), found
        assert int(address.rpartition(":")[2]) in {port for _, port in found}
        for variables, runs in (
            ({"RAY_AUTH_MODE": "disabled"}, False),
            ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token[::-1]}, False),
            ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}, True),
        ):
            visitor = [sys.executable, "-c", VISITOR, address]
            variables |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # otherwise it would look elsewhere
            done = subprocess.run(visitor, env=environment | variables, capture_output=True, text=True)
            assert ("has run" in done.stdout) == runs == (not done.returncode), done.stderr
        host.communicate("\n")


def test_a_cluster_without_a_token_is_refused_unless_told_otherwise(stand_in, monkeypatch):
    def join():
        with ray_connection.opened("here:x", slots=1):
            pass

    with pytest.raises(
        UsageError, match="here:x: anybody who reaches .* Put RAY_AUTH_MODE=token .*=disabled where"
    ):
        join()
    for mode in ("token", "disabled"):
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        join()


def test_a_cluster_of_another_version_is_refused_with_both(stand_in, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = importlib.import_module("ray")
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(RuntimeError(MISMATCH)))
    with (
        pytest.raises(
            UsageError, match="here:x: Version mismatch: .* 3.11.7 This .* 3.13.0. All machines need"
        ),
        ray_connection.opened("here:x", slots=1),
    ):
        pass


def test_a_cluster_that_is_not_there_is_refused_at_once(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = "127.0.0.1:" + str(nobody_listens.getsockname()[1])
        refused = pytest.raises(UsageError, match=f"--cluster={address} cannot be reached: .* refused")
        with refused, ray_connection.opened(address, slots=1):
            pass
