"""SIGINT and SIGTERM for runs that end in order.

Both are handled even where they were inherited as ignored, as every job that a script puts into the background has
SIGINT: there Python installs no handler of its own, and neither Ctrl-C nor Ray, which cancels a task by way of that
handler, would have any effect.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn


@contextlib.contextmanager
def on_first_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """Calls `stop` with the first SIGINT or SIGTERM; a second one ends the process at once.

    Outside of the main thread, the only one that can handle signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    numbers = (signal.SIGINT, signal.SIGTERM)

    def handle(number: int, _: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        stop(number)

    previous = {number: signal.signal(number, handle) for number in numbers}
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
