"""The appendix's edge cases: the exact values against statistics of episodes, and the closed forms against them."""

import numpy as np
import pytest

from rbs_tf import ReturnMoments, discounted_returns
from studies.edge_cases import (
    brownian_variance,
    brownian_variance_in_the_appendix,
    constant_reward,
    constant_reward_in_the_appendix,
    mean_square_return,
    sigma_squared,
)


def discounts(length, gamma):
    return np.append(np.full(length - 1, gamma), 0.0)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("length", [1, 2, 100])
def test_constant_rewards_have_the_statistics_of_an_episode(length, gamma):
    episode = ReturnMoments.from_episode(np.full(length, -5.0), discounts(length, gamma))
    assert sigma_squared(length, gamma, -5.0, 0.0) == pytest.approx(episode.sigma_squared[0])
    if gamma == 1.0:
        assert constant_reward(length, -5.0) == pytest.approx(episode.sigma_squared[0])


def test_random_rewards_have_the_expected_statistics_of_episodes():
    episodes = np.random.default_rng(0).normal(1.0, 2.0, (4000, 20))
    returns = discounted_returns(episodes.T, np.tile(discounts(20, 0.9), (4000, 1)).T)
    assert np.square(returns).mean() == pytest.approx(mean_square_return(20, 0.9, 1.0, 4.0), rel=0.02)


def test_the_appendix_is_three_times_too_large_for_constant_rewards():
    factor = constant_reward_in_the_appendix(10_000, 1.0, 1.0) / constant_reward(10_000, 1.0)
    assert factor == pytest.approx(3, abs=1e-3)


def test_without_ends_sigma_is_that_of_rewards_only_if_returns_do_not_grow():
    assert sigma_squared(10**6, 0.99, 1.0, 1.0) == pytest.approx(1.0, abs=0.02)
    assert sigma_squared(10**4, 1.0, 0.0, 1.0) == pytest.approx(1.5, abs=1e-3)
    assert sigma_squared(10**4, 1.0, 1.0, 1.0) == pytest.approx(10**4 / 3.0, rel=1e-3)


def test_the_appendix_is_right_about_brownian_returns_for_gamma_one_only():
    rng = np.random.default_rng(1)
    gammas = np.where(rng.random(400_000) < 1.0 / 20.0, 0.0, 0.95)  # a long stream of geometric episodes
    variance = discounted_returns(rng.standard_normal(400_000), gammas).var()
    assert variance == pytest.approx(brownian_variance(20, 0.95), rel=0.03)
    assert brownian_variance_in_the_appendix(20, 0.95) > 1.4 * variance
    assert brownian_variance_in_the_appendix(50, 1.0) == pytest.approx(brownian_variance(50, 1.0))
