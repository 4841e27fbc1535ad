"""The tables and figures of the MinAtar benchmark, from lines whose answers are known by hand."""

import csv

import numpy as np
import pytest
from matplotlib.colors import same_color
from rliable import metrics
from scipy import stats

from benchmarks import minatar_scaling_results as results
from benchmarks.minatar_scaling_results import Cell, estimate

HEADS = ("clipped_0", "clipped_1", "unclipped_0", "unclipped_1")


def lines(returns, game="breakout", multiplier=100, heads=10, scaling="none", rate="2e-4"):
    """Lines of the table of runs, seeds 0, 1, ..."""
    keys = (
        "game",
        "multiplier",
        "heads",
        "scaling",
        "learning_rate",
        "seed",
        "mean_return",
        "last_fifth",
        "greedy",
        "minutes",
        "updates",
    )
    return [
        dict(
            zip(
                keys,
                map(
                    str, (game, multiplier, heads, scaling, rate, seed, value, value, value, 1.5, 500 + seed)
                ),
                strict=True,
            )
        )
        for seed, value in enumerate(returns)
    ]


def head_lines(runs, error=1.0):
    """Lines of the table of heads for lines of the table of runs: errors grow tenfold from head to head."""
    return [
        {key: row[key] for key in ("game", "multiplier", "heads", "scaling", "learning_rate", "seed")}
        | {"head": head, "error": "1", "scaled_error": str(error * 10**index * (1 + int(row["seed"])))}
        | {"loss_share": "0.25", "gradient_share": "0.25", "relative_value_error": "0.5"}
        for row in runs
        for index, head in enumerate(HEADS)
    ]


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def cells_of(*groups):
    return results.returns_by_cell([row for group in groups for row in group], "breakout")


def drawn(panel):
    """{label: (places, points)} of what has a line or points with intervals."""
    return {c.get_label(): c.lines[0].get_data() for c in panel.containers if len(c.lines[0].get_xdata())}


def test_a_table_holds_means_intervals_and_seeds_and_nothing_where_nothing_ran():
    cells = cells_of(lines([1, 2, 3]), lines([5], scaling="return", multiplier=1), lines([7, 7], heads=1))
    header, _, *rows = results.returns_table(cells).splitlines()
    assert header == "| heads | scaling | x 1, 2e-4 | x 100, 2e-4 |"
    assert rows == [
        "| 1 | none |  | 7.00 [7.00, 7.00] (2) |",
        "| 10 | none |  | 2.00 [1.00, 3.00] (3) |",
        "| 10 | return | 5.00 (1) |  |",
    ]


def test_one_seed_has_no_interval():
    point, low, high = estimate(np.array([4.0]))
    assert point == 4 and np.isnan(low) and np.isnan(high)
    numbers = estimate(np.ones(3), np.zeros(1), function=results.difference_and_probability)
    assert numbers[0].tolist() == [1, 1] and np.isnan(numbers[1:]).all()


def test_the_bootstrap_is_seeded_and_leaves_the_global_generator_alone():
    x, y = np.random.default_rng(0).normal(size=(2, 5))
    np.random.seed(1)
    expected = np.random.random()
    np.random.seed(1)
    first = estimate(x, y, function=results.difference_and_probability)
    assert np.random.random() == expected
    np.testing.assert_array_equal(estimate(x, y, function=results.difference_and_probability), first)
    assert first[1, 0] < first[0, 0] < first[2, 0]


def test_columns_are_resampled_by_themselves():
    point, low, high = estimate(np.array([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0]]))
    assert (point.tolist(), low.tolist(), high.tolist()) == ([1, 7], [0, 7], [2, 7])


def test_ties_count_half_in_the_probability_of_improvement():
    x, y = np.array([[1.0], [2.0]]), np.array([[1.0], [0.0]])
    assert results.difference_and_probability(x, y).tolist() == [1, 3.5 / 4]
    assert results.difference_and_probability(x, x).tolist() == [0, 0.5]


