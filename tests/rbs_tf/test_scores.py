"""Human-normalised scores."""

import numpy as np
import pytest

from rbs_tf import scores


def test_random_and_human_play():
    assert len(scores.GAMES) == 57 and list(scores.GAMES) == sorted(scores.GAMES)
    for game in scores.GAMES:
        assert scores.human_normalised_score(game, scores.RANDOM[game]) == 0
        assert scores.human_normalised_score(game, scores.HUMAN[game]) == 1
    assert scores.RANDOM["video_pinball"] == 16256.9  # the high one of the two in print


def test_scores_are_linear():
    # Pong: random -20.7, human 14.6
    assert scores.human_normalised_score("pong", 21.0) == pytest.approx(41.7 / 35.3)
    found = scores.human_normalised_score("breakout", np.array([1.7, 16.1, 30.5]))
    np.testing.assert_allclose(found, [0, 0.5, 1])


def test_other_games():
    assert scores.has_score("pong")
    assert not any(map(scores.has_score, ("tetris", "minatar/breakout", None)))
    with pytest.raises(ValueError, match="'space_invader'.*'space_invaders'"):
        scores.human_normalised_score("space_invader", 1.0)
