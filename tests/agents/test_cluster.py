"""The distributed mode with real processes: it trains, goes on whoever is killed, and leaves nothing behind."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.agents.test_embedded import REPOSITORY, command, scalars

pytest.importorskip("ray")

DISTRIBUTED = (
    "train.weights_interval = 50",
    "train.publish_interval = 5",
    "train.checkpoint_interval = 20",
    "Replay.error_buffer = 40.0",
)
PATIENCE = 240  # seconds for anything on a machine that does other things as well


class Started:
    """train.py in a session of its own, read line by line."""

    def __init__(self, root, *arguments, updates=100_000, collectors=1, bindings=()):
        flags = (f"--collectors={collectors}", *arguments)
        self.root = root
        self.process = subprocess.Popen(
            command(root, *flags, updates=updates, bindings=(*DISTRIBUTED, *bindings)),
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pid in self.others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def output(self):
        return "".join(self.lines)

    @property
    def updates(self):
        """The last count that the terminal has shown."""
        return max(
            [int(n.replace(",", "")) for n in re.findall(r"updates ([\d,]+)/", self.output)], default=0
        )

    def pid(self, name):
        """Number of the process that plays a role, as the run folder says; None while it is being started."""
        found = re.search(rf"^{name}: (\d+)$", (self.root / "processes.txt").read_text(), re.MULTILINE)
        return found and int(found[1])

    def wait_for(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < end, self.output
            time.sleep(0.1)

    def wait_for_more_updates(self):
        before = self.updates
        self.wait_for(lambda: self.updates > before + 5)

    def finish(self):
        code = self.process.wait(PATIENCE)
        self._reader.join(10)
        return code

    def others(self, agents=True):
        """Processes of the session beside the first that are alive; `agents`: the two helpers of Ray's node, too."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = stat.read_text().rsplit(")", 1)[1].split()[:4]
                alive = int(session) == self.process.pid != int(stat.parent.name) and state != "Z"
                line = (stat.parent / "cmdline").read_bytes()
                agent = any(name in line for name in (b"Agent", b"agent.py", b"agent/main.py"))
                if alive and (agents or not agent):
                    found.append(int(stat.parent.name))
        return found

    def assert_nothing_left(self, agents=True):
        end = time.monotonic() + 30
        while left := self.others(agents):
            lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
            assert time.monotonic() < end, lines
            time.sleep(0.1)


@pytest.fixture(scope="module")
def survivor(tmp_path_factory):
    """A run in which every role is killed once, the driver at last."""
    root = tmp_path_factory.mktemp("runs") / "run"
    with Started(root) as run:
        run.wait_for(lambda: run.updates > 25)
        for name in ("collector 0", "evaluator", "learner", "replay"):
            killed = run.pid(name)
            os.kill(killed, signal.SIGKILL)
            run.wait_for(lambda name=name, killed=killed: run.pid(name) not in (killed, None))
            run.wait_for_more_updates()
        run.process.kill()
        # Ray's own idle agents look after their node every now and then, and end about a minute later.
        run.assert_nothing_left(agents=False)
        yield run


def test_a_run_goes_on_whoever_is_killed(survivor):
    for name in ("collector 0", "evaluator", "learner"):
        assert f"{name}: its process died; it starts again." in survivor.output
    assert "The replay's process died; everything goes on from the last checkpoint." in survivor.output
    assert "Traceback" not in survivor.output


def test_after_the_drivers_death_the_same_command_goes_on_and_a_signal_stops_it(survivor):
    before = survivor.updates
    with Started(survivor.root) as run:
        run.wait_for(lambda: "Resumed at update" in run.output)
        resumed = int(re.search(r"Resumed at update ([\d,]+)", run.output)[1].replace(",", ""))
        # At most the updates since a checkpoint are lost, and what the terminal had not shown yet may be there.
        assert before - 20 <= resumed
        run.wait_for_more_updates()
        stopping = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 128 + signal.SIGINT
        assert time.monotonic() - stopping < 60
        run.assert_nothing_left()
        assert "Stopped. The same command goes on" in run.output
    newest = max(
        int(path.name) for path in (survivor.root / "checkpoints").iterdir() if path.name.isdecimal()
    )
    assert newest > resumed


def test_a_distributed_run_ends_by_itself_and_tells_who_waits(tmp_path):
    bindings = ("train.final_eval_rounds = 1", "train.eval_interval = 20", "Replay.replay_ratio = 1.0")
    with Started(tmp_path / "run", updates=60, collectors=2, bindings=bindings) as run:
        assert run.finish() == 0, run.output
        run.assert_nothing_left()
    assert "60 updates from" in run.output and "Last evaluation" in run.output
    training, evaluation = scalars(tmp_path / "run/train"), scalars(tmp_path / "run/eval")
    assert np.isfinite(training["loss"]).all() and len(evaluation["episode/return"])
    assert {"waits/learner", "waits/collectors", "replay/ratio", "episode/return"} <= training.keys()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "raise ZeroDivisionError('out of order')",
            "collector 0, environments' step 7: ZeroDivisionError: out of",
        ),
        (
            "time.sleep(10**6)",
            "collector 0: a step of its environments, after 0 of all together, has not returned",
        ),
    ],
)
def test_environments_that_keep_failing_end_the_run_with_their_name(fault, message, tmp_path):
    bindings = ("train.max_faults = 1", "train.step_timeout = 5.0")
    module = tmp_path / "broken_environment.py"
    module.write_text(BROKEN.replace("FAULT", fault))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        command(
            tmp_path / "run",
            "--collectors=1",
            "--env=broken_environment:Broken-v0",
            bindings=(*DISTRIBUTED, *bindings, "environments.make.reward_multiplier = 1.0"),
        ),
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert message in result.stdout
    assert "fault 1 of 1" in result.stdout and "train.max_faults is 1" in result.stderr
    assert "Traceback" not in result.stderr


BROKEN = """
import time, gymnasium, numpy as np


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
