"""The readings of the 57 games, on numbers whose answers are known."""

import numpy as np
import pytest
from scipy import stats

from agents.commands import sweep
from benchmarks import atari57
from rbs_tf.scores import GAMES
from tests.source_tree import ROOT


def test_a_standardised_difference_is_cohens_d():
    rng = np.random.default_rng(0)
    first, second = rng.normal(3.0, 2.0, 40), rng.normal(2.0, 1.0, 25)
    pooled = np.sqrt((39 * first.var(ddof=1) + 24 * second.var(ddof=1)) / 63)
    of = ((each.mean(), each.std(ddof=1), len(each)) for each in (first, second))
    assert atari57.standardised(*of) == pytest.approx((first.mean() - second.mean()) / pooled)
    assert atari57.standardised((1.0, 0.0, 9), (1.0, 0.0, 9)) == 0.0, "a game in which nobody does anything"
    assert atari57.standardised((1.0, 0.0, 9), (2.0, 0.0, 9)) == -10.0


def test_differences_pair_runs_of_a_game_and_seed_and_average_seeds():
    columns = ("game", "variant", "seed", "late", "late_sd", "late_episodes")
    lines = ["pong return 1 3", "pong none 1 1", "pong return 2 5", "pong none 2 4", "qbert return 1 7"]
    rows = [dict(zip(columns, (*line.split(), "1", "10"), strict=True)) for line in lines]
    nothing_late = dict(zip(columns, ("hero", "return", "1", "", "0", "0"), strict=True))
    rows += [nothing_late, rows[1] | {"game": "hero"}]
    assert atari57.differences(rows, "return", "none") == {"pong": pytest.approx((2 + 1) / 2)}


def test_sign_flips_agree_with_every_flip_and_with_student_on_many_games():
    values = np.array([0.9, -0.2, 0.4, 0.7, 0.1, 0.3])
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(values))).reshape(len(values), -1).T
    exact = np.mean(np.abs(signs @ values) >= values.sum() - 1e-12)
    mean, _, _, p = atari57.sign_flips(values)
    assert mean == pytest.approx(values.mean()) and p == pytest.approx(exact, abs=1e-9)
    many = np.random.default_rng(1).normal(0.3, 1.0, 57)
    mean, low, high, p = atari57.sign_flips(many)
    student = stats.ttest_1samp(many, 0.0)
    np.testing.assert_allclose([low, high], student.confidence_interval(0.95), atol=0.03)
    assert p == pytest.approx(student.pvalue, abs=0.02)
    wider = atari57.sign_flips(many, 0.995)
    assert wider[1] < low < high < wider[2]


def test_games_above_are_counted_with_ties_half_and_an_exact_interval():
    count, number, low, high = atari57.above(np.array([1.0, 2.0, -1.0, 3.0]))
    exact = stats.binomtest(3, 4).proportion_ci(0.95, method="exact")
    assert (count, number, low, high) == pytest.approx((3, 4, *exact))
    assert atari57.above(np.array([0.0, 0.0]))[0] == 1.0


def test_later_stages_are_the_first_one_with_other_scalings(tmp_path):
    first, *others = (
        sweep.read_sweep(ROOT / f"benchmarks/sweeps/atari57_{stage}.sweep")
        for stage in ("heads", "scaled_heads", "one_head", "asterix", "skiing")
    )
    assert sorted(first.axes["env"]) == list(GAMES)
    for other in others:
        own = {"scaling", "seed"} | ({"env"} if len(other.axes["env"]) == 1 else set())
        assert {name for name in first.axes if other.axes[name] != first.axes[name]} <= own
        assert other.bindings == first.bindings
        assert other.at_a_time == first.at_a_time
        variants = {atari57.name_of(folder)[1] for folder in other.runs(tmp_path)}
        assert len(variants) == len(other.axes["scaling"])


def test_late_returns_are_those_of_heads_that_look_ahead_and_no_fewer_than_ten(tmp_path):
    (tmp_path / "train").mkdir()

    def written(late):
        rows = [(1000 * k, "clipped_0.9", k) for k in range(50)] + [(90_000, "unclipped_0", -1e6)]
        rows += [(81_000 + k, "unclipped_1", 100 + k) for k in range(late)]
        lines = "".join(f"{steps},{head},0.1,{points},9,1\n" for steps, head, points in rows)
        header = "environment_steps,head,epsilon,return,steps,rewards\n"
        (tmp_path / "train/episodes.csv").write_text(header + lines)
        return atari57.late_returns(tmp_path, 100_000).tolist()

    assert written(12) == list(range(100, 112))
    assert written(3) == [*range(43, 50), 100, 101, 102], "the last ten of the run"


def test_a_sweep_on_another_machine_leaves_out_what_the_table_has(tmp_path, monkeypatch):
    rows = [{"game": "pong", "variant": name, "seed": "571"} for name in ("none", "one_head_none")]
    monkeypatch.setattr(atari57, "read", lambda table: rows)
    atari57.mark(tmp_path)
    grid = sweep.read_sweep(atari57.ROOT / "benchmarks/sweeps/atari57_heads.sweep")
    runs = grid.runs(tmp_path)
    done = [folder.name for folder in runs if sweep.is_finished(folder, 25_000)]
    names = "atari_100k-pong-none-seed571", "atari_100k-pong-benchmarks_sweeps_one_head_none-seed571"
    assert len(runs) == 2 * 228 and sorted(done) == sorted(names)
    assert [atari57.name_of(tmp_path / name) for name in names] == [tuple(row.values()) for row in rows]
