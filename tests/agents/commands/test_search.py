"""Sweeps that search, with a stand-in for train.py whose return is known, and with the real one."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import warnings

import gin
import pytest

from agents.commands import search, sweep
from agents.commands.train import check_configuration, main
from agents.errors import UsageError
from agents.running import processes
from agents.storage.run_folder import REPOSITORY
from tests.agents.running.test_embedded import TINY

optuna = pytest.importorskip("optuna")
RATE = "RecurrentMultiHeadAgent.learning_rate"
FILE = f"""
seed = [0, 1]
updates = 5
search = "tpe"
trials = 3
{RATE} = log_uniform(1e-4, 1e-2)
SequenceShape.length = integer(10, 40)
MlpTorso.units = choice((8,), (16, 16))
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(processes, "_POLL", 0.01)
    yield
    gin.clear_config()


class Runs:
    """Runs that return at once: the last evaluation is -(log10(rate) + 3)^2 and a little per seed, the first is 7."""

    def __init__(self, root):
        self.root, self.rates, self.fails, self.stop_before = root, [], (), None
        self.sign = -1

    def __call__(self, waiting, begin):
        for folder in waiting:
            if folder.name == self.stop_before:
                raise KeyboardInterrupt
            if folder.name in self.fails:
                yield folder, 1
                continue
            flags = begin(folder)
            rate = float(next(flag for flag in flags if RATE in flag).split(" = ")[1])
            self.rates.append(rate)
            value = self.sign * (math.log10(rate) + 3) ** 2 + 0.01 * folder.name.endswith("seed1")
            (folder / "eval").mkdir(parents=True)
            lines = [["update", "head", "return", "steps"], [2, "h", 6, 1], [2, "h", 8, 1]]
            lines += [[5, "h", value - 1, 1], [5, "h", value + 1, 1]]
            with (folder / "eval" / "episodes.csv").open("w") as file:
                csv.writer(file).writerows(lines)
            (folder / "finished.json").write_text(json.dumps({"updates": 5}))
            yield folder, 0


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Runs a sweep of a text with `Runs`, which it has as an attribute; returns the exit code."""
    runs = Runs(tmp_path / "root")
    monkeypatch.setattr(processes, "work_through", runs)
    monkeypatch.setattr(processes, "start", lambda command: command)

    def run(text, root="root", check=lambda commands, folders: [5] * len(commands)):
        (tmp_path / "mine.sweep").write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return sweep.run(tmp_path / "mine.sweep", str(tmp_path / root), None, check)

    run.runs = runs
    return run


def test_every_trial_runs_the_grid_with_values_of_its_own_and_the_best_mean_wins(started, tmp_path, capsys):
    assert started(FILE, check=check_configuration) == 0
    out = capsys.readouterr().out
    assert "6 runs in" in out and "6 of 6 runs have finished, 0 failed." in out
    folders = sorted(folder.name for folder in (tmp_path / "root").iterdir() if folder.is_dir())
    assert folders == [f"quickstart-trial00{trial}-seed{seed}" for trial in range(3) for seed in (0, 1)]
    assert started.runs.rates[::2] == started.runs.rates[1::2] and len(set(started.runs.rates)) == 3
    assert all(1e-4 <= rate <= 1e-2 for rate in started.runs.rates)
    values = [0.005 - (math.log10(rate) + 3) ** 2 for rate in started.runs.rates[::2]]
    best = max(range(3), key=values.__getitem__)
    assert [f"Trial {trial}: final_return {values[trial]:.6g}." in out for trial in range(3)] == [True] * 3
    assert f"Best: trial {best}, final_return {values[best]:.6g}, with\n  {RATE} = " in out
    assert f"  {RATE} = {started.runs.rates[2 * best]!r}\n  SequenceShape.length = " in out
    assert "  MlpTorso.units = (8,)" in out or "  MlpTorso.units = (16, 16)" in out
    # All is over; more trials may be asked for, drawn by another rule.
    assert started(FILE) == 0 and len(started.runs.rates) == 6
    assert "6 runs in" in (out := capsys.readouterr().out) and ", 6 of them finished before" in out
    assert started(FILE.replace("trials = 3", "trials = 5").replace("tpe", "random")) == 0
    assert len(started.runs.rates) == 10


def test_what_is_maximised_is_named_in_the_file(started, capsys):
    for maximise, share in (("best_return", 0.0), ("mean_return", 0.5)):
        started.runs.rates.clear()
        assert started(f"{FILE}maximise = '{maximise}'\n", maximise) == 0
        out = capsys.readouterr().out
        for trial, rate in enumerate(started.runs.rates[::2]):
            last = 0.005 - (math.log10(rate) + 3) ** 2
            assert f"Trial {trial}: {maximise} {7.0 + share * (last - 7.0):.6g}." in out


def test_a_stopped_search_goes_on_with_the_trials_that_it_had_begun_and_draws_the_same(
    started, tmp_path, capsys
):
    assert started(FILE, "whole") == 0
    whole = list(started.runs.rates)
    started.runs.rates.clear()
    for stopped in ("trial000-seed0", "trial001-seed1", "trial002-seed0"):
        started.runs.stop_before = f"quickstart-{stopped}"
        with pytest.raises(KeyboardInterrupt):
            started(FILE)
    started.runs.stop_before = None
    assert started(FILE) == 0
    assert started.runs.rates == whole
    assert ", 4 of them finished before" in capsys.readouterr().out
    # One that was stopped while it drew.
    storages = optuna.storages
    file = storages.journal.JournalFileBackend(str(tmp_path / "root" / "study.journal"))
    optuna.load_study(study_name="sweep", storage=storages.JournalStorage(file)).ask()
    assert started(FILE.replace("trials = 3", "trials = 4")) == 0
    assert len(started.runs.rates) == 8 and "Trial 4: " in capsys.readouterr().out
    # A trial whose last run had finished before the study was told of it.
    (tmp_path / "root" / "study.journal").unlink()
    assert started(FILE) == 0 and len(started.runs.rates) == 8
    assert "6 of 6 runs have finished" in capsys.readouterr().out


def test_a_failed_run_does_not_end_the_search_and_its_trial_is_tried_again(started, capsys):
    started.runs.fails = ("quickstart-trial001-seed0",)
    assert started(FILE) == 1
    out = capsys.readouterr().out
    assert "quickstart-trial001-seed0: exit code 1" in out and "Trial 1:" not in out and "Trial 2:" in out
    started.runs.fails, rates = (), list(started.runs.rates)
    assert started(FILE) == 0
    assert "Trial 1:" in capsys.readouterr().out
    # Only the run that had failed, and with the values of its trial: those of seed 1.
    assert started.runs.rates == [*rates, rates[2]]


def test_tpe_learns_from_what_it_is_told_and_random_does_not(started, tmp_path):
    text = FILE.replace("seed = [0, 1]", "seed = 0").replace("trials = 3", "trials = 25")
    drawn = []
    for sampler, sign in (("random", -1), ("random", 1), ("tpe", -1), ("tpe", 1)):
        started.runs.sign, started.runs.rates = sign, []
        text_of = text.replace('"tpe"', repr(sampler))
        assert started(text_of, f"{sampler}{sign}") == 0
        drawn.append([abs(math.log10(rate) + 3) for rate in started.runs.rates])
    assert drawn[0] == drawn[1]
    by_chance, near, far = (sum(distances[10:]) for distances in drawn[1:])
    # Near the best rate, 1e-3, where it is the best; far from it where it is the worst.
    assert near < 0.7 * by_chance and far > 1.3 * by_chance


def test_what_is_wrong_with_a_search_is_said_before_the_first_run(started, tmp_path, monkeypatch):
    rate, length, units = "log_uniform(1e-4, 1e-2)", "integer(10, 40)", "choice((8,), (16, 16))"
    for old, new, answer in (
        (rate, "log_uniform(0, 1e-2)", "line 6: expected log_uniform(LOW, HIGH) with 0 <"),
        (rate, "uniform(2, 1)", "line 6: expected uniform(LOW, HIGH) with LOW < HIGH."),
        (rate, "uniform(low=0, high=1)", "line 6: expected uniform(LOW, HIGH)"),
        ("log_uniform", "loguniform", "line 6: there is no loguniform(...). Expected uniform, log_uniform"),
        (rate, "uniform(a, 1)", "line 6: expected NAME = VALUE"),
        (rate, "uniform(-1, 1e-2)", f"{RATE} = -1: expected"),
        (length, "integer(1.0, 40)", "line 7: expected integer(LOW, HIGH), whole numbers"),
        (length, "integer(-3, 40)", "SequenceShape.length = -3: expected a whole number of at least"),
        ("length", "lenght", "Did you mean length?"),
        (units, "choice((8,), (8,))", "two values or more, all different."),
        (units, "choice((8,), 'big')", "MlpTorso.units = 'big': expected"),
        ('"tpe"', '"tep"', "line 4: search is one of 'tpe', 'random'."),
        ("trials = 3", "trials = 0", "line 5: trials is a whole number from 1 to 10,000."),
        ("trials = 3", "maximise = 'return'", "maximise is one of 'final_return', 'best_return', 'mean_"),
        ("trials = 3", "", "a search takes search = 'tpe' or 'random', trials = N, and a range"),
        ("updates = 5", "train.final_eval_rounds = 0", "train.final_eval_rounds has to be at least 1."),
        ("[0, 1]", "[0, 0]", "the same run more than once: quickstart-ends-seed0."),
    ):
        assert old in FILE
        with pytest.raises(UsageError) as refused:
            started(FILE.replace(old, new), check=check_configuration)
        assert answer in str(refused.value), (new, str(refused.value))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "optuna", None)
        with pytest.raises(UsageError, match=r"pip install 'rbs-tf\[search\]'"):
            started(FILE)
    assert not (tmp_path / "root").exists()


def test_another_search_in_the_same_folder_and_a_damaged_one_are_refused(started, tmp_path):
    assert started(FILE) == 0
    for old, new, what in (
        ("1e-4", "1e-5", RATE),
        ("seed = [0, 1]", "seed = 0", "seed"),
        ("updates = 5", "updates = 6", "updates"),
        ("updates = 5", "updates = 5\nmaximise = 'best_return'", "maximise"),
    ):
        with pytest.raises(UsageError, match=f"holds a search with another {what}: only search, trials and"):
            started(FILE.replace(old, new))
    for damage in (b"\x00\xff\n", b"{}\n", b'{"op_code": 4}\n'):
        (tmp_path / "root" / "study.journal").write_bytes(damage)
        with pytest.raises(UsageError, match=r"study.journal is damaged \(.*give another folder with --r"):
            started(FILE)
    (tmp_path / "eval").mkdir()
    for text in ("", "update,head,return,steps\n", "update\n3\n", "update,head,return,steps\n1,h,x,1\n"):
        (tmp_path / "eval" / "episodes.csv").write_text(text)
        with pytest.raises(UsageError, match="eval/episodes.csv has no evaluation to judge the trial by"):
            search.outcome(tmp_path, "final_return")


def test_on_ray_the_next_is_asked_for_when_there_is_room(tmp_path, monkeypatch):
    """Two CPUs, and one for each: the third waits until one of the first two is over."""
    from contextlib import nullcontext

    from tests.agents.commands.test_sweep import RayOfProcesses

    ray, begun, ended = RayOfProcesses(), [], []
    monkeypatch.setattr(processes.ray_connection, "opened", lambda *_: nullcontext(ray))

    def waiting():
        for number in range(4):
            assert len(begun) - len(ended) < 2
            begun.append(number)
            yield tmp_path / f"{number}", [sys.executable, "-c", ""]

    resources = {"num_cpus": 1, "num_gpus": 0}
    for folder, code in processes.work_through_on_ray(waiting(), "there", resources, queued=False):
        ended.append(folder.name)
        assert code == 0
    assert sorted(ended) == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_train_py_searches_and_goes_on_after_it_was_killed(tmp_path, capfd):
    text = FILE.replace("trials = 3", "trials = 2").replace("[0, 1]", "0").replace("= 5", "= 6")
    bindings = [binding for binding in TINY if "final_eval_rounds" not in binding]
    text += f"env = 'CartPole-v1'\ntrain.final_eval_rounds = 1\ngin_bindings = {bindings!r}\n"
    (tmp_path / "tiny.sweep").write_text(text)
    command = [f"--sweep={tmp_path}/tiny.sweep", f"--root_dir={tmp_path}/root"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    first = [sys.executable, "-u", "train.py", *command]
    streams = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(first, cwd=REPOSITORY, env=environment, **streams) as process:
        for line in process.stdout:
            if line.startswith("Trial 0"):
                process.send_signal(signal.SIGKILL)
    assert main(command) == 0
    out = capfd.readouterr().out
    assert "2 runs in" in out and ", 1 of them finished before" in out
    assert "Trial 1: final_return" in out and "Best: trial" in out
