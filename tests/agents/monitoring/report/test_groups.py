"""Runs found, read and grouped, and the numbers made of them, from folders whose answers are known by hand."""

import fcntl
import shutil

import numpy as np
import pytest

from agents.monitoring.report import groups, numbers, runs
from rbs_tf import scores
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
    return groups.make([runs.read(folder) for folder in runs.find(folders)], axis)


def test_a_run_says_what_it_is_and_how_far_it_came(root):
    run = runs.read(root / "below" / "ypong1")
    assert (run.environment, run.game, run.seed, run.planned) == ("pong", "pong", 1, 100)
    assert (run.updates, run.steps, run.state, run.starts) == (60, 600, "stopped", 1)
    assert run.versions["commit"] == "a" * 40 and run.heads == list(HEADS)
    assert runs.read(root / "xpong0").state == "finished"


def test_a_sentence_says_how_each_group_ended_and_how_unlike_its_heads_errors_are(root, whole):
    sentences = numbers.in_words(made(root), whole.heads)
    assert sentences[2:] == [
        "return_based in pong: 8.25 points per training episode, from heads whose errors span a factor of 1 "
        "(last fifth, 2 seeds).",
        "none in pong: 2.75 points per training episode, from heads whose errors span a factor of 10 "
        "(last fifth, 2 seeds).",
    ]
    assert "factor" not in numbers.in_words(made(root), [])[0]


def test_a_run_whose_lock_is_held_is_running(tmp_path):
    folder = write_run(tmp_path / "run", updates=20)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert runs.read(folder).state == "running"
    assert runs.read(folder).state == "stopped"


def test_a_checkpoint_counts_as_progress(tmp_path):
    folder = write_run(tmp_path / "run", updates=20, planned=25)
    (folder / "checkpoints" / "25").mkdir(parents=True)
    assert (runs.read(folder).updates, runs.read(folder).state) == (25, "finished")


def test_a_configuration_that_says_nothing_is_refused_with_the_reason(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "operative_config.gin").write_text("train.env = 'po")
    with pytest.raises(runs.Unreadable, match="cannot be read"):
        runs.read(folder)
    (folder / "operative_config.gin").write_text("a.b = 1")
    with pytest.raises(runs.Unreadable, match="train.env"):
        runs.read(folder)
    (folder / "operative_config.gin").unlink()
    with pytest.raises(runs.Unreadable, match="not got as far"):
        runs.read(folder)


def test_groups_come_from_settings_and_not_from_names(root):
    found = made(root)
    assert [group.label for group in found.groups] == ["return_based", "none"]
    assert found.environments == ["breakout", "pong"]
    assert [len(of) for *_, of in found.cells()] == [2] * 4
    assert found.ends == {"breakout": 60, "pong": 60}
    assert made(root, axis="steps").ends == {"breakout": 600, "pong": 600}
    assert found.kind == "evaluation" and found.left_out == []
    assert {found.name(run) for run in groups.all_runs(found)} >= {"below/ypong1", "xpong0"}


def test_notes_say_what_stands_in_the_way(root, tmp_path):
    text = " ".join(groups.notes(made(root)))
    assert "more than their scaling" not in text and "states of the code" not in text
    assert "pong: runs are of different lengths. Numbers are taken at 60 learner updates" in text
    assert "Stopped before the updates that were asked for: below/y" in text
    assert "too narrow" in text
    write_run(tmp_path / "a", rate=1e-3, commit="b" * 40 + " with changes")
    write_run(tmp_path / "b", scaling="none", losses=False)
    path = next((tmp_path / "b" / "train").iterdir())
    path.write_bytes(path.read_bytes()[:-5])
    text = " ".join(groups.notes(made(tmp_path)))
    assert "differ in more than their scaling: RecurrentMultiHeadAgent.learning_rate" in text
    assert "2 of 2 combinations of group and environment have one seed" in text
    assert "2 states of the code: aaaaaaaaaa, bbbbbbbbbb with changes" in text
    assert "b has not logged loss/HEAD" in text and "breaks off inside a record" in text


def test_what_says_nothing_is_left_out_with_the_reason(tmp_path):
    write_run(tmp_path / "twice", updates=100)
    write_run(tmp_path / "shorter", updates=50)
    shutil.rmtree(write_run(tmp_path / "empty", seed=2) / "train")
    shutil.rmtree(tmp_path / "empty" / "eval")
    left_out = made(tmp_path).left_out
    assert {folder.name: why.split(" ")[2] for folder, why in left_out} == {"shorter": "the", "empty": "made"}


