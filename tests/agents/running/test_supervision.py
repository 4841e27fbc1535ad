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

from agents.errors import EnvironmentFault, RunFolderError, UsageError
from agents.replay.backends import RAY, REVERB
from agents.running import cluster, processes
from agents.workers.settings import Result, Settings
from tests.agents.running import stand_in_ray
from tests.agents.running.stand_in_ray import CAST, Died, Ray, Unavailable, learner_status
from tests.agents.running.test_embedded import configured

NAMES = {"ReplayServer": "replay", "LearnerRole": "learner", "EvaluatorRole": "evaluator"}
NAMES |= {"CollectorRole": "collector 0"}
FOR_LONG = functools.partial(stand_in_ray.learner, updates=400)


class Driver:
    """`cluster.train` in a folder, with a stand-in for Ray."""

    def __init__(self, root, monkeypatch, capsys):
        self.root, self._monkeypatch, self._capsys = root, monkeypatch, capsys

    def train(self, ray, *bindings, collectors=1, address=None, backend=REVERB):
        @contextlib.contextmanager
        def opened(*_):
            yield ray

        self._monkeypatch.setattr(cluster.ray_connection, "opened", opened)
        self._monkeypatch.setattr(cluster, "time", ray.clock())
        self._monkeypatch.setattr(cluster.build, "backend_of", lambda *_, **__: backend)
        self._capsys.readouterr()
        with configured("train.updates = 60", *bindings):
            try:
                return cluster.train(Settings.configured(), str(self.root), collectors, address)
            finally:
                assert all(process.is_gone for process in ray.processes), "close ends every process"

    def said(self):
        return self._capsys.readouterr().out


@pytest.fixture
def driver(tmp_path, monkeypatch, capsys):
    return Driver(tmp_path, monkeypatch, capsys)


def failing(role, *errors, at=5):
    """A role that ends with one of these errors in each of its first starts, after so many steps."""

    def steps(process):
        if process.starts > len(errors):
            return (yield from CAST[role](process))
        yield from itertools.islice(CAST[role](process), at)
        raise errors[process.starts - 1]

    return {role: steps}


def signalling(number, role="LearnerRole", at=20):
    """A role that sends this process a signal after so many steps, and goes on."""

    def steps(process):
        going = CAST[role](process)
        yield from itertools.islice(going, at)
        os.kill(os.getpid(), number)
        return (yield from going)

    return {role: steps}


def starts(ray):
    return {process.role: process.starts for process in ray.processes}


ONCE = dict.fromkeys(NAMES, 1)


def test_a_run_to_its_end(driver):
    ray = Ray()
    assert driver.train(ray, collectors=2) == Result(60, 600, 7.0, None, head="clipped_0.9")
    root, address = str(driver.root), "127.0.0.1:8001"
    assert [(process.role, process.args) for process in ray.processes] == [
        ("ReplayServer", (root, "127.0.0.1")),
        ("LearnerRole", (root, address)),
        ("EvaluatorRole", (root, address)),
        ("CollectorRole", (address, 0, 0)),
        ("CollectorRole", (address, 1, 0)),
    ]
    _, _, evaluator, *collectors = ray.processes
    assert evaluator.told[-2:] == [("note_loss_scales", "scales 60"), ("finish",)]
    assert all(collector.was_told("stop") for collector in collectors)
    said = driver.said()
    assert "Room for all." in said and "Open to the network, without a password: Reverb's port 8001" in said
    assert (
        "60 updates from 600 environment steps.\nLast evaluation: 7 per episode, 4 episodes, greedy" in said
    )
    assert "Resumed" not in said and "fault" not in said
    listed = [line.split(": ") for line in (driver.root / "processes.txt").read_text().splitlines()]
    assert [name for name, _ in listed] == ["replay", "learner", "evaluator", "collector 0", "collector 1"]
    assert len({int(pid) for _, pid in listed}) == 5


def test_a_resumed_run_on_several_machines_gets_an_address_that_all_can_reach(driver):
    ray = Ray()
    ray.saved = 20
    assert driver.train(ray, address="there:6379").updates == 60
    assert "Resumed at update 20." in driver.said()
    assert ray.of("ReplayServer")[0].args[1] == "10.0.0.1"
    assert ray.of("LearnerRole")[0].args[1] == "10.0.0.1:8001"


def test_whoever_dies_starts_again_and_nobody_else(driver):
    for role in ("LearnerRole", "EvaluatorRole", "CollectorRole"):
        ray = Ray(**failing(role, Died()))
        assert driver.train(ray) == Result(60, 600, 7.0, None, head="clipped_0.9"), role
        assert starts(ray) == ONCE | {role: 2}
        said = driver.said()
        assert (
            said.count(f"{NAMES[role]}: its process died; it starts again.") == 1 and "fault" not in said
        ), role
    _, start = ray.of("CollectorRole")[0].args[1:]
    assert start > 0, "it does not repeat the episodes that it began with"


