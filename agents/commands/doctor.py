"""Checks what works on this machine: `python -m agents doctor`. Paste what it prints into a bug report.

One line per finding: ok, warn or failed, what was checked, and the result or what to type. An exception ends only the
check that raised it. A crash or a hang is in what would print the next line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.commands.flags import Parser
from agents.storage.run_folder import REPOSITORY, list_versions

Finding = tuple[str, str, str]  # status, what, detail
OK, WARN, FAILED = "ok", "warn", "failed"
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
    for line in list_versions().splitlines():
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
    Parser(prog="python -m agents doctor", description=__doc__).parse_args(command_line)
    failed = False
    for name, check in CHECKS.items():
        try:
            for status, what, detail in check():
                failed |= status == FAILED
                print(f"{status:<7} {what:<24} {detail}", flush=True)
        except (Exception, SystemExit) as error:
            failed = True
            print(f"{FAILED:<7} {f'run: {name}':<24} {f'{error!r:.300}'}. {_REINSTALL}", flush=True)
    return int(failed)
