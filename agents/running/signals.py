"""Signals that end a run in order: SIGINT, SIGTERM, SIGHUP of a terminal that closes, SIGUSR1 that Slurm can send.

SIGINT, SIGTERM and SIGUSR1 are handled even where they were inherited as ignored, as every job that a script puts into
the background has SIGINT: there Python installs no handler of its own, and neither Ctrl-C nor Ray, which cancels a task
by way of that handler, would have any effect. SIGHUP stays ignored where `nohup` has ignored it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from agents.monitoring.progress import say_nothing_to_closed

_NOT_BY_A_PERSON = (signal.SIGHUP, signal.SIGUSR1)
TOGETHER = 1.0  # seconds in which further signals repeat the first: `timeout` sends its own to a group twice
_set_handler = ctypes.CDLL(None).signal  # from any thread, where Python's is for the main one


@contextlib.contextmanager
def on_first_signal(stop: Callable[[int], None], repeated: bool = False) -> Iterator[None]:
    """Calls `stop` with the first signal; a second SIGINT or SIGTERM ends the process at once, and says so.

    Signals in the first second after the first one change nothing: a terminal, `timeout` and other wrappers may each
    pass on the same one.

    After SIGHUP or SIGUSR1 it takes a second SIGTERM: a login that ends sends the first right after SIGHUP, and Slurm
    after SIGUSR1, while the checkpoint is being written. A SIGTERM within the first second is not counted, and two more
    are needed then. A second SIGHUP or SIGUSR1 changes nothing.

    Python's handlers wait until C++ returns, which may take minutes, so a thread acts on the second signal.

    Args:
      repeated: the sender repeats its signal, as `ray.cancel` does; repeats before `stop` is called do not count. No
        thread then: the second signal ends the process without a word, also within the first second.

    Outside of the main thread, which alone can handle signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    heard: list[int] = []

    def handle(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) == 1:
            say_nothing_to_closed(sys.stdout, sys.stderr)
            stop(number)
        for each in numbers if repeated else ():
            if _ends([*heard, each]):
                signal.signal(each, signal.SIG_DFL)

    with contextlib.nullcontext() if repeated else _counted(numbers):
        previous = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _ends(heard: Sequence[int]) -> bool:
    """Whether the last of these signals ends the process at once."""
    first, *later = heard
    if later[-1:] == [signal.SIGTERM] and first in _NOT_BY_A_PERSON:
        return later.count(signal.SIGTERM) > 1
    return bool(later) and later[-1] not in _NOT_BY_A_PERSON


@contextlib.contextmanager
def _counted(numbers: Sequence[int]) -> Iterator[None]:
    """Ends the process as soon as a signal for which `_ends` arrives, also while the main thread is in C++."""
    arrived, arrives = os.pipe()
    os.set_blocking(arrives, False)
    heard: list[int] = []
    try:
        terminal = sys.stderr.fileno()  # 2 may be a file for what C++ prints
    except (AttributeError, OSError, ValueError):
        terminal = 2

    def count() -> None:
        first = math.inf
        while byte := os.read(arrived, 1):
            number = byte[0]
            if number not in numbers or (heard and time.monotonic() - first < TOGETHER):
                continue
            first = min(first, time.monotonic())
            heard.append(number)
            if _ends(heard):
                words = f"\nA second {signal.Signals(number).name}: the process ends at once, without a checkpoint.\n"
                with contextlib.suppress(OSError):
                    os.write(terminal, words.encode())
                _set_handler(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

    before = signal.set_wakeup_fd(arrives, warn_on_full_buffer=False)
    _in_use.append(arrives)
    counting = threading.Thread(target=count, name="signals", daemon=True)
    counting.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        _in_use.remove(arrives)
        os.close(arrives)
        counting.join()
        os.close(arrived)


_in_use: list[int] = []  # pipes for signals of this process
# A forked child inherits the pipe, and must not write its own signals there.
os.register_at_fork(after_in_child=lambda: _in_use and signal.set_wakeup_fd(-1))


@contextlib.contextmanager
def ignored_by_children() -> Iterator[None]:
    """Processes started inside ignore SIGHUP and SIGUSR1, which may be sent to all processes of a job."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in _NOT_BY_A_PERSON}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def raise_for(number: int) -> NoReturn:
    """Raises what Python programs expect of a signal: KeyboardInterrupt for SIGINT, SystemExit for others."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
