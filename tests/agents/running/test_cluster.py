"""The distributed mode with real processes: it trains, goes on whoever is killed, and leaves nothing behind."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from agents.running import cluster
from tests.agents.running.test_embedded import REPOSITORY, command, scalars
from tests.agents.started import DISTRIBUTED, Started, patience

pytest.importorskip("ray")

# So near to the ratio that a departure from it shows.
NEAR = ("Replay.replay_ratio = 1.0", "Replay.error_buffer = 8.0")
COLLECTORS = ("collector 0", "collector 1")


@pytest.fixture(scope="module")
def survivor(tmp_path_factory):
    """A run in which every role is killed once, the driver at last."""
    root = tmp_path_factory.mktemp("runs") / "run"
    with Started(root, collectors=2, bindings=NEAR) as run:
        run.wait_for(lambda: run.updates > 25)
        for names in (COLLECTORS, ("evaluator",), ("learner",), ("replay",)):
            run.kill(*names)
            run.wait_for_more_updates()
        run.process.kill()
        # Ray's own idle agents look after their node every now and then, and end about a minute later.
        run.assert_nothing_left(agents=False)
        yield run


def test_a_run_goes_on_whoever_is_killed(survivor):
    for name in (*COLLECTORS, "evaluator", "learner"):
        assert f"{name}: its process died; it starts again." in survivor.said()
    assert "replay: its process died; everything goes on from the last checkpoint." in survivor.said()
    for noise in ("Traceback", "(raylet)", "Warning"):
        assert noise not in survivor.output


def test_after_the_drivers_death_the_same_command_goes_on_and_a_signal_stops_it(survivor):
    root, before = survivor.root, survivor.updates
    with Started(root, collectors=2, bindings=NEAR) as run:
        run.wait_for_resumption()
        # At most the updates since a checkpoint are lost, and what the terminal had not shown yet may be there.
        assert before - 20 <= run.resumed
        run.wait_for(lambda: "waiting: learner" in run.output)
        run.wait_for_more_updates()
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 128 + signal.SIGINT
        run.assert_nothing_left()
        assert any("Stopped. The same command goes on" in line for line in run.said())
    assert max(saved(root)) > run.resumed
    # While collectors, the learner and the replay came and went.
    training = scalars(root / "train")
    np.testing.assert_allclose(training["replay/ratio"][-5:], 1.0, atol=0.05)
    for share in ("waits/learner", "waits/collectors"):
        assert all(0.0 <= value <= 1.0 for value in training[share])


def saved(root):
    """Steps of the checkpoints in a run folder."""
    return [int(path.name) for path in root.glob("checkpoints/*") if path.name.isdecimal()]


def test_distributed_runs_end_by_themselves_two_at_a_time(tmp_path):
    bindings = ("train.final_eval_rounds = 1", "train.eval_interval = 20", *NEAR)
    one, other = (
        Started(tmp_path / name, updates=updates, collectors=collectors, bindings=bindings)
        for name, updates, collectors in (("one", 60, 2), ("other", 20, 1))
    )
    with one, other:
        one.wait_for(
            (tmp_path / "one/processes.txt").exists
        )  # it starts, and will for longer than the intruder
        with Started(tmp_path / "one", bindings=bindings) as intruder:
            assert intruder.finish() == 2
            assert "Another process" in intruder.output and "is working in" in intruder.output
        for run in (other, one):
            assert run.finish() == 0, run.story()
            run.assert_nothing_left()
    assert "60 updates from" in one.output and "Last evaluation" in one.output
    training, evaluation = scalars(tmp_path / "one/train"), scalars(tmp_path / "one/eval")
    assert np.isfinite(training["loss"]).all()
    best = np.load(tmp_path / "one/best.npz")["mean_return"]
    assert best == pytest.approx(max(evaluation["episode/return"]))
    assert np.isfinite(training["episode/return"]).all()


def catches(pid, number):
    """Whether a process has a handler of its own for a signal."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1]
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_a_second_signal_ends_the_process_at_once_while_ray_shuts_down_too(monkeypatch, tmp_path):
    before, while_closing = signal.signal(signal.SIGINT, signal.SIG_IGN), []

    @contextlib.contextmanager
    def opened(*_, **__):
        yield None
        while_closing.append(signal.getsignal(signal.SIGINT))

    class Run:
        def __init__(self, *_, **__):
            self.stopped_by = None

        def stop(self, number):
            self.stopped_by = number

        def run(self):
            os.kill(os.getpid(), signal.SIGINT)
            return self.stopped_by

        def close(self):
            pass

    monkeypatch.setattr(cluster.ray_connection, "opened", opened)
    monkeypatch.setattr(cluster, "ClusterRun", Run)
    try:
        assert cluster.train(str(tmp_path), collectors=1) == signal.SIGINT
        assert while_closing == [signal.SIG_DFL] and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own, of 64 MB."""
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path]).returncode
    ):
        pytest.skip("mounting a disk needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_a_full_disk_ends_the_run_with_its_name_and_a_second_signal_ends_it_at_once(small_disk):
    root, ballast = small_disk / "run", small_disk / "ballast"
    with Started(root) as run:
        run.wait_for(lambda: saved(root))
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        assert run.finish() == 1
        # Whoever writes next notices: checkpoint, statistics or TensorBoard's events.
        assert f"Cannot write to {root}" in run.output and "Free space on that disk" in run.output
        assert "Traceback" not in run.output
        run.assert_nothing_left()
    ballast.unlink()
    with Started(root) as run:
        run.wait_for_resumption()
        assert run.resumed in saved(root)
        run.signal(signal.SIGSTOP, "learner")  # which therefore never stops in order
        run.process.send_signal(signal.SIGINT)
        run.wait_for(lambda: not catches(run.process.pid, signal.SIGINT))  # the first has been minded
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == -signal.SIGINT, run.story()
        run.assert_nothing_left(agents=False)


@pytest.mark.parametrize(
    ("fault", "timeout", "message"),
    [
        ("raise SystemExit('out of order')", 1e6, "collector 0, environments' step 7: SystemExit: out of"),
        (
            "time.sleep(10**6)",
            5.0,
            "collector 0: a step of its environments, after 0 of all together, has not returned",
        ),
        ("os._exit(5)", 1e6, "collector 0: its process died twice at update 0"),
    ],
)
def test_environments_that_keep_failing_end_the_run_with_their_name(fault, timeout, message, tmp_path):
    bindings = ("train.max_faults = 1", f"train.step_timeout = {timeout}")
    module = tmp_path / "broken_environment.py"
    module.write_text(BROKEN.replace("FAULT", fault))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        command(
            tmp_path / "run",
            "--collectors=1",
            "--env=broken_environment:Broken-v0",
            bindings=(*DISTRIBUTED, *bindings, "Heads.reward_multiplier = 1.0"),
        ),
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert message in result.stdout
    assert "fault 1 of 1" in result.stdout and "train.max_faults is 1" in result.stderr
    assert "Traceback" not in result.stderr


BROKEN = """
import os, time, gymnasium, numpy as np


class Broken(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    steps = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 7:
            FAULT
        return np.zeros(3, np.float32), 0.0, False, False, {}


gymnasium.register("Broken-v0", Broken)
"""
