"""The grids, and the analysis on made-up runs whose truth is known; what a run measures takes minutes."""

import csv
import itertools
import json

import numpy as np
import pytest

from benchmarks import grid, reward_scales, reward_scales_results, reward_tasks
from rbs_tf import environments

RANDOM = np.random.default_rng(0)


def lines(runs, return_of):
    """Lines of the table of runs; returns spread by 5%."""
    rows = []
    for run in runs:
        value = return_of(run) * np.exp(RANDOM.normal(0.0, 0.05))
        measured = {
            "mean_return": value,
            "last_fifth": value,
            "greedy": value,
            "cpu_ms_per_update": 12,
            "minutes": 2,
            "processor": "a processor",
        }
        rows.append({name: str(entry) for name, entry in {**run._asdict(), **measured}.items()})
    return rows


def write(folder, experiment, rows):
    with (folder / reward_scales.tables(experiment)["runs"].name).open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def best_at(rate):
    """Returns that fall with the distance from a rate."""
    return lambda run: 10.0 * np.exp(-abs(np.log(float(run.rate) / rate)))


def finished_rates(return_of):
    rows = []
    while waiting := [
        run
        for run in reward_scales.rates_grid(rows)
        if tuple(map(str, run)) not in {tuple(row[field] for field in run._fields) for row in rows}
    ]:
        rows += lines(waiting, return_of)
    return rows


@pytest.mark.parametrize(("best", "tried"), [(6e-4, 4), (2e-4, 5), (6e-2, 6)])
def test_rates_are_halved_and_go_on_beyond_an_edge_that_is_best(best, tried):
    rows = finished_rates(best_at(best))
    frozen = reward_scales.frozen_rates(rows)
    assert {float(rate) for rate in frozen.values()} == {best} and set(frozen) == set(reward_scales.METHODS)
    rates = {row["rate"] for row in rows if row["method"] == "none"}
    assert len(rates) == tried
    repeats = [row["repeat"] for row in rows if row["method"] == "none" and float(row["rate"]) == best]
    assert sorted(repeats) == ["0", "0", "1", "1", "2", "2"]


def test_nothing_that_counts_runs_before_the_rates_are_known():
    rows = finished_rates(best_at(6e-4))
    with pytest.raises(SystemExit, match="learning rates"):
        reward_scales.frozen_rates(rows[:-1])


def test_every_cell_of_both_grids_is_there_and_no_seed_twice():
    rates = dict.fromkeys(reward_scales.METHODS, "6e-4") | {"none": "2e-3"}
    attribution, table = reward_scales.attribution_grid(rates), reward_scales.table_grid(rates)
    assert len(set(attribution)) == 2 * 2 * 16 * 5 and {run.rate for run in attribution} == {"6e-4"}
    assert len(set(table)) == 2 * 7 * 10 * 9
    assert len({grid.digest(run) for run in [*attribution, *table]}) == len(attribution) + len(table)
    assert len(reward_scales.FACTORIAL) == 12


def test_pop_art_is_compared_at_the_same_rate_when_all_of_its_runs_are_there():
    rates = dict.fromkeys(reward_scales.METHODS, "2e-3") | {"pop_art": "6e-3"}
    runs = reward_scales.same_rate_grid(rates)
    assert len(set(runs)) == 2 * 7 * 3 and {run.rate for run in runs} == {"2e-3"}
    table = lines(reward_scales.table_grid(rates), lambda run: 6.0 if run.method == "pop_art_first" else 1.0)
    own = lines(runs, lambda run: 2.0 if run.task == "x1" else 4.0)
    rows = reward_scales_results.same_rate_rows({"table": table, "same_rate": own})
    assert len(rows) == 2 * len(runs)  # and so none of the table's `pop_art`
    (line,) = reward_scales_results.same_rate_contrast(reward_scales_results.logs(rows, "mean_return"))
    mean = (6 * np.log(1.5) + np.log(3.0)) / 7
    assert line.compared.difference == pytest.approx(mean, abs=0.03) and line.decided == "different"
    *_, entries = reward_scales_results.by_task(rows, [("pop_art_first", "pop_art")])
    ratios = [float(entry.split()[0]) for entry in entries.split(" | ")[1:]]
    assert ratios == pytest.approx([1.5, 3.0, *[1.5] * 5, np.exp(mean)], rel=0.1)
    assert not reward_scales_results.same_rate_rows({"table": table, "same_rate": own[1:]})
    assert not reward_scales_results.same_rate_rows({"table": (), "same_rate": ()})


