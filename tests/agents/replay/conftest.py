"""Fixtures for tests of a replay, whichever it is."""

import pytest

from agents.replay.replay import LOCAL, REVERB, Replay
from tests.agents.replay.streams import HEADS, OBSERVATION, SHAPE, STATE, replay_class


@pytest.fixture(params=[REVERB, LOCAL])
def backend(request) -> str:
    """Both of them, where Reverb is installed."""
    if request.param == REVERB:
        pytest.importorskip("reverb")
    return request.param


@pytest.fixture
def make(backend):
    """Makes replays and stops them."""
    made = []

    def make(**settings) -> Replay:
        defaults = {"capacity": 200, "min_sequences": 1, "error_buffer": 50.0, "patience": 1e6}
        made.append(replay_class(backend)(SHAPE, OBSERVATION, STATE, HEADS, **(defaults | settings)))
        return made[-1]

    yield make
    for replay in made:
        replay.stop()