def test_after_the_death_of_who_has_the_table_everything_goes_on_from_the_checkpoint(driver):
    for role, backend in (("LearnerRole", RAY), ("ReplayServer", REVERB)):
        ray = Ray(**failing(role, Died(), at=20))
        assert driver.train(ray, backend=backend).updates == 60
        assert {process.starts for process in ray.processes} == {2}, role
        said = driver.said()
        assert f"{NAMES[role]}: its process died; everything goes on from the last checkpoint." in said
        assert "fault" not in said
    assert ray.of("LearnerRole")[0].args[1] == ray.of("CollectorRole")[0].args[0] == "127.0.0.1:8002"


def test_a_run_whose_learner_has_the_table(driver):
    ray = Ray()
    assert driver.train(ray, backend=RAY).updates == 60
    learner, evaluator, collector = ray.processes
    root = str(driver.root)
    assert (learner.role, learner.args) == ("LearnerRole", (root, None))
    assert evaluator.args[0] == root and collector.args[1:] == (0, 0)
    assert evaluator.args[1].process is collector.args[0].process is learner
    said = driver.said()
    assert "Room here." in said and "Open to the network" not in said
    listed = (driver.root / "processes.txt").read_text()
    assert [line.split(": ")[0] for line in listed.splitlines()] == ["learner", "evaluator", "collector 0"]


def test_who_has_the_table_and_fails_ends_the_run(driver):
    learner, replay = ("LearnerRole", RAY), ("ReplayServer", REVERB)
    for (role, backend), error, at, kind, words in (
        (replay, ValueError("Lower Replay.capacity"), 0, UsageError, "Lower Replay.capacity"),
        (replay, UsageError("no such game"), 0, UsageError, "no such game"),
        (replay, OSError("no port"), 0, RunFolderError, "The replay cannot be started: no port"),
        (learner, ValueError("Lower Replay.capacity"), 0, UsageError, "Lower Replay.capacity"),
        (learner, OSError("disk full"), 0, RunFolderError, "The learner cannot be started: disk full"),
        (learner, OSError("disk full"), 20, RunFolderError, "learner: disk full"),
    ):
        ray = Ray(**failing(role, error, at=at))
        with pytest.raises(kind, match=f"^{words}$"):
            driver.train(ray, backend=backend)
        assert starts(ray)[role] == 1
        assert at or len(starts(ray)) == 2, "the others have not begun"


def test_who_loses_the_table_of_a_learner_that_is_done_is_not_to_blame(driver):
    def bereft(process):
        while not process.ray.saved:
            process.status = {"activity": "acting", "seconds": 0.0, "steps": 1, "waited": 0.0}
            yield
        raise OSError("the table is closed")

    ray = Ray(CollectorRole=bereft)
    assert driver.train(ray, backend=RAY).updates == 60
    assert starts(ray) == dict.fromkeys(starts(ray), 1) and "fault" not in driver.said()


def test_who_fails_because_the_replay_is_gone_is_not_to_blame(driver):
    gone = []

    def dies(process):
        for _ in CAST["ReplayServer"](process):
            if gone and process.starts == 1:
                raise Died
            yield

    def learner(process):
        for step, _ in enumerate(CAST["LearnerRole"](process)):
            if step == 20 and process.starts == 1:
                gone.append(True)
                raise RuntimeError("the connection is lost")
            yield
        return learner_status(60)

    ray = Ray(ReplayServer=dies, LearnerRole=learner)
    # The learner's end is seen first: it steps after the replay.
    assert driver.train(ray, backend=REVERB).updates == 60
    said = driver.said()
    assert {process.starts for process in ray.processes} == {2}
    assert "everything goes on" in said and "fault" not in said


def test_two_deaths_without_an_update_between_them_are_a_fault(driver):
    def idle(process):
        process.status = learner_status(0)
        while True:
            yield

    ray = Ray(LearnerRole=idle, **failing("CollectorRole", *[Died()] * 3))
    with pytest.raises(
        RunFolderError, match="collector 0: its process died twice at update 0\nThat was fault 2"
    ):
        driver.train(ray, "train.max_faults = 1")
    said = driver.said()
    assert "collector 0: its process died; it starts again." in said
    assert "collector 0: its process died twice at update 0; it starts again (fault 1 of 1)." in said


