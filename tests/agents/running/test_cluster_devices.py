"""On a machine with a GPU the learner alone uses it: each TensorFlow that sees one takes all of its memory."""

import os
from unittest import mock

import pytest

pytest.importorskip("ray")

from agents.running.cluster import ClusterRun, Host  # noqa: E402
from tests.agents.running.test_embedded import configured  # noqa: E402


@pytest.mark.parametrize(("on_gpu", "visible"), [(True, "0"), (False, "-1")])
def test_a_process_sees_the_gpu_only_if_it_works_there(on_gpu, visible, monkeypatch):
    monkeypatch.setattr(os, "setpgid", lambda *_: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # as Ray sets it for the learner
    Host("", on_gpu)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.parametrize(
    ("strategy", "machines", "taken"),
    [("default", [0], 0), ("default", [0, 2], 1), ("mirrored", [1, 4, 2], 4), ("mirrored", [0], 0)],
)
def test_the_learner_alone_works_there_also_where_ray_has_found_none(strategy, machines, taken, tmp_path):
    ray = mock.MagicMock()
    found = [{"Alive": True, "Resources": {"CPU": 8.0, "GPU": float(gpus)}} for gpus in machines if gpus]
    without = {"Alive": True, "Resources": {"CPU": 8.0}}
    ray.nodes.return_value = [*found, without, {"Alive": False, "Resources": {"GPU": 8.0}}]
    with configured(f"train.strategy = '{strategy}'"):
        ClusterRun(ray, str(tmp_path), collectors=2, one_machine=True)
    options = ray.remote.return_value.options
    assert [call.kwargs.get("num_gpus", 0) for call in options.mock_calls if "num_cpus" in call.kwargs] == [
        0,
        taken,
        *(0, 0, 0),
    ]
    assert [call.args[1] for call in options.return_value.remote.call_args_list] == [
        False,
        True,
        *(False, False, False),
    ]
