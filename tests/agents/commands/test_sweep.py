"""Grids of runs, with a stand-in for train.py where only the order of things matters, and with the real one."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.commands import sweep
from agents.commands.train import check_commands, configure, main, parse_flags
from agents.errors import UsageError
from agents.options import CONFIGS, TrainOptions
from agents.running import processes
from agents.storage.run_folder import REPOSITORY, is_finished, list_versions

# Leaves what train.py leaves. It fails with scaling none unless told not to, and of seeds 8 and 9 it waits for a
# signal, on which 8 hangs.
STAND_IN = """
import json, os, pathlib, signal, sys, time
flags = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
folder = pathlib.Path(flags["root_dir"])
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "starts", "a") as starts:
    starts.write(" ".join(sys.argv[1:]) + chr(10))
def stop(number, _):
    signal.signal(number, signal.SIG_DFL)
    time.sleep(10**6 if flags["seed"] == "8" else 1)
    (folder / "checkpoint").touch()
    sys.exit(128 + number)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
if flags["seed"] in "89" and not (folder / "checkpoint").exists():
    (folder / "waiting.new").write_text(str(os.getpid()))
    (folder / "waiting.new").rename(folder / "waiting")
    while True:
        time.sleep(0.05)
if flags.get("scaling") == "none" and not (folder.parent / "mended").exists():
    sys.exit(1)
(folder / "finished.json").write_text(json.dumps({"updates": 12000}))
"""


@pytest.fixture
def started(tmp_path):
    """Runs a sweep of a text with the stand-in; returns the exit code."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)

    def run(text):
        (tmp_path / "grid.sweep").write_text(text)
        train = (sys.executable, str(tmp_path / "stand_in.py"))
        file, root = tmp_path / "grid.sweep", str(tmp_path / "root")
        return sweep.run(file, root, check_commands, train)

    return run


def grid(tmp_path, text):
    (tmp_path / "grid.sweep").write_text(text)
    return sweep.read_sweep(tmp_path / "grid.sweep")


def test_lists_are_axes_and_seeds_change_slowest(tmp_path):
    asked = grid(
        tmp_path,
        "# a comment\n"
        + 'config = "minatar"\nseed = [0, 1]\nenv = [\n    "pong",  # one\n    "minatar/breakout",\n]\n'
        + "updates = 7\nRecurrentMultiHeadAgent.learning_rate = [2e-4, 6e-4]\nat_a_time = 2\n"
        + 'gin_bindings = ["train.num_envs = 4", "RecurrentQNetwork.torso = @networks.small_torso"]\n',
    )
    runs = asked.runs(tmp_path)
    assert [folder.name for folder in runs] == [
        f"minatar-{env}-learning_rate_{rate}-seed{seed}"
        for seed in (0, 1)
        for env in ("pong", "minatar_breakout")
        for rate in ("0.0002", "0.0006")
    ]
    assert list(runs.values())[-1] == [
        "--seed=1",
        "--config=minatar",
        "--env=minatar/breakout",
        "--updates=7",
        "--gin_bindings=RecurrentMultiHeadAgent.learning_rate = 0.0006",
        "--gin_bindings=train.num_envs = 4",
        "--gin_bindings=RecurrentQNetwork.torso = @networks.small_torso",
        f"--root_dir={list(runs)[-1]}",
    ]
    assert asked.at_a_time == 2


def test_every_sweep_that_comes_along_can_run(tmp_path):
    """Its first run can be built; one of each scaling that it names can be configured."""
    files = [*(CONFIGS / "sweeps").glob("*.sweep"), *(REPOSITORY / "benchmarks/sweeps").glob("*.sweep")]
    assert len(files) > 2
    for file in files:
        runs, scaled = sweep.read_sweep(file).runs(tmp_path), {}
        (folder, first), *_ = runs.items()
        assert len(check_commands([first], [folder])) == 1
        for flags in runs.values():
            scaled.setdefault(next((flag for flag in flags if flag.startswith("--scaling=")), ""), flags)
        for flags in scaled.values():
            configure(TrainOptions.from_flags(parse_flags(flags)))


def test_what_is_wrong_with_any_run_is_said_before_the_first_one_starts(started, tmp_path):
    for text, answer in (
        ("sead = [0, 1]", "grid.sweep, line 1: a sweep has no 'sead'. Did you mean seed"),
        ("seed = []", "asks for no run: a list in it is empty"),
        ("seed = [0, 1, 0]", "the same run more than once: quickstart-seed0."),
        ("seed = 0\nenv = range(3)", "line 2: expected NAME = VALUE, where VALUE is a number, a string"),
        ("seed = 0\nimport os", "line 2: expected NAME = VALUE"),
        ("gin_bindings = 'train.nothing = 8'", "train.nothing"),
        (
            "seed = 0\nenv = 'pong'\nseed = 1",
            "line 3: seed is set before; write all its values into one list.",
        ),
        ("at_a_time = 0", "line 1: at_a_time is a whole number of at least 1."),
        ('scaling = ["none", "retrun"]', "There is no scaling 'retrun'. Did you mean return"),
        ('env = ["pong", "pnog"]', "did you mean 'pong'"),
        ("seed = [0, 1.5]", "argument --seed: must be a whole number of at least 0, not '1.5'."),
    ):
        with pytest.raises(UsageError) as refused:
            started(text)
        assert answer in str(refused.value), text
        assert not (tmp_path / "root").exists(), text


