"""The grid of runs, and verdicts on made-up ones whose truth is known; what a run measures takes minutes."""

import itertools
import re

import numpy as np
import pytest

from benchmarks import atari_claims, atari_claims_results, grid
from benchmarks.contrasts import Contrast
from rbs_tf import scores

HEADS = [f"{kind}_{discount}" for kind in ("clipped", "unclipped") for discount in ("0", "0.9", "0.99", "1")]


def made_up(score_of, span_of, games=atari_claims.GAMES, repeats=2):
    """Lines of both tables; `score_of(heads, scaling)` is human-normalised."""
    generator, runs, heads = np.random.default_rng(0), [], []
    for game, variant, repeat in itertools.product(games, atari_claims.VARIANTS, range(repeats)):
        key = {"game": game, "heads": str(variant[0]), "scaling": variant[1], "repeat": str(repeat)}
        random, human = scores.human_normalised_score(game, 0.0), scores.human_normalised_score(game, 1.0)
        points = (score_of(*variant) * generator.normal(1.0, 0.02) - random) / (human - random)
        line = {"last_fifth": points, "greedy": points, "rewarded": 10, "minutes": 20, "processor": "one"}
        runs.append(key | {name: str(value) for name, value in line.items()})
        for index, head in enumerate(HEADS if variant[0] == 10 else HEADS[:1]):
            span = span_of(variant[1]) ** (index / len(HEADS)) * generator.normal(1.0, 0.02)
            share = 1 / len(HEADS) if variant[1] == "return" else 0.2 * head.startswith("unclipped")
            values = {
                "scaled_error": span,
                "relative_value_error": span,
                "loss_share": share,
                "probability": 0.1,
            }
            heads.append(key | {"head": head} | {name: str(value) for name, value in values.items()})
    return runs, heads


def score_of(heads, scaling):
    return {"none": 0.5, "return": 0.5 if heads == 1 else 1.0}.get(scaling, 0.8)


def test_every_variant_has_every_game_and_order_and_seeds_are_of_the_key():
    runs = atari_claims.runs()
    assert len(set(runs)) == len(runs) == 5 * 7 * 2
    assert len({grid.digest(run) for run in runs}) == len(runs)
    first, second = runs[:35], runs[35:]
    assert {run.repeat for run in first} == {0} and {run.repeat for run in second} == {1}
    assert [run.game for run in first] != sorted(run.game for run in first)
    assert [run.game for run in second[21:]] == ["boxing"] * 7 + ["qbert"] * 7
    assert runs == atari_claims.runs()


def test_verdicts_on_runs_whose_truth_is_known():
    lines = made_up(score_of, lambda name: 1e4 if name == "none" else 3.0)
    verdicts = [line.split(" | ")[-1].strip(" |") for line in atari_claims_results.claim_lines(*lines)[2:]]
    assert verdicts[:8] == ["seen", "seen", "seen", "seen", "seen", "seen", "seen", "contradicted"]
    assert verdicts[8:] == ["seen", "seen", "contradicted", "seen"]


def test_single_runs_decide_nothing_and_games_that_nobody_learns_are_left_out():
    lines = made_up(score_of, lambda name: 2.0, repeats=1)
    assert all("cannot be decided" in line for line in atari_claims_results.claim_lines(*lines)[2:])
    runs, heads = made_up(score_of, lambda name: 2.0)
    for row in runs:
        if row["game"] == "qbert":
            row["last_fifth"] = "160"
    assert "| 4 | +" in atari_claims_results.claim_lines(runs, heads)[2]


def test_single_runs_of_some_games_leave_the_others_to_decide():
    runs, heads = made_up(score_of, lambda name: 1e4 if name == "none" else 3.0)

    def kept(rows):
        return [row for row in rows if row["game"] not in atari_claims.CUT or row["repeat"] == "0"]

    lines = atari_claims_results.claim_lines(kept(runs), kept(heads))[2:]
    assert all("| 3 | " in line for line in lines)
    assert not any("cannot be decided" in line for line in lines)


def test_the_column_without_boxing_is_of_the_other_games_and_decides_nothing():
    runs, heads = made_up(score_of, lambda name: 2.0)
    before = atari_claims_results.claim_lines(runs, heads)[2].split(" | ")
    for row in runs:
        if (row["game"], row["heads"], row["scaling"]) == ("boxing", "10", "none"):
            row["last_fifth"] = "300"
    after = atari_claims_results.claim_lines(runs, heads)[2].split(" | ")
    assert after[5] == before[5] and float(after[5].split()[0]) > 0
    assert after[3] != before[3] and (before[7], after[7]) == ("seen |", "contradicted |")
    assert after[6] != before[6]


def test_a_run_without_any_accuracy_is_left_out_of_claims_about_it_alone():
    runs, heads = made_up(score_of, lambda name: 1e4 if name == "none" else 3.0)
    for row in heads:
        if (row["game"], row["scaling"], row["heads"]) == ("qbert", "none", "10"):
            row["relative_value_error"] = "nan"
    spans, accuracy, low, shares = atari_claims_results.claim_lines(runs, heads)[-4:]
    assert "| 5 | " in spans and "| 5 | " in shares.split("their share")[1]
    assert "| 4 | " in accuracy and "| 4 | " in low and "nan" not in accuracy + low


@pytest.mark.parametrize(
    ("difference", "kind", "expected"),
    [
        (1.0, "above", "seen"),
        (-1.0, "above", "contradicted"),
        (0.1, "above", "cannot be decided"),
        (-1.0, "less", "seen"),
        (1.0, "less", "contradicted"),
        (0.0, "par", "seen"),
        (1.0, "par", "contradicted"),
    ],
)
def test_verdict(difference, kind, expected):
    error = 0.05 if kind == "par" else 0.1
    assert atari_claims_results.verdict(Contrast(difference, error, 10.0), kind) == expected


def test_the_page_and_the_figure_are_written_beside_the_tables(tmp_path, capsys):
    with pytest.raises(SystemExit):
        atari_claims_results.main([f"--results={tmp_path}"])
    assert "has no runs yet" in capsys.readouterr().err
    runs, heads = made_up(score_of, lambda name: 2.0)
    for name, rows in (("runs", runs), ("heads", heads)):
        text = "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)])
        (tmp_path / atari_claims.TABLES[name].name).write_text(text + "\n")
    atari_claims_results.main([f"--results={tmp_path}"])
    page = (tmp_path / "atari_small_claims.md").read_text()
    assert (
        "70 of 70 runs" in page and "(one: 70). Not run: nothing." in page and "| 10 | `return` | 1.0" in page
    )
    assert (tmp_path / "atari_small_claims.png").stat().st_size > 10_000
    kept = [row for row in runs if row["game"] != "qbert" or row["repeat"] == "0"]
    assert not re.search(r"qbert \d", atari_claims_results.deviations(kept))
    spreads = re.findall(r"pong [\d.]+ ± [\d.]+ and ([\d.]+)", atari_claims_results.deviations(runs))
    assert 0.005 < float(spreads[0]) < 0.05  # 0.02 was drawn
    assert "Not run: 7 of qbert." in atari_claims_results.page(kept, heads)