def test_faults_of_environments_are_counted_up_to_the_limit(driver):
    causes = [
        ValueError("no such file"),
        EnvironmentFault("collector 0, environments' step 7: KeyError"),
        OSError(),
    ]
    assert driver.train(Ray(**failing("CollectorRole", *causes)), "train.max_faults = 3").updates == 60
    said = driver.said()
    assert "collector 0: ValueError: no such file; it starts again (fault 1 of 3)." in said
    assert "\ncollector 0, environments' step 7: KeyError; it starts again (fault 2 of 3)." in said
    ray = Ray(**failing("CollectorRole", *causes[:2]))
    with pytest.raises(RunFolderError) as ended:
        driver.train(ray, "train.max_faults = 1")
    assert str(ended.value) == (
        "collector 0, environments' step 7: KeyError\nThat was fault 2 of this start, and train.max_faults is 1. "
        "The same command goes on from the last checkpoint"
    )


def test_a_role_that_ends_without_being_asked_to_is_a_fault(driver):
    def ends(process):
        yield
        return (yield from CAST["EvaluatorRole"](process)) if process.starts > 1 else {}

    assert driver.train(Ray(EvaluatorRole=ends)).updates == 60
    assert (
        "evaluator: RuntimeError: it ended without being asked to; it starts again (fault 1" in driver.said()
    )


def test_what_a_restart_would_repeat_ends_the_run(driver):
    for role, error in (("LearnerRole", OSError("disk full")), ("EvaluatorRole", UsageError("no such game"))):
        with pytest.raises(RunFolderError, match=f"^{NAMES[role]}: {error}$"):
            driver.train(Ray(**failing(role, error)))


def test_a_step_of_environments_that_does_not_return_is_a_fault(driver):
    def stuck(process, silent, activity="environment"):
        if process.starts > 1:
            yield from CAST["CollectorRole"](process)
        for step in range(100):
            seconds = 0.0 if silent else 0.5 * step
            process.status = {"activity": activity, "seconds": seconds, "steps": 1234, "waited": 0.0}
            yield
            process.silent = silent and step > 10
        process.silent = False
        yield from CAST["CollectorRole"](process)

    for silent in (False, True):
        ray = Ray(CollectorRole=functools.partial(stuck, silent=silent), LearnerRole=FOR_LONG)
        driver.train(ray, "train.step_timeout = 20.0")
        assert starts(ray) == ONCE | {"CollectorRole": 2}
        said = driver.said()
        assert "a step of its environments, after 1,234 of all together, has not returned for 2" in said
        assert "(fault 1 of 10)" in said and "died" not in said
        ray = Ray(CollectorRole=functools.partial(stuck, silent=silent), LearnerRole=FOR_LONG)
        driver.train(ray, "train.step_timeout = 60.0")
        assert starts(ray) == ONCE
    # Waiting for the learner may take any time.
    ray = Ray(CollectorRole=functools.partial(stuck, silent=False, activity="replay"), LearnerRole=FOR_LONG)
    driver.train(ray, "train.step_timeout = 20.0")
    assert starts(ray) == ONCE


def test_a_collector_whose_process_has_ended_is_said_to_have_died_however_late_ray_notices(driver):
    gone = subprocess.Popen(["true"])
    gone.wait()

    def ended(process, machine):
        if process.starts > 1:
            yield from CAST["CollectorRole"](process)
        running = {"activity": "environment", "seconds": 1.0, "steps": 1234, "waited": 0.0}
        process.status = running | {"pid": gone.pid, "machine": machine}
        yield from itertools.repeat(None, 5)
        process.silent = True
        yield from itertools.repeat(None, 200)
        raise Died

    for machine, word, other in (
        (platform.node(), "collector 0: its process died; it starts again.", "has not returned"),
        ("another", "has not returned for 2", "died"),  # of which nothing else is known
    ):
        ray = Ray(CollectorRole=functools.partial(ended, machine=machine), LearnerRole=FOR_LONG)
        driver.train(ray, "train.step_timeout = 20.0")
        assert starts(ray) == ONCE | {"CollectorRole": 2}
        said = driver.said()
        assert said.count(word) == 1 and other not in said


def test_a_replay_that_dies_whenever_it_starts_or_gets_no_other_process_ends_the_run(driver):
    def dying(process, steps, death):
        yield from itertools.repeat(None, steps)
        raise death

    for steps, death in (
        (0, Died("The actor died: no module\nmore")),
        (5, Unavailable("The actor died: no module")),
    ):
        ray = Ray(ReplayServer=functools.partial(dying, steps=steps, death=death))
        words = "^The replay's process died 4 times before it had started: The actor died: no module$"
        with pytest.raises(RunFolderError, match=words):
            driver.train(ray, "train.max_faults = 3")
        assert starts(ray)["ReplayServer"] == 4
    ray = Ray(**failing("ReplayServer", Died(), at=0))
    ray.restart = math.inf
    with pytest.raises(RunFolderError, match="before it had started: Unavailable$"):
        driver.train(ray)
    assert 250.0 < ray.now < 400.0