def test_contrasts_find_what_is_there():
    rates = dict.fromkeys(reward_scales.METHODS, "6e-4")
    better = {"return_out": 1.5, "pop_art_first": 1.5, "return_support": 1.2}
    rows = lines(reward_scales.table_grid(rates), lambda run: 5.0 * better.get(run.method, 1.0))
    found = {
        line.name: line
        for line in reward_scales_results.table_contrasts(reward_scales_results.logs(rows, "mean_return"))
    }
    same, different = found["`return_out` over `pop_art_first`"], found["`return_out` over `pop_art`"]
    assert same.looks == 3
    assert same.decided == "the same" and different.decided == "different"
    assert np.exp(different.compared.difference) == pytest.approx(1.5, rel=0.03)

    def of_factors(run):
        return 5.0 * (1.2 if "taken" in run.method else 1.0) * (1.1 if "sigma" in run.method else 1.0)

    rows = lines(reward_scales.attribution_grid(rates), of_factors)
    lines_found = reward_scales_results.factor_contrasts(reward_scales_results.logs(rows, "mean_return"))
    ratios = {line.name: np.exp(line.compared.difference) for line in lines_found}
    assert ratios == pytest.approx(
        {
            "returns over targets": 1.0,
            "taken over preserved": 1.2,
            "sigma over s": 1.1,
            "sigma over geometric": 1.1,
        },
        rel=0.03,
    )
    for row in rows:
        if row["method"].startswith("returns") and row["method"].endswith("sigma"):
            row["mean_return"] = str(2 * float(row["mean_return"]))
    found = [line.split(" | ")[:3] for line in reward_scales_results.interaction_table(rows)[2:]]
    assert len(found) == 5 + 5 + 4 + 4 + 3
    ratios = {(contrast.strip("| "), level): float(entry.split()[0]) for contrast, level, entry in found}
    assert ratios["returns over targets", "sigma"] == pytest.approx(2.0, rel=0.05)
    assert ratios["returns over targets", "s"] == pytest.approx(1.0, rel=0.05)
    assert ratios["sigma over s", "returns"] == pytest.approx(2.2, rel=0.05)


def test_what_was_picked_is_of_the_runs_that_it_names():
    rates = dict.fromkeys(reward_scales.METHODS, "2e-3")

    def of_table(run):
        return (
            (3.0 if run.task in reward_scales_results.LEADING else 1.5) if run.method == "return_out" else 1.0
        )

    table = lines([run for run in reward_scales.table_grid(rates) if run.repeat < 3], of_table)
    zero = next(row for row in table if row["method"] == "return_out")
    zero["greedy"] = "0"
    better = ("clip", reward_scales_results.RETURN_OUT)
    attribution = lines(
        reward_scales.attribution_grid(rates),
        lambda run: 1.5 if run.method in better else 0.5 + (run.method == "none") / 2,
    )
    entries = reward_scales_results.picked(table, attribution)
    ratios = [float(entry.split(": ")[1].split()[0]) for entry in entries]
    assert ratios == pytest.approx([3.0, 1.5, 1.5, 3 ** (-3 / 7) * 1.5 ** (-4 / 7)], rel=0.05)
    assert "8 a game" in entries[2] and len(reward_scales_results.picked(table, ())) == 3
    found = reward_scales_results.above_none(reward_scales_results.logs(attribution, "mean_return"))
    assert found.startswith("As rewards are, 2 of 15 methods are above `none`, by 1.")


