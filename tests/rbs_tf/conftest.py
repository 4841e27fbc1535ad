"""What tests of the statistics share."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
def at_once() -> Iterator[Callable]:
    """Calls a function in four threads, which take turns as often as Python lets them."""

    def run(function: Callable, threads: int = 4) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(function) for _ in range(threads)]:
                done.result()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield run
    sys.setswitchinterval(interval)
