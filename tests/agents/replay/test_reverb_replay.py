"""What only a replay in a Reverb server has: a network, and others who wait."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from agents.replay.backends import REVERB
from agents.replay.replay import ReplayStopped
from tests.agents.replay.streams import Stream

pytest.importorskip("reverb")


pytestmark = pytest.mark.parametrize("backend", [REVERB], indirect=True)


@pytest.mark.parametrize("spared", ["no_proxy", "no_grpc_proxy"])
def test_a_proxy_for_the_web_is_none_for_the_replay(make, monkeypatch, spared):
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(spared, "elsewhere.org")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody answers
    Stream(make()).insert(1)
    assert os.environ["no_grpc_proxy"] == "elsewhere.org,localhost"  # noqa: SIM112


def test_stopping_ends_waiting_readers_and_writers(make):
    replay, empty = make(error_buffer=2.0, min_sequences=2), make(min_sequences=2)
    waiting = Stream(replay)
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(waiting.insert, 20)
        reading = threads.submit(lambda: list(empty.dataset(batch_size=2)))
        while replay.inserted < 3:  # as many as the ratio lets in without a reader
            pass
        assert not writing.done() and not reading.done()
        replay.stop()
        empty.stop()
        assert reading.result() == []
        with pytest.raises(ReplayStopped):
            writing.result()
    waiting.writer.close()


def test_a_thread_that_waits_for_itself_gives_up_and_says_why(make, monkeypatch):
    monkeypatch.setattr("agents.replay.reverb_replay._PATIENCE", 0.5)
    stream = Stream(make(error_buffer=2.0))
    with pytest.raises(TimeoutError, match="3 insertions and 0 samples.*error_buffer"):
        stream.insert(20)
    stream.writer.close()


def test_what_a_killed_server_has_left_is_removed(make, tmp_path):
    for _ in range(2):  # the first is killed before its checkpoint is the run's
        replay = make(writes_to=tmp_path / "server")
        assert replay.size == 0
        Stream(replay).insert(1)
        replay._client.checkpoint()
        replay.stop()
