"""The bandit over heads: exact ratings, free of scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agents.bandit import HeadBandit, successive_halving


def test_without_episodes_all_heads_are_alike():
    np.testing.assert_allclose(HeadBandit(4).probabilities, 0.25)


def test_ratings_follow_the_formula():
    bandit = HeadBandit(3)
    bandit.update([0, 0, 1], [10.0, 0.0, 5.0])  # mean 5: one of two, one of one, none of none
    np.testing.assert_allclose(bandit.ratings, [1.5 / 3, 1.5 / 2, 0.5])
    np.testing.assert_allclose(bandit.probabilities, np.array([0.5, 0.75, 0.5]) / 1.75)
    assert np.argmax(bandit.lower_ends) == 1


def test_the_best_head_is_chosen_by_the_lower_end_of_wilsons_interval():
    """Not by its rating, so that luck does not count; a head of known counts is beaten if its interval starts lower."""
    rival = stats.binomtest(8, 14).proportion_ci(0.95, method="wilson").low
    for wins, episodes in ((1, 1), (3, 3), (15, 20), (0, 4), (7, 10)):
        low = stats.binomtest(wins, episodes).proportion_ci(0.95, method="wilson").low
        bandit = HeadBandit(2)
        returns = [1.0] * wins + [-1.0] * (episodes - wins) + [1.0] * 8 + [-1.0] * 6
        bandit.update([0] * episodes + [1] * 14, returns)
        assert (np.argmax(bandit.lower_ends) == 0) == (low > rival), (wins, episodes)


def test_only_the_window_counts():
    bandit = HeadBandit(2, window=2)
    bandit.update([0], [1e9])
    bandit.update([1, 1], [3.0, 5.0])
    np.testing.assert_allclose(bandit.ratings, [0.5, (0.5 + 1) / 3])
    bandit.update([0, 0, 0, 1, 1], [9.0, 9.0, 9.0, 3.0, 5.0])
    np.testing.assert_allclose(bandit.ratings, [0.5, (0.5 + 1) / 3])


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1000, 1000)), min_size=1, max_size=40),
    st.sampled_from([2.0**k for k in range(-10, 11)]),
)
def test_the_scale_of_returns_does_not_matter(episodes, factor):
    heads = [head for head, _ in episodes]
    returns = np.array([value for _, value in episodes], float)
    plain, scaled = HeadBandit(4), HeadBandit(4)
    plain.update(heads, returns)
    scaled.update(heads, returns * factor)
    np.testing.assert_array_equal(plain.probabilities, scaled.probabilities)


@pytest.mark.parametrize("heads, episodes, most", [(10, 40, 40), (1, 40, 40), (2, 1, 2), (3, 0, 5)])
def test_a_trial_finds_the_best_head_and_keeps_to_its_episodes(heads, episodes, most):
    best, played = heads // 2, []

    def play(acting):
        played.extend(acting)
        return [(head, -abs(head - best) + 0.1 * (len(played) % 2)) for head in acting]

    assert successive_halving(play, heads, episodes) == (best, len(played))
    assert len(played) <= most and set(played) == set(range(heads))
    assert played.count(best) == max(map(played.count, played))


def test_a_trial_goes_by_means_over_all_rounds_and_does_without_an_episode_that_does_not_count():
    rounds = iter([{0: 9.0, 1: 8.0, 2: 1.0}, {0: 0.0, 1: 6.0}])

    def play(acting):
        returns = next(rounds)
        return [(head, returns[head]) for head in acting if head != 3]

    assert successive_halving(play, 4, 4)[0] == 1
