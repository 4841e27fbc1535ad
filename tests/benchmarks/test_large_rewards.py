import csv

import numpy as np

from benchmarks import large_rewards, learning
from rbs_tf import scores


def test_readings_take_the_rate_that_is_best_elsewhere_here_and_worst():
    of_games = np.array([[[1.0, 5.0, 2.0]], [[9.0, 0.0, 3.0]], [[4.0, 6.0, 7.0]]])
    taken = large_rewards.readings(of_games)[..., 0]
    # Means of the other two games: (6.5, 3, 5), (2.5, 5.5, 4.5), (5, 2.5, 2.5).
    np.testing.assert_array_equal(taken, [[1.0, 0.0, 4.0], [5.0, 9.0, 7.0], [1.0, 0.0, 4.0]])
    not_tried = np.insert(of_games, 1, np.nan, axis=-1)
    np.testing.assert_array_equal(large_rewards.readings(not_tried)[..., 0], taken)


def test_only_games_with_all_their_runs_count_human_normalised(tmp_path):
    path, rates = tmp_path / "runs.csv", np.array(large_rewards.RATES)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, learning.COLUMNS)
        table.writeheader()
        for game in ("hero", "pitfall"):
            names = ("return", "return_out", "none", "benchmarks_sweeps_one_head_return", "one_head_none")
            for tried, name in zip(large_rewards.TRIED, names, strict=True):
                for rate in rates[tried][game == "pitfall" :]:
                    variant = f"runs atari_small-{game}-{name}-learning_rate_{rate}"
                    table.writerow({"variant": variant, "greedy": 10_000 * rate})
    (game, cells), *others = large_rewards.read(path, "greedy").items()
    assert (game, others) == ("hero", [])
    expected = np.where(large_rewards.TRIED, scores.human_normalised_score("hero", 10_000 * rates), np.nan)
    np.testing.assert_allclose(cells, expected)


def test_intervals_hold_the_means_and_one_number_for_all_games_has_none_around_it():
    (mean, low, high), (iqm, *_) = large_rewards.interval(np.array([0.0, 1.0, 2.0, 9.0]), 0.95)
    assert (mean, iqm) == (3.0, 1.5) and low < mean < high
    np.testing.assert_array_equal(large_rewards.interval(np.full(6, 2.0), 0.95), np.full((2, 3), 2.0))


def test_the_page_has_what_its_runs_say():
    assert large_rewards.of_page(large_rewards.TABLE) in large_rewards.PAGE.read_text()