def test_without_evaluations_everywhere_scores_are_training_returns(root, tmp_path):
    write_run(tmp_path / "one", seed=7, evaluated=False)
    assert made(root, tmp_path).kind == "training"


def test_curves_hold_each_seed_and_end_where_the_first_ends(whole):
    curves = {(c.environment, c.group, c.kind): c for c in whole.curves}
    scaled = curves["pong", "return_based", "training"]
    # Entries lie at every tenth update: at a bin's upper edge of 20 stands the entry of update 20.
    at = scaled.places.tolist().index(20)
    assert scaled.seeds[:, at].tolist() == pytest.approx([2.0, 4.0])
    assert scaled.mean[:, at].tolist() == pytest.approx([3.0, 2.0, 4.0])
    early = curves["pong", "none", "evaluation"]
    assert early.mean[0, early.places == 60] == pytest.approx([4.0])
    assert np.isnan(early.mean[0, early.places > 60]).all()
    assert early.seeds[0, early.places == 100] == pytest.approx([6.0])


def test_human_normalised_scores_by_hand(whole):
    ends = {(f.environment, f.group): f for f in whole.finals}
    # Greedy evaluations in (48, 60]: the one of update 60, 0.1 * 60 + 1 and 0.2 * 60 + 1.
    assert ends["pong", "return_based"].returns.tolist() == pytest.approx([7.0, 13.0])
    pong = [(7 + 20.7) / (14.6 + 20.7), (13 + 20.7) / (14.6 + 20.7)]
    assert ends["pong", "return_based"].human_normalised.tolist() == pytest.approx(pong)
    breakout = [(7 - 1.7) / (30.5 - 1.7), (13 - 1.7) / (30.5 - 1.7)]
    mean = np.mean([*pong, *breakout])
    assert whole.aggregates["return_based"][0].tolist() == pytest.approx(
        [mean, mean, mean, np.mean([pong[0], breakout[1]])]
    )
    # The last point of the curves: seeds first (10 points), then games.
    games = np.array([(10 + 20.7) / 35.3, (10 - 1.7) / 28.8])
    expected = [games.mean(), np.median(games), games.mean()]
    assert whole.human_curves["return_based"][:, 0, -1].tolist() == pytest.approx(expected)
    above = whole.profiles["return_based"][0]
    assert above[0] == 1.0 and above[-1] == 0.0
    (everywhere, *_) = whole.improvements
    assert (everywhere.environment, everywhere.seeds) == (numbers.ALL, 2)
    assert everywhere.probability.tolist() == [1.0, 1.0, 1.0]


def test_environments_without_human_scores_are_not_normalised(tmp_path):
    write_run(tmp_path / "a", "minatar/breakout")
    write_run(tmp_path / "b", "minatar/breakout", "none")
    whole = numbers.compute(made(tmp_path))
    assert not scores.has_score("minatar/breakout") and whole.finals[0].human_normalised is None
    assert whole.games == [] and whole.aggregates == {} and whole.human_curves == {} and whole.profiles == {}
    assert np.isnan(whole.improvements[0].probability[1:]).all()  # one seed each


def test_what_heads_learn_from_and_who_acts(whole):
    of = {(run.environment, run.group, run.seed): run for run in whole.heads}
    assert of["pong", "none", 0].of("loss", "last fifth").tolist() == pytest.approx([1, 10, 100])
    assert of["pong", "none", 0].of("share", "whole run").tolist() == pytest.approx(
        [1 / 111, 10 / 111, 100 / 111]
    )
    assert of["pong", "return_based", 1].of("td_error", "first fifth").tolist() == pytest.approx([2, 2, 2])
    assert of["pong", "return_based", 1].of("value_error", "last fifth").tolist() == pytest.approx([0.5] * 3)
    (chosen, *_) = whole.choices
    assert chosen.last.tolist() == pytest.approx([0.1, 0.1, 0.8])
    assert chosen.episodes.sum(axis=1).tolist() == [6, 0, 18]  # six entries up to update 60
    (path,) = [path for path in whole.paths if (path.environment, path.group) == ("pong", "none")]
    assert path.loss[-1] == pytest.approx(111) and path.score[-1] == pytest.approx(3.0)