def test_each_further_look_multiplies_p():
    random = np.random.default_rng(1)
    some, others = [*random.normal(1.0, 1.0, (4, 3))], [*random.normal(0.0, 1.0, (4, 3))]
    (once,), (thrice,) = (reward_scales_results.compared({"": (some, others)}, looks) for looks in (1, 3))
    assert once.p_value < 0.3 and thrice.p_value == pytest.approx(3 * once.p_value)
    close, to = ([*random.normal(1.0, 0.02, (4, 3))] for _ in range(2))
    by_looks = [reward_scales_results.compared({"": (close, to)}, looks)[0].decided for looks in (1, 10**12)]
    assert by_looks == ["the same", "open"]


def test_the_page_and_the_figure_are_written_from_what_there_is(tmp_path, capsys):
    with pytest.raises(SystemExit):
        reward_scales_results.main([f"--results={tmp_path}"])
    assert "has no runs yet" in capsys.readouterr().err
    write(tmp_path, "rates", finished_rates(best_at(2e-3)))
    reward_scales_results.main([f"--results={tmp_path}"])
    rates = dict.fromkeys(reward_scales.METHODS, "2e-3")
    table = sorted(reward_scales.table_grid(rates), key=lambda run: run.repeat)
    look = lines(table[: 3 * 140], lambda run: 5.0)
    more = lines(table[: 3 * 140 + 100], lambda run: 5.0)
    write(tmp_path, "attribution", lines(reward_scales.attribution_grid(rates)[:100], lambda run: 5.0))
    for rows, shown in ((look[:-1], False), (look, True), (more, True)):
        write(tmp_path, "table", rows)
        reward_scales_results.main([f"--results={tmp_path}"])
        page = (tmp_path / "scales.md").read_text()
        assert f"{len(rows)} runs of table" in page and ("| `return_out` over `pop_art` | " in page) is shown
        assert "(4)" not in page  # a fourth repeat belongs to the second look, which is not complete
    assert (tmp_path / "scales.png").stat().st_size > 10_000


def test_tasks_change_rewards_alone_and_score_the_clean_game():
    actions = RANDOM.integers(0, 6, (200, 4)).astype(np.int32)
    clean, changed = {}, {}
    for task in ("x1", "x0.001", "spikes", "drift", "offset", "offset_end"):
        environment = environments.make(reward_tasks.name_of("breakout", task), num_envs=4, seed=0)
        environment.reset()
        changed[task] = np.array([environment.step(action).reward for action in actions])
        clean[task] = reward_tasks.clean_episodes(environment)
        environment.close()
    for (returns, lengths), (own, others) in itertools.chain.from_iterable(
        zip(clean["x1"], clean[task], strict=True) for task in clean
    ):
        np.testing.assert_array_equal(returns, own)
        np.testing.assert_array_equal(lengths, others)
    assert sum(len(returns) for returns, _ in clean["x1"]) > 4
    np.testing.assert_allclose(changed["x0.001"], 1e-3 * changed["x1"])
    assert changed["x1"].any() and not np.array_equal(changed["x1"], changed["offset"])
    # Before its reversal and after it.
    shaping, reversed_ = (changed[task] - changed["x1"] for task in ("offset", "offset_end"))
    np.testing.assert_allclose(shaping[2:], -reversed_[2:], atol=1e-5)


@pytest.mark.parametrize("words", [[], ["tabel"]])
def test_an_experiment_must_be_named(words):
    with pytest.raises(SystemExit, match="Name an experiment first: rates, attribution, table, same_rate"):
        reward_scales.main(words)


def test_unknown_tasks_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="expected one of asterix"):
        reward_tasks.name_of("pong", "x1")


def test_bad_arguments_are_refused_before_anything_runs(tmp_path, capsys):
    run = reward_scales.Run("rates", "breakout", "x10", "none", "2e-3", 0)
    (tmp_path / "run").mkdir()
    for words, answer in (
        (["--measure", json.dumps(run), str(tmp_path)], "Name another folder"),
        (["--measure", "[]", str(tmp_path)], "is no run of the grid, such as"),
        (["--processes=0"], "--processes"),
    ):
        with pytest.raises(SystemExit) as stop:
            grid.main(
                "none", None, [run], lambda *_: pytest.fail("it ran"), {"runs": tmp_path / "runs"}, words
            )
        assert stop.value.code == 2 and answer in capsys.readouterr().err
