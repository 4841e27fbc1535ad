"""train.py as a user starts it, watched and disturbed from outside."""

import contextlib
import ipaddress
import os
import pty
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from tests.agents.quickstart import REPOSITORY, command

# A distributed run at the size of a test; half of a process's start is tracing, which grows with the heads.
DISTRIBUTED = (
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "train.weights_interval = 50",
    "train.eval_interval = 5",
    "train.checkpoint_interval = 20",
    "Replay.error_buffer = 40.0",
)
PATIENCE = 500  # seconds for anything on a machine that does other things as well


def patience():
    """Longer where more processes want to run than there are cores."""
    return PATIENCE * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def session(leader, agents=True):
    """Processes of a session that are alive; `agents`: the two helpers of Ray's node, too."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rsplit(")", 1)[1].split()[:4]
            line = (stat.parent / "cmdline").read_bytes()
            agent = any(name in line for name in (b"Agent", b"agent.py", b"agent/main.py"))
            if int(session) == leader and state != "Z" and (agents or not agent):
                found.append(int(stat.parent.name))
    return found


def listening(pids):
    """Addresses and ports on which these processes wait for others to connect."""
    links, found = set(), set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # closed meanwhile
                links.add(os.readlink(descriptor))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in links:
                host, port = local.split(":")
                words = (bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
                address = ipaddress.ip_address(b"".join(words))
                found.add((getattr(address, "ipv4_mapped", None) or address, int(port, 16)))
    return found


class Started:
    """train.py in a session and a terminal of its own.

    Args:
      root: the run folder.
      *arguments: flags.
      collectors: 0: the embedded mode.
      bindings: of gin, beside those of `DISTRIBUTED`.
      prefix: a command that runs the command, such as `ip netns exec NAME`.
    """

    def __init__(
        self, root, *arguments, updates=100_000, collectors=1, bindings=(), prefix=(), environment=None
    ):
        self.root = root
        flags = (*([f"--collectors={collectors}"] if collectors else []), *arguments)
        terminal, its_end = pty.openpty()
        self.process = subprocess.Popen(
            [*prefix, *command(root, *flags, updates=updates, bindings=(*DISTRIBUTED, *bindings))],
            cwd=REPOSITORY,
            stdout=its_end,
            stderr=its_end,
            env=os.environ | {"COLUMNS": "400"} | (environment or {}),
            start_new_session=True,
        )
        os.close(its_end)
        self.output = ""
        self._reader = threading.Thread(target=self._read, args=(terminal,), daemon=True)
        self._reader.start()

    def _read(self, terminal):
        with os.fdopen(terminal, "rb", buffering=0) as stream, contextlib.suppress(OSError):  # EIO at its end
            while piece := stream.read(65536):
                self.output += piece.decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pid in self.others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def said(self):
        """What the terminal has shown beside the progress, line by line."""
        lines = re.split(r"[\r\n]+", self.output.replace("\x1b[K", ""))
        return [line for line in lines if line and not line.startswith("updates ")]

    def story(self):
        """What the terminal has shown, for a failure: the progress would bury the rest, so only its last state."""
        progress = re.findall(r"updates [\d,]+/[^\r\n]*", self.output)
        return "\n".join([*self.said(), *progress[-1:]])

    def counts(self, name, since=0):
        """All counts of updates or steps that the terminal has shown, in order; `since`: from that character on."""
        return [int(n.replace(",", "")) for n in re.findall(rf"{name} ([\d,]+)", self.output[since:])]

    @property
    def updates(self):
        """The highest count that the terminal has shown."""
        return max(self.counts("updates"), default=0)

    @property
    def resumed(self):
        """The update that this start says that it resumed at; None before, or without a checkpoint."""
        found = re.search(r"Resumed at update ([\d,]+)", self.output)
        return found and int(found[1].replace(",", ""))

    def pid(self, name):
        """Number of the process that plays a role, as the run folder says; None while there is none."""
        with contextlib.suppress(FileNotFoundError):
            text = (self.root / "processes.txt").read_text()
            found = re.search(rf"^{name}: (\d+) since", text, re.MULTILINE)
            return int(found[1]) if found and Path(f"/proc/{found[1]}").exists() else None

    def signal(self, number, *names):
        """Sends a signal to some roles' processes at once, as soon as they all have one; returns their numbers."""
        self.wait_for(lambda: all(self.pid(name) for name in names))
        pids = {name: self.pid(name) for name in names}
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):  # it has died by itself
                os.kill(pid, number)
        return pids

    def kill(self, *names):
        """kill -9 of some roles' processes at once; returns when others play these roles."""
        killed = self.signal(signal.SIGKILL, *names)
        self.wait_for(lambda: all(self.pid(name) not in (pid, None) for name, pid in killed.items()))

    def wait_for(self, condition):
        end = time.monotonic() + patience()
        while not condition():
            assert self.process.poll() is None, self.story()
            assert time.monotonic() < end, self.story()
            time.sleep(0.1)

    def wait_for_more_updates(self, more=5, before=None):
        before = self.updates if before is None else before
        self.wait_for(lambda: self.updates > before + more)

    def wait_for_resumption(self):
        self.wait_for(lambda: self.resumed is not None)

    def finish(self):
        code = self.process.wait(patience())
        self._reader.join(10)
        return code

    def others(self, agents=True):
        """Processes of the session beside the first that are alive; `agents`: the two helpers of Ray's node, too."""
        return [pid for pid in session(self.process.pid, agents) if pid != self.process.pid]

    def listening(self):
        """Addresses and ports on which the run's processes wait for others to connect."""
        return listening([self.process.pid, *self.others()])

    def assert_nothing_left(self, agents=True):
        end = time.monotonic() + patience() / 10
        while left := self.others(agents):
            lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
            assert time.monotonic() < end, lines
            time.sleep(0.1)
