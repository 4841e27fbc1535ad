"""Runs on hosts that share nothing but a network."""

import pytest

from benchmarks import hosts


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_run_survives_a_host_that_is_cut_off_and_one_that_dies(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(hosts, "CUT", 15.0)
    flags = ["--replay=ray", "--gin_bindings=train.eval_interval = 0"]
    try:
        row = hosts.train("5ms 100mbit 0.5%", updates=1500, seed=0, calm=False, flags=flags)
    except RuntimeError as error:
        pytest.skip(str(error))
    assert row["exit_code"] == 0 and row["restarts"] >= 1
    # Both hosts have fetched weights, and sent what they have collected.
    assert row["head_received_mb"] > 1 and all(int(mb) > 1 for mb in row["others_received_mb"].split())
