"""Runs found, read and grouped, the tables made of them and the page, from folders whose answers are known by hand."""

import csv
import re
import shutil

import numpy as np
import pytest

from agents.commands.report import main
from agents.errors import UsageError
from agents.monitoring.report import runs, tables
from tests.agents.monitoring.report.written import write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two games, with scaling and without, two seeds each; without, the second seed stops early."""
    root = tmp_path_factory.mktemp("runs")
    for env in ("pong", "ALE/Breakout-v5"):
        for seed in (0, 1):
            name = f"{env[-5:]}{seed}"
            write_run(root / f"x{name}", env, "return_based", seed, factor=0.1 * (1 + seed))
            end = 100 if seed == 0 else 60
            write_run(root / "below" / f"y{name}", env, "none", seed, factor=0.05, updates=end)
    return root


@pytest.fixture(scope="module")
def whole(root):
    return tables.compute_tables(made(root)[0])


def made(*folders):
    return tables.group_runs([runs.read_run(folder) for folder in runs.find_runs(folders)])


def rows(table, **values):
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def test_a_run_says_what_it_is_and_how_far_it_came(root):
    run = runs.read_run(root / "below" / "ypong1")
    assert (run.environment, run.seed, run.planned) == ("pong", 1, 100)
    assert (run.updates, run.steps, run.state) == (60, 600, "stopped")
    assert run.versions["commit"] == "a" * 40
    assert runs.read_run(root / "xpong0").state == "finished"


def test_groups_come_from_settings_and_not_from_names(root):
    groups, left_out = made(root)
    assert [group.label for group in groups] == ["return_based", "none"] and left_out == []
    for group in groups:
        assert {env: [run.seed for run in of] for env, of in group.runs.items()} == {
            "breakout": [0, 1],
            "pong": [0, 1],
        }


def test_what_says_nothing_is_left_out_with_the_reason(root, tmp_path):
    write_run(tmp_path / "twice", updates=100)
    write_run(tmp_path / "shorter", updates=50)
    shutil.rmtree(write_run(tmp_path / "empty", seed=2) / "train")
    shutil.rmtree(tmp_path / "empty" / "eval")
    groups, left_out = made(tmp_path)
    assert {folder.name: why.split(" ")[2] for folder, why in left_out} == {"shorter": "the", "empty": "made"}
    # Without evaluations everywhere, final returns are those of training.
    assert set(tables.compute_tables(groups)["final_returns"]["returns"]) == {"evaluation"}
    write_run(tmp_path / "one", seed=7, evaluated=False)
    final = tables.compute_tables(made(root, tmp_path)[0])["final_returns"]
    assert set(final["returns"]) == {"training"}


def test_curves_end_where_the_first_seed_ends(whole):
    curves = whole["learning_curves"]
    # Entries lie at every tenth update: at a bin's upper edge of 20 stands the entry of update 20.
    at = {"environment": "pong", "group": "return_based", "returns": "training", "updates": 20}
    assert rows(curves, **at)[["mean", "low", "high"]].to_numpy().tolist() == [pytest.approx([3.0, 2.0, 4.0])]
    early = rows(curves, environment="pong", group="none", returns="evaluation").set_index("updates")["mean"]
    assert early[60] == pytest.approx(4.0) and early.index.max() == 60


def test_final_returns_and_human_normalised_scores_by_hand(whole):
    # Greedy evaluations in (48, 60], as the shortest run has 60: that of update 60, 0.1 * 60 + 1 and 0.2 * 60 + 1.
    final = rows(whole["final_returns"], environment="pong", group="return_based").iloc[0]
    assert final[["seeds", "updates", "mean", "low", "high"]].tolist() == pytest.approx([2, 60, 10, 7, 13])
    pong = [(7 + 20.7) / (14.6 + 20.7), (13 + 20.7) / (14.6 + 20.7)]
    assert final["human_normalised_mean"] == pytest.approx(np.mean(pong))
    breakout = [(7 - 1.7) / (30.5 - 1.7), (13 - 1.7) / (30.5 - 1.7)]
    mean = np.mean([*pong, *breakout])
    assert rows(whole["aggregates"], group="return_based")["value"].tolist() == pytest.approx(
        [mean, mean, mean, np.mean([pong[0], breakout[1]])]
    )


def test_the_page_holds_two_figures_and_every_table_and_needs_no_network(root, tmp_path):
    write_run(tmp_path / "<one>", "minatar/breakout")
    output = tmp_path / "out" / "report.html"
    assert main([str(root), str(tmp_path), f"--output={output}"]) == 0
    text = output.read_text()
    assert text.count('src="data:image/svg+xml;base64,') == text.count("src=") == 2
    assert not re.search(r"https?://|\bnan\b|<NA>", text) and "&lt;one&gt;" in text
    for words in ("interquartile mean", "stopped", "minatar/breakout"):
        assert words in text, words
    found = {
        path.stem: list(csv.DictReader(path.open())) for path in (output.parent / "report_csv").iterdir()
    }
    assert {name: len(table) for name, table in found.items() if name != "learning_curves"} == {
        "runs": 9,
        "final_returns": 5,
        "aggregates": 8,  # of the games that both groups have played
    }


def test_one_run_without_evaluations_and_losses_makes_a_page(tmp_path):
    write_run(tmp_path / "run", "CartPole-v1", losses=False, evaluated=False)
    main([str(tmp_path), f"--output={tmp_path / 'page.html'}"])
    assert (tmp_path / "page.html").read_text().count("<img ") == 2


def test_no_run_is_one_clear_line_and_a_damaged_one_is_left_out(tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=f"No run to report on in {folder}.*config.gin"):
            main([str(folder), f"--output={tmp_path / 'report.html'}"])
    folder = write_run(tmp_path / "run")
    (tmp_path / "binary").mkdir()
    for name in (
        "config.gin",
        "operative_config.gin",
    ):  # is left out with the reason; the others are reported on
        (tmp_path / "binary" / name).write_bytes(b"\xff\xfe" * 40)
    assert main([str(tmp_path), f"--output={tmp_path / 'report.html'}"]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'binary'}: left out, " in said and "Groups: return_based\n" in said
    shutil.rmtree(tmp_path / "binary")
    (folder / "operative_config.gin").unlink()
    with pytest.raises(UsageError, match=f"{folder}: no operative_config.gin: the run has not got as far"):
        main([str(tmp_path), f"--output={tmp_path / 'report.html'}"])
