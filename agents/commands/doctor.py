"""Says what works on this machine: `python -m agents doctor`. Paste what it prints into a bug report.

Versions, devices, ROMs, a Reverb round trip and a TensorBoard start, one line per check: ok, warn or failed, and what
to type. Every check runs in a process of its own with a time limit, so that an import that fails, a crash or a hang
ends that check alone. The exit status is 1 when something has failed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

OK, WARN, FAILED = "ok", "warn", "failed"
_STATUSES = (OK, WARN, FAILED)
_EXTRAS = {
    "minatar": "the quickstart plays it",
    "plots": "figures and tables",
    "cluster": "collectors in processes of their own",
    "bsuite": "benchmarks on bsuite",
    "video": "videos of a trained agent",
}


class Finding(NamedTuple):
    """One line of the report."""

    status: str  # "ok", "warn" or "failed"
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.status:<7} {self.what:<18} {_anonymous(self.detail)}"


def check_machine() -> Iterator[Finding]:
    """Python, operating system, cores and memory."""
    supported = sys.version_info[:2] in [(3, 10), (3, 11)]
    hint = "" if supported else "; TensorFlow 2.15 needs 3.10 or 3.11. Type: make lint PYTHON=python3.11"
    yield Finding(OK if supported else FAILED, "python", f"{platform.python_version()}{hint}")
    linux = sys.platform == "linux"
    yield Finding(
        OK if linux else FAILED,
        "platform",
        platform.platform() + ("" if linux else "; Reverb has wheels for Linux alone"),
    )
    yield Finding(OK, "cores", str(len(os.sched_getaffinity(0))))
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(lines[key].split()[0]) / 1024**2 for key in ("MemTotal", "MemAvailable"))
    yield Finding(
        OK if free > 2 else WARN,
        "memory",
        f"{free:.1f} of {total:.1f} GiB free" + ("" if free > 2 else "; the quickstart takes about 2"),
    )


def check_packages() -> Iterator[Finding]:
    """What the package's metadata asks for, beside what is installed."""
    try:
        yield Finding(OK, "rbs-tf", f"{importlib.metadata.version('rbs-tf')}{_commit()}")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(FAILED, "rbs-tf", f"not installed{_commit()}. Type: make lint, or pip install -e .")
        return
    missing_extras: dict[str, list[str]] = {}
    for name, specifiers, extra in _requirements():
        if extra is not None and extra not in _EXTRAS:
            continue  # of the developers' tools
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if extra is None:
                yield Finding(FAILED, name, f'not installed. Type: pip install "{name}{specifiers}"')
            else:
                missing_extras.setdefault(extra, []).append(name)
            continue
        asked = f"{found}, needs {specifiers or 'any'}"
        if _satisfies(found, specifiers):
            yield Finding(OK, name, asked)
        else:
            status = FAILED if extra is None else WARN
            yield Finding(status, name, f'{asked}. Type: pip install "{name}{specifiers}"')
    for extra, names in missing_extras.items():
        detail = (
            f'{", ".join(names)} not installed ({_EXTRAS[extra]}). To have it: pip install "rbs-tf[{extra}]"'
        )
        yield Finding(WARN if extra == "minatar" else OK, f"extra {extra}", detail)


def check_tensorflow() -> Iterator[Finding]:
    """The devices that TensorFlow sees, whether XLA compiles, and sigma of an episode for which it is known."""
    import tensorflow as tf

    import rbs_tf

    devices = tf.config.list_physical_devices()
    names = ", ".join(
        f"{device.device_type} {tf.config.experimental.get_device_details(device).get('device_name', '')}".strip()
        for device in devices
    )
    unseen = Path("/dev/nvidia0").exists() and not any(device.device_type == "GPU" for device in devices)
    hint = '; there is a GPU that it does not see. Type: pip install "tensorflow[and-cuda]==2.15.1"'
    yield Finding(WARN if unseen else OK, "devices", names + (hint if unseen else ""))

    compiled = tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True)
    result = float(compiled(tf.constant([3.0, 4.0])))
    yield Finding(OK if result == 25.0 else FAILED, "xla", f"3 * 3 + 4 * 4 = {result:g}, compiled")

    layer = rbs_tf.ReturnScaling()
    layer.merge_state(rbs_tf.ReturnMoments.from_episode([0.0, 0.0, 3.0], [1.0, 1.0, 0.0]))
    sigma = float(layer.sigma[0])  # V[R] = 2, V[gamma] = 2/9, E[G^2] = 9
    yield Finding(OK if abs(sigma - 2.0) < 1e-12 else FAILED, "sigma", f"{sigma:.12g}, expected 2")


