"""Trains on three hosts that one machine plays: network namespaces, each with its own Ray node, memory and disk.

    make hosts                                                           # as root, ten minutes
    .venv/bin/python -m benchmarks.hosts --network="20ms 50mbit 1%" --seeds=5 --updates=4000 --calm

The first host has driver, learner, evaluator and the only disk with the run folder, the others a collector each. In
mid-run the second is cut off for half a minute, and everything on the third is killed. Prints a row of CSV for each
run, with the megabytes that its hosts sent and received.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.running.startup import quiet

quiet()

from agents.replay.backends import why_no_reverb  # noqa: E402

ROOT = Path(__file__).parents[1]
HEAD = "10.78.0.1"
NETWORKS = "1ms 1gbit 0%", "20ms 50mbit 1%"  # delay of either side's packets, rate, loss
CUT = 30.0  # seconds


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
        self.over, self.ready = threading.Event(), threading.Event()

    def run(self) -> None:
        draws, end = random.Random(0), selectors.DefaultSelector()
        late: collections.deque[tuple[float, int, bytes]] = collections.deque()
        taps = [_tap(name) for name in self._names]
        for number, tap in enumerate(taps):
            end.register(tap, selectors.EVENT_READ, number)
        self.ready.set()
        while not self.over.is_set():
            wait = late[0][0] - time.monotonic() if late else 0.2
            for key, _ in end.select(max(wait, 0.0)):
                for frame in _frames(key.fd):
                    if draws.random() >= self._loss and key.data not in self.cut:
                        self.moved[key.data][0] += len(frame)
                        late.append((time.monotonic() + self._delay, key.data, frame))
            while late and late[0][0] <= time.monotonic():
                _, source, frame = late.popleft()
                for number, tap in enumerate(taps):
                    if number != source and number not in self.cut and frame[5] in (number + 1, 255):
                        self.moved[number][1] += len(frame)
                        with contextlib.suppress(BlockingIOError):  # full: it is lost
                            os.write(tap, frame)
        for tap in taps:
            os.close(tap)


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
def hosts(network: str) -> Iterator[tuple[list[str], Wire]]:
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
        wire.start()
        if not wire.ready.wait(10.0):
            raise RuntimeError("no TAP device can be made here")
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
        if wire.ident:
            wire.over.set()
            wire.join()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def end_all(host: str) -> None:
    """Kills everything on a host."""
    pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout
    for pid in map(int, pids.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def train(network: str, updates: int, seed: int, calm: bool, flags: list[str]) -> dict[str, Any]:
    """A run, as a row."""
    served = why_no_reverb() or "--replay=ray" in flags  # then there is no process for Reverb
    with hosts(network) as (names, wire), tempfile.TemporaryDirectory(prefix="rbs_hosts") as folder:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        environment = os.environ | token | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        ray = str(Path(sys.executable).with_name("ray"))
        # A collector's host sees neither the first one's memory nor its folder; its Ray starts again when it ends, as a
        # service manager would see to.
        own = f'for d in /dev/shm {folder}; do mount -t tmpfs tmpfs $d; done; while :; do "$@"; sleep 3; done; : '

        def start(host: str, *command: str, own: str = "", output: Any = subprocess.DEVNULL) -> Any:
            words = ["ip", "netns", "exec", host, "bash", "-c", own + 'exec "$@"', "own", *command]
            options = {"env": environment, "stdout": output, "stderr": subprocess.STDOUT}
            return subprocess.Popen(words, cwd=ROOT, start_new_session=True, **options)

        def join(host: str) -> None:
            start(host, ray, "start", f"--address={HEAD}:6379", "--num-cpus=1", "--block", own=own)

        where = (
            f"--node-ip-address={HEAD} --port=6379 --temp-dir={folder}/ray --include-dashboard=false --block"
        )
        start(names[0], ray, "start", "--head", *where.split(), f"--num-cpus={2 if served else 3}")
        for name in names[1:]:
            join(name)
        said = Path(folder, "said")
        how = (
            f"--cluster={HEAD}:6379 --collectors=2 --root_dir={folder}/run --updates={updates} --seed={seed}"
        )
        began, end = time.monotonic(), 0.0
        with said.open("w") as output:
            run = start(names[0], sys.executable, "train.py", *how.split(), *flags, output=output)
        while run.poll() is None:
            time.sleep(1.0)
            done = max(map(int, re.findall(r"updates (\d+)/", said.read_text().replace(",", ""))), default=0)
            if not calm and done >= updates / 4 and not end:
                wire.cut.add(1)
                end_all(names[2])
                end = time.monotonic() + CUT
            if end and time.monotonic() > end:
                wire.cut.clear()
                join(names[2])
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", action="append", help="delay, rate and loss, as '20ms 50mbit 1%%'")
    parser.add_argument("--seeds", type=int, default=1, help="runs for each")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--calm", action="store_true", help="no host is cut off or dies")
    options, flags = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # hosts go then, too
    writer = None
    for network in options.network or NETWORKS:
        for seed in range(options.seeds):
            row = train(network, options.updates, seed, options.calm, flags)
            if writer is None:
                writer = csv.DictWriter(sys.stdout, row, lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
