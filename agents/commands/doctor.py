"""Checks what works on this machine: `python -m agents doctor`. Paste what it prints into a bug report.

One line per finding: ok, warn or failed, what was checked, and the result or what to type. Every check runs in a
process of its own with a time limit: an import that fails, a crash or a hang ends only that check.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.commands.flags import Parser
from agents.storage.run_folder import REPOSITORY, versions

Finding = tuple[str, str, str]  # status, what, detail
OK, WARN, FAILED = "ok", "warn", "failed"
LIMIT = 120.0  # seconds per check
_REVERB = sys.version_info < (3, 12) and sys.platform == "linux"
_WITHOUT_REVERB = (
    "Reverb needs Linux with Python 3.10 or 3.11: the replay is local, and Ray's with --collectors"
)
_LOCK = "requirements.lock" if sys.version_info < (3, 12) else "requirements-newest.lock --no-deps"
_REINSTALL = f"Type: python -m pip install --force-reinstall -r {_LOCK} -e ."


def check_machine() -> Iterator[Finding]:
    """Cores and memory, the packages that results depend on, and whose `agents` a program elsewhere imports."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    yield OK, "machine", f"{os.cpu_count()} cores, {memory:.1f} GiB; the quickstart takes about 2"
    for line in versions().splitlines():
        name, _, version = line.partition(" ")
        yield WARN if version == "not installed" else OK, name, version
    # OpenAI's openai-agents has the same name. In the clone itself Python finds the clone's first.
    command = [sys.executable, "-c", "import agents; print(agents.__file__)"]
    found = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False).stdout.strip()
    if found == str(REPOSITORY / "agents" / "__init__.py"):
        yield OK, "agents", found
    else:
        where = f"a program in another folder imports {found or 'none'}, not this clone's"
        yield WARN, "agents", f"{where}. Type: export PYTHONPATH={REPOSITORY}"


def check_tensorflow() -> Iterator[Finding]:
    """The devices that TensorFlow sees, and sigma of an episode for which it is known, compiled by XLA."""
    import tensorflow as tf

    import rbs_tf

    yield OK, "devices", ", ".join(device.name for device in tf.config.list_physical_devices())
    if Path("/dev/nvidia0").exists() and not tf.config.list_physical_devices("GPU"):
        yield WARN, "gpu", 'TensorFlow does not see it. Type: pip install "tensorflow[and-cuda]==2.15.1"'
    layer = rbs_tf.ReturnScaling()
    layer.merge_state(rbs_tf.ReturnMoments.from_episode([0.0, 0.0, 3.0], [1.0, 1.0, 0.0]))
    # V[R] = 2, V[gamma] = 2/9, E[G^2] = 9
    sigma = float(tf.function(lambda: layer.sigma[0], jit_compile=True)())
    yield OK if abs(sigma - 2.0) < 1e-12 else FAILED, "sigma", f"{sigma:.12g} from XLA, expected 2"


def check_reverb() -> Iterator[Finding]:
    """A Reverb server on a free port: write and read."""
    if not _REVERB:
        yield WARN, "run: reverb", _WITHOUT_REVERB
        return
    proxies = any(os.environ.get(f"{kind}_proxy") for kind in ("grpc", "https", "http"))
    if proxies and "localhost" not in os.environ.get("no_proxy", ""):
        yield WARN, "proxy", "gRPC asks it for localhost and hangs. Type: export no_proxy=localhost"
    import reverb

    server = reverb.Server([reverb.Table.queue("doctor", max_size=1)])
    client = reverb.Client(f"localhost:{server.port}")
    client.insert([0.5], {"doctor": 1.0})
    read = float(next(client.sample("doctor"))[0].data[0])
    yield OK if read == 0.5 else FAILED, "run: reverb", f"{read} read where 0.5 was written"


CHECKS = {
    "machine": check_machine,
    "tensorflow": check_tensorflow,
    "reverb": check_reverb,
}


def main(command_line: Sequence[str] | None = None) -> int:
    """Prints the report; returns the exit status, 1 when something has failed."""
    parser = Parser(prog="python -m agents doctor", description=__doc__)
    parser.add_argument("--only", choices=CHECKS, help="one check, in this process")
    only = parser.parse_args(command_line).only
    if only is None:
        return max([_isolated(name) for name in CHECKS])
    try:
        return max([_say(*finding) for finding in CHECKS[only]()])
    except (Exception, SystemExit) as error:
        return _say(FAILED, f"run: {only}", f"{error!r:.300}. {_REINSTALL}")


def _isolated(name: str) -> int:
    """Runs one check in a process of its own; returns 1 if it has failed."""
    command = [sys.executable, "-m", "agents", "doctor", f"--only={name}"]
    try:
        subprocess.run(command, timeout=LIMIT, check=True, stderr=subprocess.DEVNULL)
    except subprocess.SubprocessError as error:
        told = getattr(error, "returncode", None) == 1
        return 1 if told else _say(FAILED, f"run: {name}", f"{error}. {_REINSTALL}")
    return 0


def _say(status: str, what: str, detail: str) -> int:
    """Prints a finding; returns 1 for one that has failed."""
    print(f"{status:<7} {what:<24} {detail}", flush=True)
    return int(status == FAILED)
