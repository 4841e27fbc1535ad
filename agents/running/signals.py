"""Signals that end a run in order: SIGINT, SIGTERM, SIGHUP of a terminal that closes, SIGUSR1 that Slurm can send.

SIGINT, SIGTERM and SIGUSR1 are handled even where they were inherited as ignored, as every job that a script puts into
the background has SIGINT: there Python installs no handler of its own, and neither Ctrl-C nor Ray, which cancels a task
by way of that handler, would have any effect. SIGHUP stays ignored where `nohup` has ignored it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from agents.monitoring.progress import say_nothing_to_closed

_NOT_BY_A_PERSON = (signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def on_first_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """Calls `stop` with the first signal; a second SIGINT ends the process at once.

    So does SIGTERM after SIGINT or SIGTERM. After the others it does not: a login that ends sends it right after
    SIGHUP, and Slurm after SIGUSR1, while the checkpoint is being written. A second SIGHUP or SIGUSR1 changes nothing.

    Outside of the main thread, the only one that can handle signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def handle(number: int, _: object) -> None:
        ending = {signal.SIGINT} if number in _NOT_BY_A_PERSON else {signal.SIGINT, signal.SIGTERM}
        for each in numbers:
            signal.signal(each, signal.SIG_DFL if each in ending else signal.SIG_IGN)
        say_nothing_to_closed(sys.stdout, sys.stderr)
        stop(number)

    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ignored_by_children() -> Iterator[None]:
    """Processes that are started in here ignore SIGHUP and SIGUSR1, which may go to all processes of a job."""
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