def test_a_signal_ends_the_run_after_the_learners_checkpoint(driver):
    def slow_to_save(process):
        yield from itertools.islice(CAST["LearnerRole"](process), 20)
        os.kill(os.getpid(), number)
        while not process.was_told("stop"):
            yield
        yield from itertools.repeat(None, 100)
        process.ray.saved = 20
        return learner_status(20)

    for number in (signal.SIGINT, signal.SIGTERM):
        ray = Ray(LearnerRole=slow_to_save)
        result = driver.train(ray, collectors=2)
        assert (result.updates, result.stopped_by, ray.saved) == (20, number, 20)
        assert math.isnan(result.final_return)
        _, *others = ray.processes
        assert all(process.was_told("stop") and not process.was_told("finish") for process in others)


def test_a_signal_while_replay_or_learner_starts_waits_for_no_checkpoint(driver):
    def starting(process):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            yield

    for role, begun in (("ReplayServer", {"ReplayServer", ""}), ("LearnerRole", {*ONCE})):
        ray = Ray(**{role: starting})
        assert driver.train(ray)[:4] == pytest.approx((0, 0, math.nan, signal.SIGINT), nan_ok=True)
        assert {process.role for process in ray.processes} == begun and ray.now < 60.0, role


def test_a_signal_ends_the_last_evaluation(driver):
    def playing(process):
        process.status = {"eval_return": None}
        while not process.was_told("finish"):
            yield
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            yield

    result = driver.train(Ray(EvaluatorRole=playing))
    assert (result.updates, result.stopped_by) == (60, signal.SIGTERM)


def test_an_evaluator_that_fails_in_the_last_evaluation_plays_it_again(driver):
    def playing(process, errors):
        process.status = {"eval_return": 1.0}
        while not process.was_told("finish"):
            yield
        if process.starts <= len(errors):
            raise errors[process.starts - 1]
        yield
        return {"eval_return": 3.0, "evaluated": "4 episodes, greedy", "head": "h", "game": None}

    for errors, words in (
        ([Died()], "evaluator: its process died; it starts again."),
        (
            [EnvironmentFault("pong, copy 0: its step raises")],
            "pong, copy 0: its step raises; it starts again",
        ),
    ):
        ray = Ray(EvaluatorRole=functools.partial(playing, errors=errors))
        assert driver.train(ray) == Result(60, 600, 3.0, None, head="h")
        said = driver.said()
        assert starts(ray)["EvaluatorRole"] == 2 and words in said and said.count("it starts again") == 1
    always = [EnvironmentFault("pong, copy 0: its step raises")] * 9
    with pytest.raises(RunFolderError, match="its step raises\nThat was fault 3"):
        driver.train(Ray(EvaluatorRole=functools.partial(playing, errors=always)), "train.max_faults = 2")


def test_a_second_signal_ends_the_process_at_once_while_ray_shuts_down_too(driver, monkeypatch):
    before, while_closing = signal.signal(signal.SIGINT, signal.SIG_IGN), []

    class Watched(Ray):
        def kill(self, *args, **options):
            while_closing.append(signal.getsignal(signal.SIGINT))
            super().kill(*args, **options)

    try:
        assert driver.train(Watched(**signalling(signal.SIGINT))).stopped_by == signal.SIGINT
        assert set(while_closing) == {signal.SIG_DFL}
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def told_to_stop(change, steps=20):
    """A learner that is told to stop and goes on for so many steps, with a change in each."""

    def learner(process):
        process.status = learner_status(5)
        yield from itertools.repeat(None, 5)  # so that the driver has seen it
        os.kill(os.getpid(), signal.SIGTERM)
        while not process.was_told("stop"):
            yield
        for count in range(steps):
            change(process, count)
            yield
        return learner_status(5)

    return Ray(LearnerRole=learner)


