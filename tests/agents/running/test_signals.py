"""Signals end a run in order, in processes of their own: which ones, what a second one does, a terminal that closes."""

import functools
import os
import pty
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from agents.running.signals import shield_children, stop_on_signal
from agents.storage.run_folder import REPOSITORY

# A run that works until a signal, then saves for a while; it says what happens on a pipe.
RUN = """
import os, sys
from agents.monitoring.progress import Progress
from agents.running import signals
from agents.running.signals import stop_on_signal
from agents.running.startup import redirect_native_messages
signals.TOGETHER = float(sys.argv[3])
said, (heard, hear) = os.fdopen(int(sys.argv[1]), "w", 1), os.pipe()
with redirect_native_messages(os.devnull), stop_on_signal(lambda number: os.write(hear, bytes([number]))):
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
        (signal.SIGINT, [signal.SIGINT, signal.SIGTERM], 130),
        (signal.SIGTERM, [], 143),
        (signal.SIGHUP, [signal.SIGTERM], 129),
        (signal.SIGUSR1, [signal.SIGUSR1], 138),
    ],
)
def test_the_first_signal_saves_and_those_within_a_second_repeat_it(first, others, code):
    run = Started(together=1e9)
    run.send(first)
    assert run.said() == "saving"
    run.send(*others)
    assert run.end() == ("saved", code)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_later_signal_ends_the_process_at_once_and_says_so(second):
    run = Started(stderr=subprocess.PIPE)
    run.send(signal.SIGINT)
    assert run.said() == "saving"
    run.send(second)
    _, words = run.process.communicate()
    assert run.said() == "" and run.process.returncode == -second
    name = second.name.encode()
    assert b"A second " + name + b": the process ends at once, without a checkpoint." in words


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


def test_a_thread_that_cannot_handle_signals_leaves_them_alone():
    def work():
        with stop_on_signal(print), shield_children():
            return signal.getsignal(signal.SIGUSR1)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(work).result() is signal.getsignal(signal.SIGUSR1)
