"""Human-normalised scores."""

import numpy as np
import pytest

from rbs_tf import scores


def test_there_are_57_games_with_a_random_and_a_human_score():
    assert len(scores.GAMES) == 57
    assert set(scores.RANDOM) == set(scores.HUMAN) == set(scores.GAMES)
    assert list(scores.GAMES) == sorted(scores.GAMES)


def test_random_play_scores_0_and_human_play_1():
    for game in scores.GAMES:
        assert scores.human_normalised_score(game, scores.RANDOM[game]) == 0
        assert scores.human_normalised_score(game, scores.HUMAN[game]) == 1


def test_scores_are_linear_between_and_beyond():
    # Pong: random -20.7, human 14.6
    assert scores.human_normalised_score("pong", 21.0) == pytest.approx(41.7 / 35.3)
    assert scores.human_normalised_score("pong", -21.0) == pytest.approx(-0.3 / 35.3)
    np.testing.assert_allclose(
        scores.human_normalised_score("breakout", np.array([1.7, 16.1, 30.5])), [0, 0.5, 1]
    )


def test_video_pinballs_random_score_is_the_high_one():
    assert scores.RANDOM["video_pinball"] == 16256.9


def test_only_the_57_games_have_scores():
    assert scores.has_score("pong")
    assert not scores.has_score("tetris")
    assert not scores.has_score("minatar/breakout")
    assert not scores.has_score(None)


def test_an_unknown_game_is_answered_with_the_nearest_ones():
    with pytest.raises(ValueError, match="'space_invader'.*'space_invaders'"):
        scores.human_normalised_score("space_invader", 1.0)
