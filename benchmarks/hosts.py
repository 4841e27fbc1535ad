"""Trains on three hosts that one machine plays: network namespaces, each with its own Ray node, memory and disk.

    make hosts                                                           # as root, ten minutes
    .venv/bin/python -m benchmarks.hosts --network="20ms 50mbit 1%" --seeds=5 --updates=4000 --calm

The first host has driver, learner, evaluator and the only disk with the run folder, the others a collector each. On the
way the second is cut off for half a minute, and everything on the third is killed. Beside each run: what its hosts sent
and received, which says how often weights cross the wire.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import ctypes
import fcntl
import math
import os
import random
import re
import secrets
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agents.running.startup import quiet

quiet()

from agents.replay.backends import why_no_reverb  # noqa: E402

ROOT = Path(__file__).parents[1]
HEAD = "10.78.0.1"
NETWORKS = "1ms 1gbit 0%", "20ms 50mbit 1%"  # delay of either side's packets, rate, loss
COLUMNS = (
    *("network", "seed", "updates", "seconds", "exit_code", "steps", "last_return", "evaluation"),
    *("head_sent_mb", "others_received_mb", "head_received_mb", "restarts"),
)
CUT = 30.0  # seconds


class Cluster(NamedTuple):
    """Hosts with Ray on them."""

    names: list[str]
    wire: Wire
    begin: dict[str, Callable[[], Any]]  # starts Ray on a host
    folder: Path  # which the first host alone sees
    environment: dict[str, str]


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Wire(threading.Thread):
    """A switch between hosts, which delays frames and loses some; it needs nothing of the kernel but TAP devices.

    Attributes:
      cut: numbers of hosts that it carries nothing from and to.
      moved: bytes that each host has sent, and received.
    """

    def __init__(self, names: list[str], delay: float, loss: float):
        super().__init__(daemon=True)
        self.cut: set[int] = set()
        self.moved = [[0, 0] for _ in names]
        self._names, self._delay, self._loss = names, delay, loss
        self._late: collections.deque[tuple[float, int, bytes]] = collections.deque()
        self._over, self._ready = threading.Event(), threading.Event()

    def run(self) -> None:
        random_, end = random.Random(0), selectors.DefaultSelector()
        taps = [_tap(name) for name in self._names]
        for number, tap in enumerate(taps):
            end.register(tap, selectors.EVENT_READ, number)
        self._ready.set()
        while not self._over.is_set():
            wait = self._late[0][0] - time.monotonic() if self._late else 0.2
            for key, _ in end.select(max(wait, 0.0)):
                for frame in _frames(key.fd):
                    if random_.random() >= self._loss and key.data not in self.cut:
                        self.moved[key.data][0] += len(frame)
                        self._late.append((time.monotonic() + self._delay, key.data, frame))
            while self._late and self._late[0][0] <= time.monotonic():
                _, source, frame = self._late.popleft()
                for number, tap in enumerate(taps):
                    if number != source and number not in self.cut and frame[5] in (number + 1, 255):
                        self.moved[number][1] += len(frame)
                        with contextlib.suppress(BlockingIOError):  # full: it is lost
                            os.write(tap, frame)
        for tap in taps:
            os.close(tap)

    def begin(self) -> None:
        self.start()
        if not self._ready.wait(10.0):
            raise RuntimeError("no TAP device can be made here")

    def stop(self) -> None:
        self._over.set()
        if self.ident:
            self.join()


def _tap(host: str) -> int:
    """Makes eth0 on a host, which the calling thread is on from then on; returns its other end."""
    with open(f"/run/netns/{host}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter {host}")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", b"eth0", 0x1002)  # IFF_TAP | IFF_NO_PI
    fcntl.ioctl(tap, 0x400454CA, request)  # TUNSETIFF
    return tap


def _frames(tap: int) -> Iterator[bytes]:
    """What has arrived."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):
            yield os.read(tap, 2048)


@contextlib.contextmanager
def hosts(network: str = "0ms 1gbit 0%") -> Iterator[tuple[list[str], Wire]]:
    """Three network namespaces, in which commands have mounts of their own, and a wire; none reaches beyond it.

    Args:
      network: delay of what a host sends in ms, its rate, and how many frames are lost.

    Raises:
      RuntimeError: they cannot be made here.
    """
    names = ["rbs_host0", "rbs_host1", "rbs_host2"]
    delay, rate, loss = network.split()
    if os.geteuid() or not shutil.which("ip"):
        raise RuntimeError("network namespaces need root, and the command ip")
    wire = Wire(names, float(delay.removesuffix("ms")) / 1e3, float(loss.removesuffix("%")) / 100)
    try:
        for name in names:
            ip("netns", "add", name)
        wire.begin()
        for number, name in enumerate(names, 1):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "address", f"02:00:00:00:00:{number:02x}", "up")
            ip("-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")
            ip("-n", name, "route", "add", "default", "via", "10.78.0.254")  # as Ray asks for its own address
            words = ["tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate]
            subprocess.run([*words, "burst", "256kb", "latency", "400ms"], check=True)
        yield names, wire
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"no network namespace can be made here: {error.stderr}") from error
    finally:
        for name in names:
            end_all(name)
        wire.stop()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def end_all(host: str) -> None:
    """Kills everything on a host."""
    pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout
    for pid in map(int, pids.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def start(host: str, own: str, *command: str, **options: Any) -> subprocess.Popen[str]:
    """Starts a command on a host, `own` before it in the same shell."""
    words = ["ip", "netns", "exec", host, "bash", "-c", own + 'exec "$@"', "own", *command]
    return subprocess.Popen(words, cwd=ROOT, start_new_session=True, text=True, **options)


def nodes(
    names: list[str], slots: int, folder: Path, environment: dict[str, str]
) -> dict[str, Callable[[], Any]]:
    """Functions that start Ray on each host; the others try again when it ends, as a service manager would.

    Args:
      names: of the hosts.
      slots: processes for which the first has room; each other has room for one.
      folder: which the others do not see.
      environment: of Ray.
    """
    ray = str(Path(sys.executable).with_name("ray"))
    options = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}

    def head() -> subprocess.Popen[str]:
        where = f"--node-ip-address={HEAD} --port=6379 --temp-dir={folder}/ray"
        command = f"{ray} start --head {where} --num-cpus={slots} --include-dashboard=false --block"
        return start(names[0], "", *command.split(), **options)

    def other(name: str) -> subprocess.Popen[str]:
        own = f"for d in /dev/shm {folder}; do mount -t tmpfs tmpfs $d; done; "
        again = own + 'while :; do "$@"; sleep 3; done; : '
        command = f"{ray} start --address={HEAD}:6379 --num-cpus=1 --block"
        return start(name, again, *command.split(), **options)

    return {names[0]: head} | {name: lambda name=name: other(name) for name in names[1:]}


