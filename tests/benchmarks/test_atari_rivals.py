"""Stable-Baselines3 on Atari: what is refused, the clock and the table; training itself takes hours and PyTorch."""

import csv
import subprocess
import sys

import pytest

from benchmarks.rivals import sb3_atari
from benchmarks.rivals.sb3_atari import Evaluation, Run, Stopwatch
from tests.source_tree import ROOT

RUN = Run("dqn", "pong", 0)


def lines(run, marks, mean_return=-20.5):
    evaluation = Evaluation(mean_return, 1)
    return [sb3_atari.line_of(run, mark, 14.5, 200_000, 25_000, evaluation, evaluation) for mark in marks]


def options(tmp_path, **changes):
    given = {
        "algorithm": "dqn",
        "game": "pong",
        "out": tmp_path / "new/rivals.csv",
        "folder": tmp_path / "runs",
    }
    return [f"--{name}={value}" for name, value in (given | changes).items()]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": "ppo"}, "'ppo'"),
        ({"game": "skiing"}, "'skiing'"),
        ({"seed": -1}, "--seed=-1 must be from 0"),
        ({"seed": "one"}, "'one'"),
        ({"minutes": 0}, "--minutes=0.0 must be above 0"),
        ({"minutes": "nan"}, "--minutes=nan must be above 0"),
        ({"minutes": "inf"}, "--minutes=inf must be above 0"),
        ({"core": 1_000_000}, "--core=1000000 must be one of"),
        ({"out": "rivals.txt"}, "--out=rivals.txt must be a file that ends in .csv"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(changes, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        sb3_atari.main(options(tmp_path, **changes))
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out", "folder"])
def test_a_file_in_a_folders_place_is_refused(name, tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit) as ended:
        sb3_atari.main(options(tmp_path, **{name: file / "rivals.csv"}))
    assert ended.value.code == 2
    assert f"--{name}: {file} must be a folder" in capsys.readouterr().err


def test_a_table_with_other_columns_is_refused_and_left_alone(tmp_path, capsys):
    table = tmp_path / "other.csv"
    table.write_text("game,score\npong,21\n")
    with pytest.raises(SystemExit) as ended:
        sb3_atari.main(options(tmp_path, out=table))
    assert ended.value.code == 2
    assert f"{table} has other columns" in capsys.readouterr().err
    assert table.read_text() == "game,score\npong,21\n"


def test_lines_come_at_every_quarter():
    assert sb3_atari.quarters(60) == ["15", "30", "45", "60"]
    assert sb3_atari.quarters(3) == ["0.75", "1.5", "2.25", "3"]


def test_a_paused_watch_counts_nothing():
    now = {"wall": 1000.0, "cpu": 50.0}
    watch = Stopwatch(lambda: now["wall"], lambda: now["cpu"])
    now.update(wall=1600.0, cpu=350.0)
    with watch.paused():
        now.update(wall=4000.0, cpu=900.0)
    assert watch.minutes() == (10.0, 5.0)
    now.update(wall=4060.0, cpu=930.0)
    assert watch.minutes() == (11.0, 5.5)


def test_a_run_is_finished_with_its_fourth_line(tmp_path):
    table = tmp_path / "rivals.csv"
    assert not sb3_atari.is_finished(table, RUN, 60)
    for count in range(1, 5):
        sb3_atari.write(table, RUN, 60, lines(RUN, sb3_atari.quarters(60)[:count]))
        assert sb3_atari.is_finished(table, RUN, 60) == (count == 4)
    assert not sb3_atari.is_finished(table, RUN, 3)
    assert not sb3_atari.is_finished(table, RUN._replace(seed=1), 60)
    assert not sb3_atari.is_finished(table, RUN._replace(algorithm="qrdqn"), 60)


def test_a_second_attempt_replaces_the_lines_of_the_first_and_no_others(tmp_path):
    table = tmp_path / "rivals.csv"
    other = RUN._replace(game="breakout")
    sb3_atari.write(table, other, 60, lines(other, sb3_atari.quarters(60)))
    sb3_atari.write(table, RUN, 3, lines(RUN, sb3_atari.quarters(3)))
    sb3_atari.write(table, RUN, 60, lines(RUN, ["15", "30", "45"], mean_return=-21))
    sb3_atari.write(table, RUN, 60, lines(RUN, ["15"], mean_return=-19))
    with table.open(newline="") as file:
        found = [(line["game"], line["minutes"], line["mean_return"]) for line in csv.DictReader(file)]
    assert found == [
        *(("breakout", mark, "-20.50") for mark in ("15", "30", "45", "60")),
        *(("pong", mark, "-20.50") for mark in ("0.75", "1.5", "2.25", "3")),
        ("pong", "15", "-19.00"),
    ]
    assert list(tmp_path.iterdir()) == [table]


def test_a_finished_run_is_not_repeated(tmp_path, capsys):
    table = tmp_path / "rivals.csv"
    sb3_atari.write(table, RUN, 60, lines(RUN, sb3_atari.quarters(60)))
    before = table.read_bytes()
    sb3_atari.main(options(tmp_path, out=table))
    assert "already in" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [table] and table.read_bytes() == before


def test_exploration_ends_after_as_many_steps_as_in_rl_zoo():
    explored = {
        name: sb3_atari.PLANNED_STEPS * settings["exploration_fraction"]
        for name, settings in sb3_atari.SETTINGS.items()
    }
    assert explored == {"dqn": 1_000_000, "qrdqn": 250_000}


def test_neither_this_projects_agent_nor_tensorflow_nor_pytorch_is_loaded_to_read_the_command_line():
    heavy = ["agents", "networks", "rbs_tf", "tensorflow", "torch", "stable_baselines3", "gymnasium"]
    code = (
        f"import sys, benchmarks.rivals.sb3_atari; print([name for name in {heavy} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
