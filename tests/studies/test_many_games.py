"""One network, many games: whose scale an error has, and the readings of a table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from rbs_tf import ReturnMoments, scores
from studies import many_games
from studies.many_games import GAMES, OF_EACH_GAME, RATES, Learner

ROOT = Path(__file__).parents[2]


def updated(arm, times):
    """The weights after three updates of two games, whose rewards are multiplied with `times` [2]."""
    tf.keras.utils.set_random_seed(0)
    rng, learner, per_game = np.random.default_rng(0), Learner(2, arm, 1e-3), np.repeat(times, OF_EACH_GAME)
    for game, factor in enumerate(times):
        episode = ReturnMoments.from_episode(factor * rng.normal(size=20), np.full(20, 0.99))
        learner.scaling.merge_state(episode.put_in_head(game, 2))
    for _ in range(3):
        size = 2 * OF_EACH_GAME
        memory, following = rng.integers(256, size=(2, size, 128)).astype(np.uint8)
        reward = np.float32(per_game * rng.normal(size=size))
        discount, counts = np.full(size, 0.99, np.float32), rng.random(size) < 0.9
        batch = memory, rng.integers(18, size=size).astype(np.int32), reward, discount, following, counts
        learner.update(*map(tf.constant, batch))
    return np.concatenate([weights.ravel() for weights in learner.online.get_weights()])


def test_with_values_in_units_no_games_scale_matters_and_without_it_does():
    np.testing.assert_array_equal(updated("return_out", [1.0, 1.0]), updated("return_out", [1024.0, 1.0]))
    assert not np.allclose(updated("none", [1.0, 1.0]), updated("none", [1024.0, 1.0]), atol=1e-4)


def test_every_arm_learns_otherwise():
    assert len({updated(arm, [8.0, 1.0]).tobytes() for arm in many_games.ARMS}) == len(many_games.ARMS)


def test_it_plays_and_counts_the_last_fifths_episodes(monkeypatch):
    monkeypatch.setattr(many_games, "UPDATE_EVERY", 400)  # one update
    first, second = many_games.play(["pong", "asterix"], "clip", 5e-4, steps=1202, seed=0)
    assert (first["game"], second["game"]) == ("pong", "asterix")
    assert first["sigma"] > 0.0 and second["unit"] > second["sigma"] > first["sigma"]


def rows(score):
    """A complete table of `score(arm, rate, game)`; own networks have 100, and sigma grows from game to game."""
    found = []
    for run in many_games.all_runs():
        for game in run.games:
            above = 100.0 if run.own_network else score(run.arm, run.rate, GAMES.index(game))
            found.append((*run[:4], game, scores.RANDOM[game] + above, 9, 1.0 + GAMES.index(game), 1.0))
    return pd.DataFrame(found, columns=many_games.FIELDS)


def test_readings_name_the_games_above_none_and_what_they_lack(tmp_path):
    def score(arm, rate, game):
        if rate != RATES[1]:
            return 0.0
        return {"none": 50.0, "clip": 40.0, "return": 60.0 if game < 8 else 20.0, "return_out": 75.0}[arm]

    table = rows(score)
    assert not many_games.missing(table)
    found = many_games.readings(table).set_index(["arm", "games"])
    above = found["above none"].unstack("games")[["small sigma", "large sigma"]].T.to_dict("list")
    assert above == {"none": [0, 0], "clip": [0, 0], "return": [8, 0], "return_out": [8, 8]}
    short = found["short of own network"]
    assert short["return"].tolist() == pytest.approx([0.4, 0.8])
    assert short["return_out"].tolist() == pytest.approx([0.25, 0.25])
    verdicts = [line.split("|")[-2].strip() for line in many_games.table(found.reset_index())[2:]]
    assert verdicts == ["", "neither", "shifts", "helps"]
    many_games.draw(table, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_rate_is_chosen_without_the_game_itself():
    def score(arm, rate, game):
        return float(rate == (RATES[2] if game == 0 else RATES[0]))

    found = many_games.scores_at_chosen_rates(rows(score))["none"]
    assert found["alien"] - scores.RANDOM["alien"] == 0.0
    assert found["qbert"] - scores.RANDOM["qbert"] == pytest.approx(1.0)


def test_runs_that_are_in_the_table_are_not_played_again(tmp_path, monkeypatch):
    monkeypatch.setattr(many_games, "all_runs", lambda: [many_games.Run("none", 0, 5e-4, True, ("pong",))])
    table = tmp_path / "table.csv"
    many_games.play_missing(table, steps=20)
    assert len(many_games.read(table)) == 1 and not many_games.missing(many_games.read(table))


def test_the_pages_table_is_that_of_the_runs():
    rows = many_games.read(ROOT / many_games.TABLE)
    found, scored = many_games.readings(rows), many_games.scores_at_chosen_rates(rows)
    assert "\n".join(many_games.table(found)) in (ROOT / "docs/reproducing.md").read_text()
    above = found.groupby("arm")["above none"].sum()
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"better than no scaling in {above['return']} games, clipped rewards in {above['clip']}." in readme
    assert "Against each other, each wins eight" in readme
    assert (scored["clip"] > scored["return"]).sum() == (scored["clip"] < scored["return"]).sum() == 8
