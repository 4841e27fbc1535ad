"""SIGINT and SIGTERM for runs that end in order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_first_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """Calls `stop` with the first SIGINT or SIGTERM; a second one ends the process at once.

    Outside of the main thread, which alone may mind signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop(number)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
