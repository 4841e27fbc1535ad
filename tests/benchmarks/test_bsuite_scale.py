"""bsuite's reward-scale experiments: the runs are all there, one of them runs, and the score is bsuite's."""

import numpy as np
import pytest

pytest.importorskip("bsuite")

from benchmarks import bsuite_scale
from benchmarks.bsuite_scale import Run


def rows(experiment, regret_per_episode, variant="none"):
    """Last lines of all 20 settings, with a regret for each scale."""
    return [
        {
            "experiment": experiment,
            "setting": str(4 * index + repeat),
            "variant": variant,
            "reward_scale": scale,
            "episode": "10000",
            "total_return": "0",
            "total_regret": str(1e4 * regret),
            "raw_return": "",
            "best_episode": "",
        }
        for index, (scale, regret) in enumerate(zip(bsuite_scale.SCALES, regret_per_episode, strict=True))
        for repeat in range(4)
    ]


def test_the_grid_is_bsuites_sweep():
    from bsuite import sweep

    grid = bsuite_scale.grid(["catch_scale", "bandit_scale"])
    for experiment in ("catch_scale", "bandit_scale"):
        for variant in ("none", "clip", "return"):
            own = [run.setting for run in grid if (run.experiment, run.variant) == (experiment, variant)]
            assert sorted(own) == list(range(len(getattr(sweep, experiment.upper()))))
            assert {sweep.SETTINGS[f"{experiment}/{setting}"]["reward_scale"] for setting in own[:5]} == {
                float(scale) for scale in bsuite_scale.SCALES
            }
    lower = [run.setting for run in grid if run == Run("catch_scale", run.setting, "return_1e-4")]
    assert sorted(lower) == [0, 1, 2, 3]  # rewards times 0.001


@pytest.mark.parametrize(("experiment", "random"), [("catch_scale", 1.6), ("bandit_scale", 0.5)])
def test_the_score_is_lowered_by_half_the_deviation_over_scales(experiment, random):
    fractions = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    scores = 1.0 - fractions
    expected = 0.5 * (scores.mean() + (scores.mean() - scores.std()))
    assert bsuite_scale.score(rows(experiment, random * fractions)) == pytest.approx(expected)
    assert bsuite_scale.score(rows(experiment, np.zeros(5))) == 1.0


def test_the_table_gives_every_scale_and_an_interval():
    lines = bsuite_scale.table(
        rows("bandit_scale", [0.5, 0.4, 0.3, 0.2, 0.1]) + rows("bandit_scale", [0.1] * 5, "return")[:4]
    ).splitlines()
    assert len(lines) == 8  # title, command, the table's header, and one line per variant
    assert "| 20 | 0.259 [0.259, 0.259] | 0.00 | 0.20 | 0.40 | 0.60 | 0.80 |" in lines[6]
    assert "| 4 |  | 0.80 |" in lines[7]  # one scale alone has no score of the experiment
    once = bsuite_scale.table(rows("bandit_scale", [0.5, 0.4, 0.3, 0.2, 0.1])[::4]).splitlines()[6]
    assert "| 5 | 0.259 | 0.00 |" in once  # and one repeat no interval


def test_a_run_is_repeatable_and_says_what_bsuite_logged():
    line, again = (bsuite_scale.measure(Run("bandit_scale", 9, "return"), episodes=200) for _ in range(2))
    assert line == again
    assert line["reward_scale"] == "1.0" and line["episode"] == "200"
    # The best of the arms always pays 1.
    assert float(line["total_regret"]) == pytest.approx(200 - float(line["total_return"]))
