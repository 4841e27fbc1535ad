import pytest

from tests.agents.scripted import collecting


@pytest.fixture
def start():
    """Makes a collector and its replay, see `collecting`."""
    with collecting() as start:
        yield start
