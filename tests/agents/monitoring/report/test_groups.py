"""Runs found, read and grouped, and the numbers made of them, from folders whose answers are known by hand."""

import shutil

import numpy as np
import pytest

from agents.monitoring.report import groups, numbers, runs
from tests.agents.monitoring.report.written import HEADS, write_run


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
    return numbers.compute(made(root))


def made(*folders, axis="updates"):
    found = [runs.read(folder) for folder in runs.find(folders)]
    return groups.make([runs.over_steps(run) for run in found] if axis == "steps" else found, axis)


def rows(table, **values):
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def test_a_run_says_what_it_is_and_how_far_it_came(root):
    run = runs.read(root / "below" / "ypong1")
    assert (run.environment, run.seed, run.planned) == ("pong", 1, 100)
    assert (run.updates, run.steps, run.length, run.state) == (60, 600, 60.0, "stopped")
    over_steps = runs.over_steps(run)
    for kind in ("training", "evaluation"):
        np.testing.assert_array_equal(over_steps.returns(kind)[0], 10 * run.returns(kind)[0])
    assert over_steps.length == 600.0
    assert run.versions["commit"] == "a" * 40 and run.heads == list(HEADS)
    assert runs.read(root / "xpong0").state == "finished"


def test_groups_come_from_settings_and_not_from_names(root):
    found = made(root)
    assert [group.label for group in found.groups] == ["return_based", "none"]
    assert found.environments == ["breakout", "pong"]
    assert [len(of) for *_, of in found.cells()] == [2] * 4
    assert found.ends == {"breakout": 60, "pong": 60}
    assert made(root, axis="steps").ends == {"breakout": 600, "pong": 600}
    assert found.kind == "evaluation" and found.left_out == []
    assert {found.name(run) for run in found.runs()} >= {"below/ypong1", "xpong0"}


def test_notes_say_what_stands_in_the_way(root, tmp_path):
    text = " ".join(groups.notes(made(root)))
    assert "more than their scaling" not in text and "states of the code" not in text
    assert "pong: runs are of different lengths. Numbers are taken at 60 learner updates" in text
    assert "Stopped before the updates that were asked for: below/y" in text
    assert "too narrow" in text
    write_run(tmp_path / "a", rate=1e-3, commit="b" * 40 + " with changes")
    write_run(tmp_path / "b", scaling="none")
    text = " ".join(groups.notes(made(tmp_path)))
    assert "differ in more than their scaling: RecurrentMultiHeadAgent.learning_rate" in text
    assert "2 of 2 combinations of group and environment have one seed" in text
    assert "2 states of the code: aaaaaaaaaa, bbbbbbbbbb with changes" in text


def test_what_says_nothing_is_left_out_with_the_reason(root, tmp_path):
    write_run(tmp_path / "twice", updates=100)
    write_run(tmp_path / "shorter", updates=50)
    shutil.rmtree(write_run(tmp_path / "empty", seed=2) / "train")
    shutil.rmtree(tmp_path / "empty" / "eval")
    left_out = made(tmp_path).left_out
    assert {folder.name: why.split(" ")[2] for folder, why in left_out} == {"shorter": "the", "empty": "made"}
    # Without evaluations everywhere, scores are training returns.
    write_run(tmp_path / "one", seed=7, evaluated=False)
    assert made(root, tmp_path).kind == "training"


def test_curves_hold_each_seed_and_end_where_the_first_ends(whole):
    seeds, means = whole["learning_curves"], whole["learning_curve_means"]
    # Entries lie at every tenth update: at a bin's upper edge of 20 stands the entry of update 20.
    at = {"environment": "pong", "group": "return_based", "returns": "training", "updates": 20}
    assert rows(seeds, **at)["return"].tolist() == pytest.approx([2.0, 4.0])
    assert rows(means, **at)[["mean", "low", "high"]].to_numpy().tolist() == [pytest.approx([3.0, 2.0, 4.0])]
    early = {"environment": "pong", "group": "none", "returns": "evaluation"}
    mean = rows(means, **early).set_index("updates")["mean"]
    assert mean[60] == pytest.approx(4.0) and mean[mean.index > 60].isna().all()


def test_human_normalised_scores_by_hand(root, whole):
    # Greedy evaluations in (48, 60]: the one of update 60, 0.1 * 60 + 1 and 0.2 * 60 + 1.
    final = rows(whole["final_returns"], environment="pong", group="return_based").iloc[0]
    assert final[["mean", "low", "high"]].tolist() == pytest.approx([10.0, 7.0, 13.0])
    pong = [(7 + 20.7) / (14.6 + 20.7), (13 + 20.7) / (14.6 + 20.7)]
    assert final["human_normalised_mean"] == pytest.approx(np.mean(pong))
    breakout = [(7 - 1.7) / (30.5 - 1.7), (13 - 1.7) / (30.5 - 1.7)]
    mean = np.mean([*pong, *breakout])
    assert rows(whole["aggregates"], group="return_based")["value"].tolist() == pytest.approx(
        [mean, mean, mean, np.mean([pong[0], breakout[1]])]
    )
    everywhere = whole["improvement"].iloc[0].tolist()
    assert everywhere == [numbers.ALL, "return_based", "none", 2, 1.0, 1.0, 1.0]


def test_what_heads_learn_from(whole):
    def of(group, seed, part, name):
        return rows(whole["heads"], environment="pong", group=group, seed=seed, part=part)[name].tolist()

    assert of("none", 0, "last fifth", "loss") == pytest.approx([1, 10, 100])
    assert of("none", 0, "whole run", "share_of_loss") == pytest.approx([1 / 111, 10 / 111, 100 / 111])
    for part, error in (("whole run", 35), ("first fifth", 10), ("last fifth", 55)):  # of 60 updates
        assert of("return_based", 1, part, "td_error") == pytest.approx([error] * 3)
    assert of("return_based", 1, "last fifth", "value_error") == pytest.approx([0.5] * 3)
