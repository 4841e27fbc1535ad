"""The scalings' comparison on made-up runs whose truth is known; what a run measures takes minutes."""

import itertools
import json
import re
import shutil

import numpy as np
import pytest

from agents.commands import sweep
from benchmarks import reward_scales, reward_tasks
from rbs_tf import environments
from tests.source_tree import ROOT

RANDOM = np.random.default_rng(0)
SWEEPS = ROOT / "benchmarks/sweeps"


def rows(score_of, repeats=3):
    """Lines of the table; scores spread by 5%."""
    found = []
    cells = itertools.product(reward_scales.GAMES, reward_scales.TASKS, ("none", "return"), range(repeats))
    for game, task, method, repeat in cells:
        value = score_of(game, task, method) * np.exp(RANDOM.normal(0.0, 0.05))
        key = ("table", game, task, method, "2e-3", str(repeat))
        line = dict(zip(reward_scales.KEY, key, strict=True))
        found.append(line | {"mean_return": str(value), "cpu_ms_per_update": "12"})
    return found


def test_shares_and_ratios_are_those_of_the_runs():
    def score_of(game, task, method):
        of_task = {"x0.001": 0.5, "x1": 1.0}.get(task, 0.8)
        return (3.0 if game == "breakout" else 30.0) * (of_task if method == "none" else 2.0 * of_task)

    none, ours, *_, over_none, over_ours = reward_scales.tables(rows(score_of))[2:]
    cells = [float(cell.split()[0]) for cell in ours.split(" | ")[1:8]]
    assert cells == pytest.approx([1.0, 2.0, *[1.6] * 5], rel=0.1)
    assert none.split(" | ")[2].startswith("1.00 [") and none.endswith("| 2e-3 | 12.0 |")
    ratio, low, high = map(float, re.findall(r"\d\.\d+", over_ours))
    assert ratio == pytest.approx(2.0, rel=0.05) and low < ratio < high
    assert float(over_none.split(" | ")[2].split()[0]) == pytest.approx(0.5, rel=0.05)


def test_scores_are_means_over_parts_of_the_run_not_over_episodes():
    # Two environments of 100 steps: episodes of 10 steps and then, better played, of 50.
    lengths, returns = np.array([*[10.0] * 5, 50.0]), np.array([*[1.0] * 5, 7.0])
    found = reward_scales.score([(returns, lengths)] * 2)
    assert found["mean_return"] == pytest.approx((5 * 1.0 + 1.0 * 0 + 2.2 + 3.4 + 4.6 + 5.8 + 7.0) / 10)
    assert found["last_fifth"] == pytest.approx((5.8 + 7.0) / 2)


def test_runs_are_added_to_the_table_once(tmp_path):
    table, run = tmp_path / "table.csv", tmp_path / "runs/scales/a"
    shutil.copy(reward_scales.TABLE, table)
    before = reward_scales.read(table)
    run.mkdir(parents=True)
    known = {name: before[0][name] for name in reward_scales.KEY} | {"rate": str(float(before[0]["rate"]))}
    new = {**known, "repeat": "77", "mean_return": "5"}
    for line in (known, new, new):
        (run / reward_scales.SCORE).write_text(json.dumps(line))
        reward_scales.add(table, [tmp_path / "runs"])
    after = reward_scales.read(table)
    assert after[:-1] == before and len(after) == 421
    assert (after[-1]["repeat"], after[-1]["mean_return"], after[-1]["greedy"]) == ("77", "5", "")


def test_the_sweeps_have_every_cell_of_the_table_once():
    found = {}
    for name in ("scales", "scales_pop_art"):
        runs = sweep.read(SWEEPS / f"{name}.sweep").runs(ROOT)
        for flags in runs.values():
            options = dict(flag.lstrip("-").split("=", 1) for flag in flags)
            key = (*reward_tasks.game_and_task(options["env"]), options["scaling"], options["seed"])
            assert key not in found
            found[key] = next(flag for flag in flags if "learning_rate" in flag).split(" = ")[1]
    for row in reward_scales.read():
        if row["method"] not in ("return_support", "max_reward"):  # measured, but no longer there
            rate = found.pop((row["game"], row["task"], row["method"], row["repeat"]))
            assert float(rate) == float(row["rate"])
    assert not found


def test_tasks_change_only_rewards_and_score_the_clean_game():
    actions = RANDOM.integers(0, 6, (200, 4)).astype(np.int32)
    clean, changed = {}, {}
    for task in ("x1", "x0.001", "spikes", "drift", "offset"):
        environment = environments.make(reward_tasks.name_of("breakout", task), num_envs=4, seed=0)
        environment.reset()
        changed[task] = np.array([environment.step(action).reward for action in actions])
        clean[task] = reward_tasks.clean_episodes(environment)
        environment.close()
    for task in clean:
        for own, others in zip(clean["x1"], clean[task], strict=True):
            np.testing.assert_array_equal(own, others)
    assert sum(len(returns) for returns, _ in clean["x1"]) > 4
    np.testing.assert_allclose(changed["x0.001"], 1e-3 * changed["x1"])
    assert changed["x1"].any() and not np.array_equal(changed["x1"], changed["offset"])
