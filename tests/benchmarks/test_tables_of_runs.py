"""What is read from run folders whose numbers are known: the quickstart's curves, and the table of learning."""

import sys

import pytest

from benchmarks import learning, quickstart_curves
from tests.agents.monitoring.report.written import write_run


def test_the_quickstarts_figure_is_of_its_runs(tmp_path, monkeypatch, capsys):
    runs = [
        str(write_run(tmp_path / f"{name}{seed}", scaling=name, seed=seed, updates=500))
        for name in ("return_based", "none")
        for seed in (0, 1)
    ]
    monkeypatch.setattr(sys, "argv", ["curves", *runs, f"--output={tmp_path / 'a.png'}"])
    quickstart_curves.main()
    said = capsys.readouterr().out
    # Returns are the updates, ten apart; evaluations, twenty apart, one more.
    assert "none, 2 seeds: training 46.00 +- 0.00 in the first fifth, 446.00 +- 0.00 in the last" in said
    assert "greedy 471.00 +- 0.00" in said and "final error of clipped_0, none / return_based: 1.00" in said
    assert (tmp_path / "a.csv").read_text().count("error") == 12


def test_a_row_of_learning_is_of_the_runs_fifths_and_late_episodes(tmp_path):
    folder = write_run(tmp_path / "run")
    lines = ["environment_steps,head,return", *(f"{10 * update},unclipped_0.99,7" for update in range(100))]
    (folder / "train/episodes.csv").write_text("\n".join(lines))
    row = learning.row(folder, "name")
    assert [float(row[name]) for name in learning.FIFTHS] == pytest.approx([15, 35, 55, 75, 95])
    assert (row["variant"], row["steps"], float(row["discounted"]), row["greedy"]) == (
        "name",
        "1000",
        7.0,
        "101",
    )
