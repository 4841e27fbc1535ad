"""Signals end a run in order, in processes of their own: which ones, what a second one does, a terminal that closes."""

import contextlib
import functools
import os
import pty
import signal
import subprocess
import sys

import pytest

from agents.storage.run_folder import REPOSITORY

# A run that works until a signal, then saves for a while; it says what happens on a pipe.
RUN = """
import os, sys
from agents.monitoring.progress import Progress
from agents.running import signals
from agents.running.signals import on_first_signal
from agents.running.startup import native_messages_in
signals.TOGETHER = float(sys.argv[3])
said, (heard, hear) = os.fdopen(int(sys.argv[1]), "w", 1), os.pipe()
with native_messages_in(os.devnull), on_first_signal(lambda number: os.write(hear, bytes([number]))):
    print("ready", file=said)
    progress = Progress(10)
    number = os.read(heard, 1)[0]
    progress.say("saving")
    print("saving", file=said)
    os.read(int(sys.argv[2]), 1)
    progress.say("saved")
    print("saved", file=said)
print("Stopped", file=sys.stderr)
sys.exit(128 + number)
"""


class Started:
    """That run; `send` signals to it, `said` waits for its next word, `end` lets it end."""

    def __init__(self, wrapper=(), stream=subprocess.DEVNULL, together=0.0, **streams):
        read, write = os.pipe()
        until, self._end = os.pipe()
        command = [*wrapper, sys.executable, "-c", RUN, str(write), str(until), str(together)]
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), stream) | streams
        # Not ignored, as whatever `nohup make test` starts inherits it.
        listen = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, pass_fds=[write, until], preexec_fn=listen, **streams
        )
        os.close(write)
        os.close(until)
        self._said = os.fdopen(read)
        assert self.said() == "ready"

    def send(self, *numbers):
        for number in numbers:
            self.process.send_signal(number)

    def said(self):
        return self._said.readline().strip()

    def end(self):
        os.close(self._end)
        word = self.said()
        self._said.close()
        return word, self.process.wait()


@pytest.mark.parametrize(
    ("first", "others", "code"),
    [
        (signal.SIGINT, [signal.SIGHUP, signal.SIGUSR1], 130),
        (signal.SIGTERM, [signal.SIGHUP], 143),
        (signal.SIGHUP, [signal.SIGHUP, signal.SIGTERM], 129),
        (signal.SIGUSR1, [signal.SIGUSR1, signal.SIGTERM], 138),
        (signal.SIGTERM, [signal.SIGTERM], None),
        (signal.SIGUSR1, [signal.SIGINT], None),
        (signal.SIGINT, [signal.SIGTERM], None),
        (signal.SIGHUP, [signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR1], 129),
    ],
)
def test_the_first_signal_saves_and_only_a_persons_second_ends_at_once(first, others, code):
    run = Started()
    run.send(first)
    assert run.said() == "saving"
    run.send(*others)
    if code is None:
        assert run.said() == "" and run.process.wait() == -others[-1]
    else:
        assert run.end() == ("saved", code)


def test_a_signal_that_arrives_twice_is_one():
    run = Started(together=1e9)
    run.send(signal.SIGINT)
    assert run.said() == "saving"
    run.send(signal.SIGINT, signal.SIGTERM)
    assert run.end() == ("saved", 130)


def test_a_second_signal_says_what_it_does():
    run = Started(stderr=subprocess.PIPE)
    run.send(signal.SIGINT)
    assert run.said() == "saving"
    run.send(signal.SIGINT)
    _, words = run.process.communicate()
    assert b"A second SIGINT: the process ends at once, without a checkpoint." in words


# One whose main thread waits in C for what never comes: Python calls no handler there. It has heard what it is sent.
STUCK = """
import ctypes, signal, sys
from agents.running import signals
from agents.running.signals import on_first_signal
signals.TOGETHER = 0.0
mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
with on_first_signal(lambda number: None):
    print("ready", flush=True)
    lock(mutex)
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGHUP, signal.SIGTERM),  # its third
        (signal.SIGUSR1, signal.SIGINT),
    ],
)
def test_a_second_signal_ends_what_is_stuck_in_c(first, second):
    run = subprocess.Popen([sys.executable, "-c", STUCK], cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(first)
    for _ in range(1000):  # two of the same that nobody has looked at are one to the kernel
        run.send_signal(second)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(0.05)
            break
    run.kill()
    run.wait()
    run.stdout.close()
    # The kernel delivers the smaller number first where both wait: then the other is the second.
    assert run.returncode in (-second, -first)


def test_signals_of_a_forked_child_are_not_its_parents():
    code = """
import os, signal
from agents.running.signals import on_first_signal
with on_first_signal(lambda number: None):
    if not (child := os.fork()):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
            os.kill(os.getpid(), number)
        os._exit(0)
    os.waitpid(child, 0)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


def test_a_hang_up_that_is_inherited_as_ignored_stays_so():
    run = Started(wrapper=["nohup"])
    run.send(signal.SIGHUP, signal.SIGUSR1)
    assert run.said() == "saving" and run.end() == ("saved", 138)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_terminal_that_closes_does_not_end_a_run_before_its_checkpoint(number):
    master, terminal = pty.openpty()
    # A run of a sweep is in a session of its own: SIGHUP does not reach it, and the sweep sends SIGTERM.
    run = Started(wrapper=["setsid", *["--ctty"] * (number == signal.SIGHUP)], stream=terminal)
    os.close(terminal)
    os.close(master)
    if number == signal.SIGTERM:
        run.send(number)
    assert run.said() == "saving" and run.end() == ("saved", 128 + number)