@contextlib.contextmanager
def cluster(network: str, slots: int) -> Iterator[Cluster]:
    """A Ray cluster of three hosts that asks for a token; `slots`: see `nodes`."""
    with hosts(network) as (names, wire), tempfile.TemporaryDirectory(prefix="rbs_hosts") as temporary:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        environment = os.environ | token | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        begin = nodes(names, slots, Path(temporary), environment)
        for name in names:
            begin[name]()
        yield Cluster(names, wire, begin, Path(temporary), environment)


def train(network: str, updates: int, seed: int, calm: bool, flags: list[str]) -> dict[str, Any]:
    """A run, as a row."""
    served = why_no_reverb() or "--replay=ray" in flags  # then there is no process for Reverb
    with cluster(network, 2 if served else 3) as (names, wire, begin, folder, environment):
        said = folder / "said"
        how = (
            f"--cluster={HEAD}:6379 --collectors=2 --root_dir={folder}/run --updates={updates} --seed={seed}"
        )
        command = [sys.executable, "train.py", *how.split(), *flags]
        began, end = time.monotonic(), 0.0
        with said.open("w") as output:
            run = start(names[0], "", *command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        while run.poll() is None:
            time.sleep(1.0)
            done = max(map(int, re.findall(r"updates (\d+)/", said.read_text().replace(",", ""))), default=0)
            if not calm and done >= updates / 4 and not end:
                wire.cut.add(1)
                end_all(names[2])
                end = time.monotonic() + CUT
            if end and time.monotonic() > end:
                wire.cut.clear()
                begin[names[2]]()
                end = math.inf
        text = said.read_text()
        print(text, file=sys.stderr)
        last = re.findall(r"return (\S+)  eval (\S+)  steps ([\d,]+\d)", text)[-1:] or [("", "", "")]
        (sent, received), *others = wire.moved
        return {
            "network": network,
            "seed": seed,
            "updates": updates,
            "seconds": round(time.monotonic() - began),
            "exit_code": run.returncode,
            **dict(zip(("last_return", "evaluation", "steps"), last[0], strict=True)),
            "head_sent_mb": round(sent / 1e6),
            "others_received_mb": " ".join(f"{took / 1e6:.0f}" for _, took in others),
            "head_received_mb": round(received / 1e6),
            "restarts": len(re.findall("starts again", text)),
        }


def weights(network: str) -> None:
    """Says what 53 MB of weights move when four collectors on two machines fetch them, as `RayClient.weights` does."""
    with cluster(network, 1) as (names, wire, _, _, environment):
        time.sleep(20.0)  # until all have joined
        run = start(names[0], "", sys.executable, "-c", FETCH, env=environment, stdout=subprocess.PIPE)
        said, _ = run.communicate()
        took = " and ".join(f"{received / 1e6:.0f}" for _, received in wire.moved[1:])
        print(f"{network}: {said.strip()}; MB received by the two machines: {took}", flush=True)


FETCH = """
import time, numpy, ray
ray.init(address="10.78.0.1:6379", configure_logging=False, log_to_driver=False)

@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD")
class Collector:
    def fetch(self, of):
        return ray.util.get_node_ip_address(), len(ray.get(of[0]))

collectors = [Collector.remote() for _ in range(4)]
ray.get([each.__ray_ready__.remote() for each in collectors])
of = [ray.put(numpy.random.default_rng(0).integers(0, 255, 53_000_000, numpy.uint8))]
begin = time.monotonic()
found = ray.get([each.fetch.remote(of) for each in collectors])
print(sorted(found), f"{time.monotonic() - begin:.1f} s")
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", action="append", help="delay, rate and loss, as '20ms 50mbit 1%%'")
    parser.add_argument("--seeds", type=int, default=1, help="runs for each")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--calm", action="store_true", help="no host is cut off or dies")
    parser.add_argument("--weights", action="store_true", help="only fetch weights")
    options, flags = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # hosts go then, too
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if not options.weights:
        writer.writeheader()
    for network in options.network or NETWORKS:
        if options.weights:
            weights(network)
        for seed in range(0 if options.weights else options.seeds):
            writer.writerow(train(network, options.updates, seed, options.calm, flags))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
