"""Fixtures for tests of a replay, whichever it is."""

import pytest

from agents.replay.backends import LOCAL, RAY, REVERB
from agents.replay.replay import Replay
from tests.agents.replay.streams import HEADS, OBSERVATION, SHAPE, STATE, make_replay
from tests.agents.running.stand_in_ray import Calls


@pytest.fixture(params=[REVERB, LOCAL, RAY])
def backend(request) -> str:
    """All of them, where Reverb and Ray are installed."""
    if request.param != LOCAL:
        pytest.importorskip(request.param)
    return request.param


@pytest.fixture
def make(backend, monkeypatch, tmp_path_factory):
    """Makes replays and stops them."""
    made = []
    if backend == RAY:
        monkeypatch.setattr("agents.replay.ray_replay.ray", Calls(None))

    def make(**settings) -> Replay:
        defaults = {
            "capacity": 200,
            "min_sequences": 1,
            "error_buffer": 50.0,
            "read_ahead": 0,
        }
        if backend == REVERB:
            defaults["writes_to"] = tmp_path_factory.mktemp("server")
        made.append(make_replay(backend, SHAPE, OBSERVATION, STATE, HEADS, **(defaults | settings)))
        return made[-1]

    yield make
    for replay in made:
        replay.stop()
