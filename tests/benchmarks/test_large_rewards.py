import csv

import numpy as np
from scipy import stats

from benchmarks import large_rewards
from benchmarks.performance import ROOT


def test_readings_take_the_rate_that_is_best_elsewhere_here_and_worst():
    of_games = np.array([[[1.0, 5.0, 2.0]], [[9.0, 0.0, 3.0]], [[4.0, 6.0, 7.0]]])
    taken = large_rewards.readings(of_games)[..., 0]
    # Means of the other two games: (6.5, 3, 5), (2.5, 5.5, 4.5), (5, 2.5, 2.5).
    np.testing.assert_array_equal(taken, [[1.0, 0.0, 4.0], [5.0, 9.0, 7.0], [1.0, 0.0, 4.0]])
    not_tried = np.insert(of_games, 1, np.nan, axis=-1)
    np.testing.assert_array_equal(large_rewards.readings(not_tried)[..., 0], taken)


def test_the_page_has_what_its_runs_say():
    assert large_rewards.of_page(large_rewards.TABLE) in large_rewards.PAGE.read_text()


def words(page):
    return " ".join((ROOT / page).read_text().split())


def at_equal_rates(measure):
    """{variant: [games, 3]} at the rates that all variants were tried at; games in alphabetical order."""
    found = large_rewards.read(large_rewards.TABLE, measure, normalised=False)
    of_games = np.array([found[game] for game in sorted(found)])
    return dict(zip(large_rewards.VARIANTS, np.moveaxis(of_games[..., 1:], 1, 0), strict=True))


def test_what_was_looked_at_afterwards_is_what_the_runs_say():
    page = words("docs/paper.md")
    training, dead = at_equal_rates("discounted"), at_equal_rates("dead_units")
    games = sorted(large_rewards.read(large_rewards.TABLE, "discounted"))
    above = (training["return"] > training["none"]).sum(axis=1)
    assert dict(zip(games, above, strict=True)) == {game: 3 * (game != "centipede") for game in games}
    out = (training["return_out"] > training["none"]).sum()
    one = (training["one_head_return"] > training["one_head_none"]).sum()
    told = f"below at each in Centipede, {above.sum()} of 18 pairs; `return_out` in {out}, one head in {one}."
    assert told in page
    assert f"is p {stats.binomtest((above == 3).sum(), len(games)).pvalue:.2f}." in page

    share = {name: f"{of.mean():.1%}" for name, of in dead.items()}
    assert f"{share['none']} are dead at the end without scaling and {share['return']} with it" in page
    fewer = (dead["return"] < dead["none"]).sum()
    of_one = (dead["one_head_return"] < dead["one_head_none"]).sum()
    one_head = f"(one head {share['one_head_none']} and {share['one_head_return']}, in {of_one})"
    assert f"fewer in {fewer} of 18 pairs {one_head}" in page


def test_what_the_page_says_against_its_measure_is_what_the_runs_say():
    scores_of = large_rewards.read(large_rewards.TABLE, "greedy")
    below = {game: (cells < 0).sum() for game, cells in scores_of.items()}
    told = (
        f"{below['time_pilot']} of {large_rewards.TRIED.sum()} greedy runs in Time Pilot, {below['asteroids']} in "
        f"Asteroids, {below['riverraid']} in River Raid and {below['yars_revenge']} in Yars' Revenge"
    )
    assert told in words("docs/paper.md")
    spread = {game: np.nanvar(cells) for game, cells in scores_of.items()}
    share = (spread["time_pilot"] + spread["centipede"]) / sum(spread.values())
    assert f"have {share:.0%} of the variance" in words("docs/paper.md")


def test_which_head_is_better_is_what_both_played():
    with (ROOT / "docs/results/head_choice.csv").open(newline="") as file:
        more = np.array([float(row["trials"]) - float(row["bandits"]) for row in csv.DictReader(file)])
    low, high = stats.ttest_1samp(more, 0.0).confidence_interval()
    wins, unlike = (more > 0).sum(), (more != 0).sum()
    page = words("docs/paper.md")
    assert f"{more.mean():.3f} [{low:.3f}, {high:.3f}] human-normalised more" in page
    p = stats.binomtest(wins, unlike).pvalue
    assert f"in {wins} of the {unlike} runs where they differ (sign test over runs, p {p:.3f})" in page
