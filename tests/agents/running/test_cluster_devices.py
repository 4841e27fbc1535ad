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


@pytest.mark.parametrize("gpus", [0.0, 2.0])
def test_the_learner_alone_works_there_also_where_ray_has_found_none(gpus, tmp_path):
    ray = mock.MagicMock()
    ray.cluster_resources.return_value = {"GPU": gpus}
    with configured():
        ClusterRun(ray, str(tmp_path), collectors=2, one_machine=True)
    options = ray.remote.return_value.options
    assert [call.kwargs.get("num_gpus", 0) for call in options.mock_calls if "num_cpus" in call.kwargs] == [
        0,
        min(gpus, 1),
        *(0, 0, 0),
    ]
    assert [call.args[1] for call in options.return_value.remote.call_args_list] == [
        False,
        True,
        *(False, False, False),
    ]