def check_atari() -> Iterator[Finding]:
    """Atari: the games that ale-py brings, and one step of one of them."""
    import numpy as np
    from ale_py import roms
    from ale_py.vector_env import AtariVectorEnv

    games = roms.get_all_rom_ids()
    environment = AtariVectorEnv("pong", num_envs=1)
    environment.reset()
    observation, *_ = environment.step(np.zeros(1, np.int64))
    environment.close()
    status = OK if len(games) >= 57 else WARN
    yield Finding(status, "run: atari", f"{len(games)} games, a step of Pong gives {observation.shape}")


def check_minatar() -> Iterator[Finding]:
    """MinAtar, which the quickstart plays: one step."""
    if importlib.util.find_spec("minatar") is None:
        yield Finding(WARN, "run: minatar", 'not installed. Type: pip install "rbs-tf[minatar]"')
        return
    from minatar import Environment

    environment = Environment("space_invaders")
    environment.reset()
    environment.act(0)
    yield Finding(OK, "run: minatar", f"a step of Space Invaders gives {environment.state().shape}")


def check_reverb() -> Iterator[Finding]:
    """A Reverb server on a free port: write, read, stop."""
    if proxy := _proxy_for_localhost():
        hint = "gRPC takes it for localhost as well, and Reverb then waits for ever. Type: export no_proxy=localhost"
        yield Finding(WARN, proxy, f"is set; {hint}")
    import numpy as np
    import reverb

    table = reverb.Table(
        "doctor",
        sampler=reverb.selectors.Prioritized(0.9),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")
    client.insert([np.arange(3.0)], {"doctor": 1.0})
    ((sample,),) = client.sample("doctor", 1)
    same = np.array_equal(sample.data[0], np.arange(3.0))
    server.stop()
    yield Finding(
        OK if same else FAILED,
        "run: reverb",
        f"written and read through port {server.port}, {sample.data[0]}",
    )


def _proxy_for_localhost() -> str | None:
    """The variable that sends gRPC's calls of localhost to a proxy."""
    # It reads the names in lower case alone.
    spared = next((os.environ[name] for name in ("no_grpc_proxy", "no_proxy") if os.environ.get(name)), "")
    if "localhost" in spared:
        return None
    return next((name for name in ("grpc_proxy", "https_proxy", "http_proxy") if os.environ.get(name)), None)


def check_tensorboard() -> Iterator[Finding]:
    """TensorBoard, really started: it shows a number that was written for it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            folder,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        server = subprocess.Popen(
            [*command, "--reload_interval", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            said, address = [], None
            while address is None:
                line = server.stderr.readline()
                if not line:
                    yield _failed("tensorboard", _last_line("\n".join(said)), CHECKS["tensorboard"][1])
                    return
                said.append(line.strip())
                address = re.search(r"TensorBoard (\S+) at (http://\S+)", line)
            import tensorflow as tf

            with tf.summary.create_file_writer(folder).as_default(step=1):
                tf.summary.scalar("doctor", 0.5)
            version, url = address.groups()
            shown = _shown(url + "data/plugin/scalars/scalars?run=.&tag=doctor")
            status = OK if shown == 0.5 else FAILED
            yield Finding(status, "run: tensorboard", f"{version} shows {shown} where 0.5 was written")
        finally:
            server.kill()
            server.wait()


def _shown(url: str) -> float:
    """Asks until TensorBoard has read the file; whoever calls has a time limit."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # 127.0.0.1 is behind no proxy
    while True:
        try:
            with direct.open(url, timeout=10) as answer:
                return json.load(answer)[-1][2]
        except OSError:  # it does not know the run yet
            time.sleep(0.5)


# What to install again when a check fails, besides what its message says.
CHECKS = {
    "machine": (check_machine, ()),
    "packages": (check_packages, ()),
    "tensorflow": (check_tensorflow, ("tensorflow", "numpy", "scipy")),
    "atari": (check_atari, ("ale-py", "gymnasium", "numpy")),
    "minatar": (check_minatar, ("minatar",)),
    "reverb": (check_reverb, ("dm-reverb", "tensorflow")),
    "tensorboard": (check_tensorboard, ("tensorboard", "setuptools", "tensorflow")),
}


def main(command_line: Sequence[str] | None = None) -> int:
    """Prints the report; returns the exit status."""
    parser = argparse.ArgumentParser("python -m agents doctor", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CHECKS, help="one check, in this very process")
    parser.add_argument(
        "--limit", type=float, default=120.0, metavar="SECONDS", help="per check (%(default)s)"
    )
    options = parser.parse_args(command_line)
    if options.only:
        findings = _guarded(options.only)
    else:
        findings = (finding for name in CHECKS for finding in _isolated(name, options.limit))
    failed = 0
    for finding in findings:
        print(finding, flush=True)
        failed += finding.status == FAILED
    return int(failed > 0)


def _guarded(name: str) -> Iterator[Finding]:
    """What a check finds; what it raises is a finding, too."""
    check, packages = CHECKS[name]
    try:
        yield from check()
    except Exception as error:
        yield _failed(name, f"{type(error).__name__}: {error}", packages)


def _isolated(name: str, limit: float) -> Iterator[Finding]:
    """The same in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agents", "doctor", f"--only={name}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that all that it has started can be ended with it
    )
    packages = CHECKS[name][1]
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        yield from _parsed(out)
        yield Finding(
            FAILED,
            f"run: {name}",
            f"no answer within {limit:g} s. Type: python -m agents doctor --only={name}, to see where it is",
        )
        return
    yield from _parsed(out)
    if process.returncode < 0:
        yield _failed(name, f"died of {signal.Signals(-process.returncode).name}", packages)
    elif process.returncode > 1 or not out:
        yield _failed(name, _last_line(err), packages)


def _parsed(lines: str) -> Iterator[Finding]:
    for line in lines.splitlines():
        status, what, detail = line[:7].strip(), line[8:26].strip(), line[27:]
        if status in _STATUSES:
            yield Finding(status, what, detail)


def _failed(name: str, said: str, packages: Sequence[str]) -> Finding:
    """With what to type: the packages that this rests on, in the versions that the metadata asks for."""
    said = " ".join(said.split())
    if len(said) > 300:
        said = f"{said[:200]} ... {said[-100:]}"
    specifiers = {name: text for name, text, _ in _requirements()}
    wanted = " ".join(f'"{package}{specifiers.get(package, "")}"' for package in packages)
    return Finding(FAILED, f"run: {name}", f"{said}. Type: pip install {wanted}" if wanted else said)


def _requirements() -> list[tuple[str, str, str | None]]:
    """What the package's metadata asks for: name, specifiers such as "<2,>=1.2", and the extra that it belongs to."""
    try:
        required = importlib.metadata.requires("rbs-tf") or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    pattern = re.compile(r"""([\w.-]+)(?:\[.*?\])?\s*([^;]*?)\s*(?:;.*extra == ["']([\w-]+)["'])?""")
    return [pattern.fullmatch(text).groups() for text in required]


def _satisfies(found: str, specifiers: str) -> bool:
    """As `packaging` would say of plain versions; that package may be what is missing."""
    version = _numbers(found)
    for operator, text in re.findall(r"(~=|==|!=|<=|>=|<|>)\s*([\w.]+)", specifiers):
        bound, shared = _numbers(text), text.count(".")
        holds = {
            "~=": version >= bound and version[:shared] == bound[:shared],
            "==": version == bound,
            "!=": version != bound,
            "<=": version <= bound,
            ">=": version >= bound,
            "<": version < bound,
            ">": version > bound,
        }
        if not holds[operator]:
            return False
    return True


def _numbers(version: str) -> list[int]:
    """Major, minor, patch and so on, filled up with zeros."""
    numbers = [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]
    return numbers + [0] * (5 - len(numbers))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"


def _commit() -> str:
    """Of the clone that this file is in."""
    git = shutil.which("git")
    if git is None or not (Path(__file__).parents[2] / ".git").exists():
        return ""
    command = [git, "-C", str(Path(__file__).parents[2]), "rev-parse", "--short", "HEAD"]
    said = subprocess.run(command, capture_output=True, text=True)
    return f", commit {said.stdout.strip()}" if said.returncode == 0 else ""


def _anonymous(text: str) -> str:
    """Without the names of folders and of this machine that mean nothing to whoever reads the report."""
    folders = {sys.prefix: "<python>", str(Path(__file__).parents[2]): "<clone>", str(Path.home()): "~"}
    for folder, name in folders.items():
        if len(folder) > 1:
            text = text.replace(folder, name)
    node = platform.node()
    return re.sub(rf"\b{re.escape(node)}\b", "<host>", text) if node else text
