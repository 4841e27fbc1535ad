"""How long a driver waits for a process that is to end: with a stand-in for Ray, and a clock of its own."""

import itertools
import os
import types
from unittest import mock

import pytest

from agents import RunFolderError
from agents.running import cluster, processes
from tests.agents.running.test_embedded import configured

LOOKS = 20  # of 100 seconds each


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A driver whose learner has begun, and ends by itself after so many looks."""
    ray = mock.MagicMock()
    ray.nodes.return_value = [{"Alive": True, "Resources": {}}]
    with configured():
        run = cluster.ClusterRun(ray, str(tmp_path), collectors=1, one_machine=True)
    run._progress = mock.Mock()
    learner, clock = run._learner, [0.0]

    def wait(tasks, timeout):
        clock[0] += 100.0 if timeout else 0.0
        return (tasks if clock[0] >= 100.0 * LOOKS else [], [])

    ray.wait.side_effect = wait
    learner.task = "the learner's task"
    monkeypatch.setattr(
        cluster, "time", types.SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _: None)
    )
    return run


def moves(name, step):
    """A status that changes with every look in this way, and in no other."""
    count = itertools.count()

    def look(member):
        member.status = {"pid": 1, "updates": 5, "waited": next(count)} | {name: step * next(count)}
        return 0.0

    return look


@pytest.mark.parametrize(
    ("name", "step"), [("updates", 1), ("steps", 1), ("pid", 1), ("cpu_seconds", 25.0), ("a file", 0)]
)
def test_what_moves_is_waited_for(run, tmp_path, monkeypatch, name, step):
    monkeypatch.setattr(cluster.Member, "look", moves(name, step))
    times = itertools.count(1)
    for _ in run._looks_until_end(run._learner):
        if name == "a file":
            (tmp_path / "file").touch()
            os.utime(tmp_path / "file", times=(next(times) + 2e9,) * 2)
    assert not run._ray.kill.called and not run._progress.say.called


@pytest.mark.parametrize(("name", "step"), [("returns", 1), ("cpu_seconds", 0.5)])
def test_what_only_answers_is_killed(run, monkeypatch, name, step):
    monkeypatch.setattr(cluster.Member, "look", moves(name, step))
    looks = list(run._looks_until_end(run._learner))
    assert len(looks) * 100.0 <= processes.PATIENCE + 200.0
    run._ray.kill.assert_called_once_with(run._learner.host, no_restart=True)
    (words,) = run._progress.say.call_args.args
    assert words.startswith("learner: told to end, it has done nothing for 300 s")


def test_a_replay_that_dies_whenever_it_starts_ends_the_run(run):
    class Died(Exception):
        pass

    class Failed(Exception):
        pass

    run._ray.exceptions = types.SimpleNamespace(RayActorError=Died, RayTaskError=Failed)
    run._ray.wait.side_effect = lambda tasks, timeout: (tasks, [])
    run._ray.get.side_effect = Died("The actor died: no module named rbs_tf")
    with pytest.raises(
        RunFolderError, match="died 11 times before it had started: The actor died: no module"
    ):
        run.run()