@pytest.mark.parametrize("seed", range(5))
def test_the_probability_of_improvement_is_rliables(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(4, size=(5, 3)).astype(float), rng.integers(4, size=(3, 3)).astype(float)
    probability = results.difference_and_probability(x, y)[1]
    assert probability == pytest.approx(metrics.probability_of_improvement(x, y))


def test_scores_take_the_first_seeds_that_every_multiplier_has():
    cells = cells_of(lines([5, 6, 7], multiplier=1)[::-1], lines([1, 2], multiplier=10))
    assert results.scores(cells, (10, "none"), "2e-4", (1, 10)).tolist() == [[5, 1], [6, 2]]
    assert results.scores(cells, (10, "none"), "2e-4", (1, 10, 100)) is None
    assert results.scores(cells, (1, "none"), "2e-4", (1,)) is None


def test_the_best_learning_rate_is_chosen_among_those_that_ran_everywhere():
    cells = cells_of(
        lines([1, 9], multiplier=1),
        lines([4], multiplier=10),
        lines([6, 7], multiplier=1, rate="6e-4"),
    )
    assert results.best_rate(cells, (10, "none"), (1,)) == "6e-4"
    assert results.best_rate(cells, (10, "none"), (1, 10)) == "2e-4"
    assert results.best_rate(cells, (10, "none"), (1000,)) is None


def test_comparisons_are_made_at_each_learning_rate_and_at_each_ones_best():
    cells = cells_of(
        lines([1, 1]),
        lines([2, 2], rate="6e-4"),
        lines([5, 5], scaling="return"),
        lines([9], scaling="return_out", multiplier=1),
    )
    header, _, *rows = results.comparison_table(cells).splitlines()
    assert header == "| comparison | rewards | 2e-4 | 6e-4 | own best |"
    one, best = (f"+{n}.00 [+{n}.00, +{n}.00], P 1.00 [1.00, 1.00]" for n in (4, 3))
    assert rows == [f"| 10 heads return - 10 heads none | x 100 | {one} |  | {best} (2e-4, 6e-4) |"]


def test_one_seed_has_no_interval_and_no_probability():
    cells = cells_of(lines([1]), lines([5, 6], scaling="return"))
    (row,) = results.comparison_table(cells).splitlines()[2:]
    assert row == "| 10 heads return - 10 heads none | x 100 | +4.50 | +4.50 (2e-4, 2e-4) |"


def test_ratios_are_of_geometric_means_with_an_interval_where_there_is_one():
    single = lines([2.0], scaling="none") + lines([3.0], scaling="return")
    assert "| return / none |  |  | 1.50, 1.0000 |" in results.ratio_table(single)
    several = lines([2.0, 2.2, 1.8]) + lines([4.0, 4.4, 3.6], scaling="return")
    (entry,) = {word for word in results.ratio_table(several).split(" | ") if word.startswith("2.00")}
    logs = np.log([2.0, 2.2, 1.8])
    half = stats.t.ppf(0.975, 4) * np.std(logs, ddof=1) * np.sqrt(2 / 3)
    assert f"2.00 [{2 * np.exp(-half):.2f}, {2 * np.exp(half):.2f}], " in entry


def test_multipliers_together_are_tasks():
    pairs = ([1, 2], [3, 4], [5, 6], [70, 80])
    groups = [lines(pair, multiplier=m) for pair, m in zip(pairs, results.MULTIPLIERS, strict=True)]
    (row,) = results.aggregate_table(cells_of(*groups)).splitlines()[2:]
    _, scaling, rate, seeds, mean, iqm, _ = row.split("|")
    assert (scaling.strip(), rate.strip(), seeds.strip()) == ("none", "2e-4", "2")
    assert mean.split()[0] == f"{np.mean(pairs):.2f}"
    assert iqm.split()[0] == "4.50"  # of 3, 4, 5 and 6
    assert results.aggregate_table(cells_of(*groups[1:])) == "No runs yet.\n"


def test_a_repeated_line_replaces_the_first(tmp_path):
    path = tmp_path / "table.csv"
    write(path, lines([1, 2]) + lines([3]))
    assert results.returns_by_cell(results.read(path), "breakout") == {
        Cell(100, 10, "none", "2e-4"): pytest.approx([3, 2])
    }
    runs = lines([1, 2])
    write(path, head_lines(runs) + head_lines(runs[:1]))
    assert len(results.read(path)) == 2 * len(HEADS)


def test_scalings_without_a_colour_come_last():
    assert results.scalings_in(["new", "return", "another", "none", "new"]) == [
        "none",
        "return",
        "another",
        "new",
    ]


def test_panels_show_what_ran_and_nothing_else():
    rows = (
        lines([1, 3], multiplier=1) + lines([5], multiplier=1000) + lines([2], scaling="pop_art", rate="6e-4")
    )
    rows += lines([4], heads=1, scaling="clip", rate="6e-4")
    panels = results.draw_returns(rows, {"breakout": np.array([0.25, 0.75])}).axes
    places, points = drawn(panels[0])["none"]
    assert points.tolist() == [2, 5]
    assert places == pytest.approx([1, 1000], rel=0.2)
    assert drawn(panels[0]).keys() == {"none"} and drawn(panels[1]).keys() == {"pop_art"}
    assert sorted(y for c in panels[2].containers for y in c.lines[0].get_ydata()) == [2, 4]
    assert [tick.get_text() for tick in panels[2].get_xticklabels()] == ["clip", "pop_art"]
    for panel in panels:
        assert panel.lines[0].get_ydata() == [0.5, 0.5]  # the random policy
        for container in panel.containers:
            colour = results.COLOURS.get(container.get_label())
            assert colour is None or same_color(container.lines[0].get_color(), colour)


def test_the_figure_of_heads_pools_seeds():
    runs = lines([1, 2, 3], scaling="return") + lines([1])
    drawing = results.draw_heads(head_lines(runs), "breakout", 100, "2e-4")
    errors = drawing.axes[0]
    assert errors.get_yscale() == "log" and drawing.axes[1].get_yscale() == "linear"
    assert drawn(errors)["return (3)"][1].tolist() == [2, 20, 200, 2000]
    assert drawn(errors)["none (1)"][1].tolist() == [1, 10, 100, 1000]
    assert results.draw_heads(head_lines(runs), "breakout", 100, "6e-4") is None
    assert results.draw_heads([], "breakout", 100, "2e-4") is None


def test_a_random_policy_is_measured_reproducibly():
    returns = results.random_returns("breakout", 51)
    assert returns.shape == (100,)
    assert 0 < returns.mean() < 1.5
    np.testing.assert_array_equal(results.random_returns("breakout", 51), returns)


def test_the_command_writes_its_files_from_an_unfinished_table(tmp_path):
    runs = lines([1, 2, 3]) + lines([4], scaling="return", rate="6e-4")
    write(tmp_path / "minatar_scaling.csv", runs)
    command = [f"--results={tmp_path}", "--random_episodes=50", "--game=breakout"]
    results.main(command)
    page = (tmp_path / "minatar_scaling.md").read_text()
    assert (
        "4 runs" in page
        and "2 cells, 1 to 3 seeds each, 6 minutes in all; 500 to 502 learner updates" in page
    )
    assert "(50 episodes)" in page
    assert (tmp_path / "minatar_scaling.png").stat().st_size > 0
    assert not (tmp_path / "minatar_scaling_heads.png").exists()
    write(tmp_path / "minatar_scaling_heads.csv", head_lines(runs))
    results.main(command)
    assert (tmp_path / "minatar_scaling_heads.png").stat().st_size > 0
    assert (tmp_path / "minatar_scaling.md").read_text() == page


def test_without_runs_the_command_says_what_makes_them(tmp_path):
    with pytest.raises(SystemExit, match="benchmarks.minatar_scaling makes them"):
        results.main([f"--results={tmp_path}"])
