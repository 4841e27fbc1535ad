"""The connection to Ray: a cluster that is there, or a small one of this run's own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import secrets
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from agents.errors import UsageError
from agents.running.signals import raise_signal, shield_children, stop_on_signal
from agents.running.startup import set_environment
from agents.storage.run_folder import REPOSITORY

SAME_VERSIONS = "All machines need the same Python and the packages of the same lock file"
# Ray's own settings, unless the caller has made other ones.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray's is 15: beside anything else that computes, its workers would get next to no time.
    "RAY_worker_niceness": "0",
    # Bytes of an argument that travels within its call: Ray's 100,000 would send most rounds of a collector through the
    # object store, at twice the CPU time.
    "RAY_max_direct_call_object_size": str(2**21),
    # We say what is not shipped; Ray would tell us on every start what else it leaves out.
    "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES": "",
    # The run says who has died, in words of its own.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^A worker died or was killed while executing a task",
}
# Ray turns 127.0.0.1 into the machine's address in the network, and then listens on all interfaces, unless it is told,
# under this name on Linux, too, that there are no other machines.
_ONE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}


def require_ray() -> None:
    """Raises UsageError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--collectors and --cluster need Ray. Install it with: pip install ray")


def check_cluster(cluster: str | None) -> None:
    """Raises UsageError as `opened` does for a cluster that is open to everybody or does not answer."""
    if cluster is None:
        return
    if "RAY_AUTH_MODE" not in os.environ:
        raise UsageError(
            f"--cluster={cluster}: anybody who reaches the ports of a cluster without a token can run programs there. "
            "Put RAY_AUTH_MODE=token before `ray start` on all machines and before this command, and the same token "
            "into ~/.ray/auth_token on all of them (`ray get-auth-token --generate` makes one); or "
            "RAY_AUTH_MODE=disabled where nobody else can reach them"
        )
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _unreachable(cluster, error) from error


@contextlib.contextmanager
def opened(cluster: str | None, slots: int) -> Iterator[Any]:
    """Yields the module `ray`, connected; leaves the environment as it was.

    Args:
      cluster: address of a cluster to join; None starts one on this machine that ends with the connection.
      slots: how many processes the one that is started holds.

    Raises:
      UsageError: Ray is not installed, or cannot be reached or started; the cluster is open to everybody, or of another
        version.
    """
    require_ray()
    check_cluster(cluster)
    settings = _SETTINGS if cluster else _SETTINGS | _ONE_MACHINE | _single_machine_variables()
    with set_environment({name: value for name, value in settings.items() if name not in os.environ}):
        import ray

        # Python's own handlers do nothing while Ray waits in C++; nor does Ray leave them in their places.
        with warnings.catch_warnings(), stop_on_signal(raise_signal):
            warnings.simplefilter("ignore", FutureWarning)  # of Ray's own plans, nothing that users can do
            if cluster is None:
                _start(ray, slots)
            else:
                _join(ray, cluster)
        try:
            yield ray
        finally:
            ray.shutdown()


def _join(ray: Any, cluster: str) -> None:
    try:
        # Workers get the clone shipped: only rbs_tf is an installed package.
        shipped = {"working_dir": str(REPOSITORY), "excludes": [".git", ".venv", "runs", "docs", "tests"]}
        ray.init(address=cluster, runtime_env=shipped, **_QUIET)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable(cluster, error) from error


def _unreachable(cluster: str, error: Exception) -> UsageError:
    why = " ".join(str(error).split())
    if "ersion mismatch" in why:
        return UsageError(f"--cluster={cluster}: {why}. {SAME_VERSIONS}")
    return UsageError(
        f"--cluster={cluster} cannot be reached: {why}. Write the address that `ray start --head` has told; if it "
        f"is right, the token may be another one (RAY_AUTH_MODE is {os.environ['RAY_AUTH_MODE']})"
    )


def _start(ray: Any, slots: int) -> None:
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")]), os.getcwd()]
    try:
        with shield_children(), set_environment({"PYTHONPATH": os.pathsep.join(paths)}):
            ray.init(
                address="local",
                num_cpus=slots,  # not cores: the operating system shares those out
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                object_store_memory=_object_store(),
                **_QUIET,
            )
    except Exception as error:  # Ray has no kind of its own for it
        (first, *_) = str(error).strip().splitlines() or [type(error).__name__]
        logs = os.path.join(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray/session_latest/logs")
        raise UsageError(
            f"Ray cannot start on this machine: {first} Its logs: {logs}. Train in one process: leave out --collectors"
        ) from error


def _object_store() -> int:
    """Bytes for weights and rounds on their way: half of what shared memory has, of which only what is used is taken.

    Ray accepts no less than 75 MiB, and goes to the disk for what /dev/shm does not have.
    """
    shared = os.statvfs("/dev/shm")
    return max(80 * 2**20, min(2**30, shared.f_bavail * shared.f_frsize // 2))


def _single_machine_variables() -> dict[str, str]:
    """A token that only this run's processes have: without one, any user of the machine could run code through Ray.

    Ray reads it once, when it is imported. Where the caller has done that, the caller's settings stay.
    """
    imported_by_others = "ray" in sys.modules and not _token.cache_info().currsize
    if imported_by_others or "RAY_AUTH_MODE" in os.environ:
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}


@functools.cache
def _token() -> str:
    """One for the process."""
    return secrets.token_hex(32)
