"""Scores of Atari 100k: the published ones are those of the papers, and ours come into the same table."""

import pytest

from agents.commands import sweep
from benchmarks import atari100k
from tests.source_tree import ROOT

# Mean and median as the papers print them: Table 2 of Schwarzer et al. 2021 and Table 5 of Cetin et al. 2022.
PRINTED = {
    "random": (0.0, 0.0),
    "SimPLe": (0.443, 0.144),
    "DER": (0.285, 0.161),
    "OTRainbow": (0.264, 0.204),
    "CURL": (0.381, 0.175),
    "DrQ": (0.357, 0.268),
    "SPR": (0.704, 0.415),
}


def finished(root, game, score):
    folder = root / f"atari_100k-{game}-return-seed1"
    folder.mkdir()
    (folder / "atari57_runs.csv").write_text(f"game,variant,seed,greedy\n{game},return,1,{score}\n")


def test_published_scores_make_the_aggregates_that_their_papers_print(tmp_path):
    games = atari100k.published()["SPR"]
    for game, score in games.items():
        finished(tmp_path, game, score)
    lines = atari100k.report(atari100k.ours(tmp_path)).splitlines()
    found = {line.split(" | ")[0][2:]: line.split(" | ")[1:3] for line in lines[4:12]}
    assert found.pop("ours") == found["SPR"], "we have its scores here"
    for name, printed in PRINTED.items():
        assert tuple(map(float, found[name])) == pytest.approx(printed, abs=0.0011)


def test_the_same_games_count_for_all_and_none_is_an_error(tmp_path):
    finished(tmp_path, "pong", 14.6)
    finished(tmp_path, "skiing", 0.0)
    text = atari100k.report(atari100k.ours(tmp_path))
    assert "1 of 26 games" in text and "| ours | 1.000 | 1.000 | 1.000 |" in text
    assert "| DER | 0.040 | 0.040 | 0.040 |" in text and "Agarwal et al. |" not in text
    with pytest.raises(SystemExit, match="No run of any of the 26 games"):
        atari100k.report({"skiing": 0.0})


def test_the_sweep_has_the_games_that_scores_are_published_of():
    asked = sweep.read_sweep(ROOT / "configs/sweeps/atari100k.sweep")
    assert asked.axes["env"] == list(atari100k.published()["SPR"])
