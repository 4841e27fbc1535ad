"""Signals that end a run in order: SIGINT, SIGTERM, SIGHUP of a terminal that closes, SIGUSR1 that Slurm can send.

SIGINT, SIGTERM and SIGUSR1 are handled even where they were inherited as ignored, as every job that a script puts into
the background has SIGINT: there Python installs no handler of its own, and neither Ctrl-C nor Ray, which cancels a task
by way of that handler, would have any effect. SIGHUP stays ignored where `nohup` has ignored it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from agents.monitoring.progress import say_nothing_to_closed

TOGETHER = 1.0  # seconds


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """Calls `stop` with the first signal; a second one ends the process at once, and says so.

    A signal within a second of the first one changes nothing: a terminal, `timeout` and other wrappers may each pass on
    the same one, and a login that ends sends SIGTERM right after SIGHUP. Python handles signals when C++ returns.

    Outside of the main thread, the only one that can handle signals, it does nothing.
    """
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    heard: list[float] = []  # when signals arrived

    def handle(number: int, _: object) -> None:
        heard.append(time.monotonic())
        if len(heard) == 1:
            say_nothing_to_closed(sys.stdout, sys.stderr)
            stop(number)
        elif heard[-1] - heard[0] >= TOGETHER:
            words = (
                f"\nA second {signal.Signals(number).name}: the process ends at once, without a checkpoint.\n"
            )
            with contextlib.suppress(AttributeError, OSError, ValueError):  # a stand-in for a stream, or none
                os.write(sys.stderr.fileno(), words.encode())
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    with _handle_signals(handle, numbers):
        yield


def shield_children() -> contextlib.AbstractContextManager[None]:
    """Processes started inside ignore SIGHUP and SIGUSR1, which may be sent to all processes of a job."""
    return _handle_signals(signal.SIG_IGN, [signal.SIGHUP, signal.SIGUSR1])


@contextlib.contextmanager
def _handle_signals(handler: Any, numbers: list[signal.Signals]) -> Iterator[None]:
    """Handles signals like this, in the main thread, and then again as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def raise_signal(number: int) -> NoReturn:
    """Raises what Python programs expect of a signal: KeyboardInterrupt for SIGINT, SystemExit for others."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
