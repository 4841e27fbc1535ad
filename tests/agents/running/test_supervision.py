"""What the driver of a distributed run does when something happens: with a stand-in for Ray's module."""

import contextlib
import functools
import itertools
import math
import os
import platform
import signal
import subprocess

import pytest

import rbs_tf
from agents.errors import EnvironmentFault, RunFolderError, UsageError
from agents.replay.backends import RAY, REVERB
from agents.running import cluster, processes, roles
from agents.settings import Settings
from agents.workers.results import Result
from tests.agents.quickstart import configured
from tests.agents.running import stand_in_ray
from tests.agents.running.stand_in_ray import CAST, Died, Ray, collector_figures, learner_figures

NAMES = {"ReplayRole": "replay", "LearnerRole": "learner", "EvaluatorRole": "evaluator"}
NAMES |= {"CollectorRole": "collector 0"}
ONCE = dict.fromkeys(NAMES, 1)
FOR_EVER = itertools.repeat(None)
DONE = Result(60, 600, 7.0, None, head="clipped_0.9")


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Runs in `tmp_path` with a stand-in for Ray; returns the result and what it has said."""

    def train(ray, *bindings, collectors=1, address=None, backend=REVERB):
        monkeypatch.setattr(cluster.ray_connection, "opened", lambda *_: contextlib.nullcontext(ray))
        monkeypatch.setattr(cluster, "time", ray.clock())
        monkeypatch.setattr(cluster.build, "choose_backend", lambda *_, **__: backend)
        with configured("train.updates = 60", *bindings):
            started = cluster.started(Settings.from_gin(), str(tmp_path), collectors, address)
            try:
                with started as run:
                    result = run.run()
            finally:
                assert all(process.is_gone for process in ray.processes), "close ends every process"
        return result, capsys.readouterr().out

    return train


def failing(role, *errors, at=5):
    """A role whose first processes end with one of these errors each (None: in order), after so many steps."""
    left = list(errors)

    def steps(process):
        if not left:
            return (yield from CAST[role](process))
        error = left.pop(0)
        yield from itertools.islice(CAST[role](process), at)
        if error is not None:
            raise error

    return {role: steps}


def starts(ray):
    """How many processes have had each role."""
    return {role: len(ray.of(role)) for role in NAMES if ray.of(role)}


@pytest.mark.parametrize("backend", [REVERB, RAY])
def test_a_run_to_its_end(train, tmp_path, backend):
    ray = Ray()
    result, said = train(ray, collectors=2, backend=backend)
    assert result == DONE
    *server, learner, evaluator, one, two = ray.processes
    address = "127.0.0.1:8001" if server else learner
    assert [process.address for process in (evaluator, one, two)] == [address] * 3
    assert not server or (server[0].address, learner.address) == ("127.0.0.1", address)
    assert {process.args[1:3] for process in ray.processes} == {(str(tmp_path), roles.describe_versions())}
    assert [process.args[3] for process in (learner, evaluator, one, two)] == [0, 0, 0, 1]
    # All that writes into the folder stays with the driver if it can.
    places = [process.options["scheduling_strategy"] for process in ray.processes]
    assert places == [("here", True)] * (len(places) - 2) + ["SPREAD"] * 2
    assert f"Replay.backend = '{backend}'" in learner.args[0]
    assert evaluator.told[-1] == ("note", "scales 60", True) and one.was_told("stop") and two.was_told("stop")
    assert ("Open to the network, without a password: Reverb's port 8001" in said) == bool(server)
    assert "Room" in said and "Resumed" not in said and "fault" not in said
    assert "60 updates from 600 environment steps.\nLast evaluation: 7 per episode, 4 episodes" in said
    names = [*["replay"] * len(server), "learner", "evaluator", "collector 0", "collector 1"]
    listed = [f"{name}: {each.pid} since 7" for name, each in zip(names, ray.processes, strict=True)]
    assert (tmp_path / "processes.txt").read_text().splitlines() == listed


def test_a_resumed_run_on_several_machines_gets_an_address_that_all_can_reach(train):
    for saved in (20, 60):  # the second one is done
        ray = Ray()
        ray.saved = saved
        result, said = train(ray, address="there:6379")
        assert result == DONE and f"Resumed at update {saved}." in said
        assert ray.of("ReplayRole")[0].address == "10.0.0.1"
        assert ray.of("LearnerRole")[0].address == "10.0.0.1:8001"


@pytest.mark.parametrize("role", ["LearnerRole", "EvaluatorRole", "CollectorRole"])
def test_who_dies_starts_again_by_itself(train, role):
    ray = Ray(**failing(role, Died()))
    result, said = train(ray)
    assert result == DONE and starts(ray) == ONCE | {role: 2}
    assert [process.start for process in ray.of(role)] == [0, 1]
    assert said.count(f"{NAMES[role]}: its process died; it starts again.") == 1 and "fault" not in said


@pytest.mark.parametrize(("role", "backend"), [("LearnerRole", RAY), ("ReplayRole", REVERB)])
def test_with_who_holds_the_replay_all_start_again(train, role, backend):
    ray = Ray(**failing(role, Died(), at=20))
    result, said = train(ray, backend=backend)
    assert result == DONE and set(starts(ray).values()) == {2} and "fault" not in said
    assert f"{NAMES[role]}: its process died; everything goes on from the last checkpoint." in said
    assert ray.of("CollectorRole")[1].address == (ray.of(role)[1] if backend == RAY else "127.0.0.1:8002")


def test_who_fails_because_the_replay_is_gone_is_not_to_blame(train):
    gone = []

    def replay(process):
        for _ in CAST["ReplayRole"](process):
            if gone and process.start == 0:  # seen after the learner's end: that steps later
                raise Died
            yield

    def learner(process):
        yield from itertools.islice(CAST["LearnerRole"](process), None if process.start else 20)
        if process.start == 0:
            gone.append(True)
            raise RuntimeError("the connection is lost")

    ray = Ray(ReplayRole=replay, LearnerRole=learner)
    result, said = train(ray)
    assert result == DONE and set(starts(ray).values()) == {2}
    assert "everything goes on" in said and "fault" not in said


def test_who_loses_the_table_of_a_learner_that_is_done_is_not_to_blame(train):
    def bereft(process):
        process.figures = collector_figures()
        while not process.ray.saved:
            yield
        raise OSError("the table is closed")

    ray = Ray(CollectorRole=bereft)
    result, said = train(ray, backend=RAY)
    assert result == DONE and set(starts(ray).values()) == {1} and "fault" not in said


@pytest.mark.parametrize(
    ("role", "backend", "error", "at", "kind", "words"),
    [
        ("ReplayRole", REVERB, ValueError("Lower Replay.capacity"), 0, UsageError, "Lower Replay.capacity"),
        ("LearnerRole", RAY, ValueError("a bug"), 20, RunFolderError, "learner: a bug"),
        ("LearnerRole", REVERB, OSError("disk full"), 5, RunFolderError, "learner: disk full"),
        ("EvaluatorRole", REVERB, UsageError("no such game"), 5, RunFolderError, "evaluator: no such game"),
    ],
)
def test_what_a_restart_would_repeat_ends_the_run(train, role, backend, error, at, kind, words):
    ray = Ray(**failing(role, error, at=at))
    with pytest.raises(kind, match=f"^{words}$"):
        train(ray, backend=backend)
    assert starts(ray)[role] == 1


def test_two_deaths_without_an_update_between_them_are_a_fault(train, capsys):
    def idle(process):
        process.figures = learner_figures(0)
        yield from FOR_EVER

    for role, roles_ in (("CollectorRole", {"LearnerRole": idle}), ("ReplayRole", {})):
        words = f"{NAMES[role]}: its process died twice at update 0"
        ray = Ray(**roles_ | failing(role, *[Died()] * 3, at=0))
        with pytest.raises(RunFolderError, match=f"{words}\nThat was fault 2"):
            train(ray, "train.max_faults = 1")
        said = capsys.readouterr().out
        assert starts(ray)[role] == 3 and f"{words}; it starts again (fault 1 of 1)." in said
        assert f"{NAMES[role]}: its process died; " in said


def test_faults_are_counted_up_to_the_limit(train):
    causes = [ValueError("no such file"), EnvironmentFault("collector 0, environments' step 7: KeyError")]
    result, said = train(Ray(**failing("CollectorRole", *causes, None)), "train.max_faults = 3")
    assert result == DONE
    for number, words in enumerate(
        (
            "collector 0: ValueError: no such file",
            "\ncollector 0, environments' step 7: KeyError",
            "collector 0: RuntimeError: it ended without being asked to",
        ),
        start=1,
    ):
        assert f"{words}; it starts again (fault {number} of 3)." in said
    with pytest.raises(RunFolderError, match="^collector 0, .*: KeyError\nThat was fault 2 "):
        train(Ray(**failing("CollectorRole", *causes)), "train.max_faults = 1")


@pytest.mark.parametrize(
    ("role", "stepping", "silent", "timeout", "processes"),
    [
        ("CollectorRole", True, False, 20.0, 2),
        ("CollectorRole", True, True, 20.0, 2),  # it answers no more, either
        ("CollectorRole", True, True, 60.0, 1),
        ("CollectorRole", False, True, 20.0, 1),  # waiting for the learner may take any time
        ("EvaluatorRole", True, False, 20.0, 2),
    ],
)
def test_a_step_of_environments_that_does_not_return_is_a_fault(
    train, role, stepping, silent, timeout, processes
):
    def stuck(process):
        for step in range(100 if process.start == 0 else 0):
            seconds = 0.1 if silent else 0.5 * step
            process.figures = {"eval_return": None} | collector_figures(1234, seconds if stepping else 0.0)
            yield
            process.silent = silent and step > 10
        process.silent = False
        yield from CAST[role](process)

    ray = Ray(**{role: stuck}, LearnerRole=functools.partial(stand_in_ray.learner, updates=200))
    _, said = train(ray, f"train.step_timeout = {timeout}")
    assert starts(ray) == ONCE | {role: processes}
    words = f"{NAMES[role]}: a step of its environments, after 1,234 of all together, has not returned for 2"
    assert said.count(words) == said.count("fault 1 of 10") == processes - 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_learners_checkpoint(train, number):
    def slow_to_save(process):
        yield from itertools.islice(CAST["LearnerRole"](process), 20)
        os.kill(os.getpid(), number)
        while not process.was_told("stop"):
            yield
        yield from itertools.repeat(None, 100)
        process.ray.saved = 19

    ray = Ray(LearnerRole=slow_to_save)
    result, _ = train(ray, collectors=2)
    assert (result.updates, result.stopped_by, ray.saved) == (19, number, 19)
    assert math.isnan(result.final_return)
    _, *others = ray.processes
    assert all(process.was_told("stop") and not process.is_finishing for process in others)


@pytest.mark.parametrize("role", ["ReplayRole", "LearnerRole"])
def test_a_signal_while_the_run_starts_waits_for_no_checkpoint(train, role):
    def starting(process):
        os.kill(os.getpid(), signal.SIGINT)
        yield from FOR_EVER

    ray = Ray(**{role: starting})
    result, _ = train(ray)
    assert result[:4] == pytest.approx((0, 0, math.nan, signal.SIGINT), nan_ok=True) and ray.now < 60.0


def last_evaluation(*ends):
    """An evaluator whose last evaluations end like this: with an error, a signal that comes, or by hanging (None)."""
    left = list(ends)

    def steps(process):
        while not process.is_finishing:
            yield
        end = left.pop(0) if left else "well"
        if end == "well":
            yield from CAST["EvaluatorRole"](process)
        elif isinstance(end, Exception):
            raise end
        else:
            if end is not None:
                os.kill(os.getpid(), end)
            process.figures |= {"stepping": 0.5, "steps": 8}
            yield from itertools.repeat(None, 3)
            process.silent = end is None
            yield from FOR_EVER

    return Ray(EvaluatorRole=steps)


def test_the_last_evaluation_is_played_again_where_it_fails_or_hangs_until_a_signal(train):
    ray = last_evaluation(signal.SIGTERM)
    result, _ = train(ray)
    assert (result.updates, result.stopped_by) == (60, signal.SIGTERM) and ray.now < 60.0
    result, said = train(last_evaluation(Died()))
    assert result == DONE
    assert said.count("it starts again") == said.count("evaluator: its process died; it starts again.") == 1
    result, said = train(last_evaluation(None))
    assert result == DONE and "evaluator: a step of its environments, after 8 of all" in said
    with pytest.raises(RunFolderError, match="its step raises\nThat was fault 3"):
        train(last_evaluation(*[EnvironmentFault("its step raises")] * 3), "train.max_faults = 2")


def test_signals_are_handled_until_ray_has_shut_down_and_no_longer(train):
    class Watched(Ray):
        def kill(self, *args, **options):
            while_closing.append(signal.getsignal(signal.SIGINT))
            super().kill(*args, **options)

    before, while_closing = (
        signal.signal(signal.SIGINT, signal.SIG_IGN),
        [],
    )  # as in the background of a script
    try:
        train(Watched())
        assert while_closing and signal.SIG_IGN not in while_closing
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_processes_of_a_killed_driver_are_waited_for(train, tmp_path, monkeypatch):
    listed = tmp_path / "processes.txt"
    listed.write_text("replay: 12345 since 99\nlearner: -\ncollector 0: 678 since 11\n")
    ray = Ray()
    monkeypatch.setattr(processes, "read_start_time", lambda number: "99" if ray.now < 10.0 else "7")
    assert train(ray)[0] == DONE and ray.now > 10.0
    monkeypatch.setattr(processes, "read_start_time", lambda number: "100")
    listed.write_text("replay: 12345 since 100\nlearner: 678 since 100\nevaluator: 9 since 7\n")
    with pytest.raises(
        RunFolderError, match=r"Processes of an earlier start still work in .*: 12345, 678\. "
    ):
        train(ray := Ray())
    assert ray.processes == []


def test_a_process_is_known_by_its_number_and_its_start():
    assert processes.read_start_time(os.getpid()) == processes.read_start_time("self") != ""
    with subprocess.Popen(["sleep", "60"]) as process:
        began = processes.read_start_time(process.pid)
        assert int(began) > int(processes.read_start_time(os.getpid()))
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.read_start_time(process.pid) == "", "it is a zombie"
    assert processes.read_start_time(process.pid) == ""


@pytest.mark.parametrize(
    ("strategy", "machines", "taken"),
    [("default", [0], 0), ("default", [0, 2], 1), ("mirrored", [1, 4, 2], 4), ("mirrored", [0], 0)],
)
def test_only_the_learner_gets_gpus_of_one_machine(train, strategy, machines, taken):
    ray = Ray(gpus=machines)
    train(ray, f"train.strategy = '{strategy}'")
    assert [process.options.get("num_gpus", 0) for process in ray.processes] == [0, taken, 0, 0]


@pytest.fixture
def constructed(monkeypatch):
    """Constructs a role as Ray does, without a change of this process."""
    monkeypatch.setattr(os, "setpgid", lambda *_: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # as Ray sets it for the learner

    def constructed(role, versions):
        with configured():
            return role("", "", versions)

    return constructed


def test_only_the_learners_process_sees_a_gpu_and_all_answer_before_they_are_built(constructed):
    for role, visible in ((roles.LearnerRole, "0"), (roles.CollectorRole, "-1")):
        assert set(constructed(role, "").status()) == {"pid", "began"}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_a_machine_of_other_versions_is_refused_with_both(constructed):
    here = f"Python {platform.python_version()}, rbs_tf {rbs_tf.__version__}, tensorflow 2."
    words = f"{platform.node()} has {here}.*, and the driver Python 2.7. All machines need the same"
    with pytest.raises(UsageError, match=words):
        constructed(roles.CollectorRole, "Python 2.7").run("address", 0)
