"""Random play on real games, within a time, and what is computed from it."""

import csv
import itertools
import math

import numpy as np
import pytest

from rbs_tf.environments import batched  # noqa: F401  TensorFlow, before any clock runs
from studies import human_normalised as scores
from studies.episodes import Episode


def test_scales_of_known_episodes():
    row = scores.scales([Episode(np.array([0.0, 0.0, 10.0])), Episode(np.array([-20.0]))])
    assert row["episodes"] == 2
    assert row["steps_per_episode"] == 2
    assert row["score_in_points"] == -5
    assert row["points_per_non_zero_reward"] == 15
    assert row["rewards_per_step"] == 0.5
    assert row["root_mean_square_return_gamma_1"] == pytest.approx(np.sqrt((3 * 100 + 400) / 4))
    assert row["sigma_gamma_0"] == pytest.approx(np.std([0, 0, 10, -20]))


def test_scaled_losses_do_not_depend_on_the_points_a_reward_is_worth():
    rng = np.random.default_rng(0)
    episodes = [Episode((rng.random(n) < 0.1).astype(float)) for n in (50, 80, 20)]
    small, large = scores.scales(episodes), scores.scales([Episode(1000 * e.rewards) for e in episodes])
    for gamma in scores.GAMMAS:
        assert large[f"loss_gamma_{gamma:g}"] == pytest.approx(1e6 * small[f"loss_gamma_{gamma:g}"])
        assert large[f"scaled_loss_gamma_{gamma:g}"] == pytest.approx(small[f"scaled_loss_gamma_{gamma:g}"])


def test_without_a_finished_game_the_command_says_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match="raise --seconds"):
        scores.main([f"--output_dir={tmp_path}", "--seconds=0", "--games=pong"])


def test_the_command_writes_figure_numbers_and_one_line(tmp_path, capsys, monkeypatch):
    random_episodes, calls = scores.random_episodes, itertools.count()

    def time_for_two_batches(game, num_envs, seed, deadline):
        return random_episodes(game, num_envs, seed, math.inf) if next(calls) < 2 else []

    monkeypatch.setattr(scores, "random_episodes", time_for_two_batches)
    monkeypatch.setattr(scores, "BATCH", 2)
    scores.main([f"--output_dir={tmp_path}", "--games=breakout,montezuma_revenge"])
    assert (tmp_path / "scores.png").stat().st_size > 0
    assert (tmp_path / "scores.svg").stat().st_size > 0
    with open(tmp_path / "scores.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["game"] == "breakout"
    assert int(rows[0]["episodes"]) % scores.BATCH == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "2 of 2 games reached" in out