def test_a_folder_of_another_configuration_is_refused_before_the_first_run(started, tmp_path):
    folder = tmp_path / "root" / "quickstart-seed1"
    folder.mkdir(parents=True)
    (folder / "config.gin").write_text("train.seed = 5\n")
    with pytest.raises(UsageError, match="written by another version"):
        started("seed = [0, 1]")
    (folder / "versions.txt").write_text(list_versions())
    with pytest.raises(UsageError, match="belongs to a run with another configuration"):
        started("seed = [0, 1]")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["quickstart-seed1"]
    # What has finished is known from the updates that it was asked for.
    for text, has in (('{"updates": 10}', (True, False)), ('{"upd', (False, False))):
        (folder / "finished.json").write_text(text)
        assert (is_finished(folder, 10), is_finished(folder, 11)) == has


def test_a_failing_run_does_not_stop_the_others_and_is_tried_again(started, tmp_path, capfd):
    text = 'scaling = ["none", "return"]\nseed = [0, 1]'
    assert started(text) == 1
    out = capfd.readouterr().out
    assert "quickstart-return-seed0 finished; 1 of 4 have finished." in out
    assert "2 of 4 runs have finished, 2 failed." in out and "quickstart-none-seed1: exit code 1" in out
    assert "-m agents report " in out
    (tmp_path / "root" / "mended").touch()
    assert started(text) == 0
    out = capfd.readouterr().out
    assert "4 runs in" in out and "2 of them finished before" in out and "4 of 4 runs have finished" in out
    starts = {p.parent.name: len(p.read_text().splitlines()) for p in (tmp_path / "root").glob("*/starts")}
    times = {"none": 2, "return": 1}
    assert starts == {f"quickstart-{name}-seed{seed}": n for name, n in times.items() for seed in (0, 1)}


def test_a_run_that_another_machine_has_is_left_alone(started, tmp_path, capfd):
    """Two machines with one sweep share a disk, and its locks."""
    for seed in (0, 1):
        (tmp_path / f"root/quickstart-seed{seed}").mkdir(parents=True)
    with open(tmp_path / "root/quickstart-seed1/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert started("seed = [0, 1]") == 0
    out = capfd.readouterr().out
    assert "quickstart-seed1 is in work elsewhere and is left alone." in out
    assert "1 of 2 runs have finished, 0 failed." in out
    assert not (tmp_path / "root/quickstart-seed1/starts").exists()


def interrupting(folder, number):
    """A process that sends this one a signal as soon as the stand-in waits."""
    program = (
        "import os, pathlib, time\n"
        f"while not pathlib.Path({str(folder / 'waiting')!r}).exists():\n"
        "    time.sleep(0.05)\n"
        f"os.kill({os.getpid()}, {number})\n"
    )
    return subprocess.Popen([sys.executable, "-c", program])


def test_a_signal_stops_the_present_run_in_order_and_the_sweep(started, tmp_path, capfd):
    root, text = tmp_path / "root", "seed = [0, 9, 1]"
    with interrupting(root / "quickstart-seed9", signal.SIGINT), pytest.raises(KeyboardInterrupt):
        started(text)
    assert (root / "quickstart-seed9" / "checkpoint").exists() and not (root / "quickstart-seed1").exists()
    assert started(text) == 0
    assert "3 of 3 runs have finished" in capfd.readouterr().out


def test_a_killed_sweep_lets_its_run_end_in_order_and_a_second_signal_ends_both_at_once(tmp_path):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    for seed in (9, 8):
        folder = tmp_path / f"run{seed}"
        command = [sys.executable, f"{tmp_path}/stand_in.py", f"--seed={seed}", f"--root_dir={folder}"]
        program = (
            "from agents.running import processes\n"
            f"list(processes.work_through([0], lambda *_: processes.start({command!r})))\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY) as process:
            while not (folder / "waiting").exists():
                assert process.poll() is None
                time.sleep(0.05)
            if seed == 9:
                process.kill()
            while process.poll() is None:  # the first one lets it wait for ever
                process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            assert process.returncode == -(signal.SIGKILL if seed == 9 else signal.SIGTERM)
        pid = (folder / "waiting").read_text()
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.05)
        assert (folder / "checkpoint").exists() == (seed == 9)


def test_other_flags_belong_into_the_file(capsys):
    assert main(["--sweep=minatar", "--seed=1", "--updates=3"]) == 2
    assert "--seed, --updates cannot be given beside --sweep" in capsys.readouterr().err
    assert main(["--sweep=mintar"]) == 2
    assert "There is no sweep 'mintar'. Did you mean minatar" in capsys.readouterr().err


def test_runs_side_by_side_have_a_core_of_their_own():
    cores, said = sorted(os.sched_getaffinity(0)), "import os; print(os.sched_getaffinity(0))"
    places = []

    def begin(job, place):
        places.append(place)
        return processes.start([sys.executable, "-c", said], cores[place % len(cores)])

    assert sorted(processes.work_through("abc", begin, at_a_time=2)) == [("a", 0), ("b", 0), ("c", 0)]
    assert set(places) == {0, 1} and len(places) == 3