def test_a_learner_that_moves_is_waited_for_and_one_that_only_answers_is_killed(driver, monkeypatch):
    monkeypatch.setattr(cluster, "_POLL", 100.0)  # 20 of them are 2,000 s

    def status(name):
        return lambda process, count: process.status.update({name: count})

    def computes(seconds):
        return lambda process, _: setattr(process, "cpu_seconds", process.cpu_seconds + seconds)

    def writes(_, count):
        (driver.root / "file").touch()
        os.utime(driver.root / "file", times=(count + 2e9,) * 2)

    moving = {
        "updates": status("updates"),
        "steps": status("steps"),
        "computes": computes(25.0),
        "writes": writes,
    }
    moving["new process"] = lambda process, count: setattr(process, "pid", count)
    for name, change in moving.items():
        assert driver.train(told_to_stop(change)).stopped_by == signal.SIGTERM
        assert "killed" not in driver.said(), name
        (driver.root / "file").unlink(missing_ok=True)
    words = f"learner: told to end, it has done nothing for {processes.PATIENCE:.0f} s; it is killed."
    for name, change in {"answers": status("waited"), "computes next to nothing": computes(0.5)}.items():
        ray = told_to_stop(change)
        assert driver.train(ray).stopped_by == signal.SIGTERM
        assert words in driver.said(), name
        assert ray.now < processes.PATIENCE + 600.0


def test_shares_of_waiting_reach_the_learner(driver):
    def learner(process):
        for _ in FOR_LONG(process):
            process.status["waited"] = 0.2 * process.ray.now
            yield
        return learner_status(400)

    def collector(process):
        share = 0.3 + 0.4 * process.args[1]
        for _ in CAST["CollectorRole"](process):
            process.status["waited"] = share * process.ray.now
            yield

    ray = Ray(LearnerRole=learner, CollectorRole=collector)
    driver.train(ray, collectors=2)
    noted = [shares for method, *shares in ray.of("LearnerRole")[0].told if method == "note_waits"]
    assert len(noted) > 10
    for shares in noted:
        assert shares == pytest.approx([0.2, 0.5], rel=0.25)


def test_the_processes_of_a_killed_driver_are_waited_for(driver, monkeypatch):
    (driver.root / "processes.txt").write_text("replay: 12345\nlearner: -\n")
    ray = Ray()
    monkeypatch.setattr(cluster, "_is_host", lambda number: number == "12345" and ray.now < 10.0)
    assert driver.train(ray).updates == 60 and ray.now > 10.0
    monkeypatch.setattr(cluster, "_is_host", lambda number: True)
    with pytest.raises(
        RunFolderError, match=r"Processes of an earlier start still work in .*: (\d+, ){3}\d+\. "
    ):
        driver.train(ray := Ray())
    assert ray.processes == []


def test_only_a_process_of_a_run_is_a_predecessor():
    words = {"executable": "/bin/sleep"}
    with subprocess.Popen(["ray::Host", "60"], **words) as host, subprocess.Popen(["sleep", "60"]) as other:
        assert cluster._is_host(str(host.pid)) and not cluster._is_host(str(other.pid))
        host.kill(), other.kill()
    assert not cluster._is_host(str(host.pid))


def test_the_learner_alone_gets_gpus_of_one_machine(driver):
    for strategy, machines, taken in (
        ("default", [0], 0),
        ("default", [0, 2], 1),
        ("mirrored", [1, 4, 2], 4),
        ("mirrored", [0], 0),
    ):
        ray = Ray(gpus=machines)
        driver.train(ray, f"train.strategy = '{strategy}'", collectors=2)
        asked = [process.options.get("num_gpus", 0) for process in ray.processes]
        assert asked == [0, taken, 0, 0, 0], (strategy, machines)
        assert [process.options["args"][1] for process in ray.processes] == [False, True, False, False, False]


@pytest.fixture
def as_host(monkeypatch):
    """Keeps a `Host` from changing this process."""
    monkeypatch.setattr(os, "setpgid", lambda *_: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # as Ray sets it for the learner


def test_a_process_sees_the_gpu_only_if_it_works_there(as_host):
    for on_gpu, visible in ((True, "0"), (False, "-1")):
        cluster.Host("", on_gpu)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_a_process_answers_while_its_role_is_built_and_tells_it_what_it_is_told(as_host, monkeypatch):
    host, seen = cluster.Host("", True), []

    class Role(contextlib.nullcontext):
        def __init__(self, *args):
            super().__init__(self)
            seen.extend([args, host.status()])
            host.tell("stop")

        def status(self):
            return {"updates": 3}

        def stop(self):
            seen.append("stopped")

        def run(self):
            host.tell("stop")
            return host.status()

    monkeypatch.setattr(cluster.roles, "LearnerRole", Role)
    working = host.work("LearnerRole", "root", "address")
    args, building, stopped = seen
    assert args == ("root", "address") and stopped == "stopped"
    assert building.keys() == {"pid", "machine", "cpu_seconds"}
    assert (working["pid"], working["updates"]) == (os.getpid(), 3)
