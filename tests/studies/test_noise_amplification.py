"""What errors divided by their own size do, and what they do not do undivided (section 5)."""

import numpy as np
import pytest

from studies.noise_amplification import SCALES, SIGMA_BOUND, regress, up_swings


@pytest.fixture(scope="module")
def runs():
    return {name: regress(make()) for name, make in SCALES.items()}


@pytest.fixture(scope="module")
def swings(runs):
    return up_swings(runs["window"].root_mean_square)


def test_the_stability_bound():
    assert pytest.approx(0.2258, abs=1e-4) == SIGMA_BOUND


def test_a_window_of_errors_jumps_again_and_again(runs, swings):
    assert 25 <= len(swings) <= 31
    assert all(swing.factor > 10.0 for swing in swings)
    assert 80.0 < np.median([swing.factor for swing in swings]) < 150.0
    assert max(np.diff([swing.start for swing in swings])) < 3000
    assert runs["window"].root_mean_square[-10_000:].max() > 1.0


def test_the_jumps_begin_where_sigma_falls_below_the_bound(runs, swings):
    scales = runs["window"].scales
    first = int(np.argmax(scales < SIGMA_BOUND))
    assert 1200 < first < 2000
    assert abs(swings[0].start - first) < 200
    assert all(scales[swing.start : swing.start + 400].min() < SIGMA_BOUND for swing in swings[:-1])


def test_plain_sgd_converges_and_return_scaling_is_plain_sgd(runs):
    np.testing.assert_array_equal(runs["return"].errors, runs["vanilla"].errors)
    assert runs["vanilla"].root_mean_square[-1] < 1e-13
    assert up_swings(runs["vanilla"].root_mean_square) == []


def test_an_up_swing_is_a_rise_and_ends_with_a_fall():
    errors = np.array([1.0, 0.1, 0.5, 1.5, 3.0, 1.0, 0.2, 0.1, 0.9, 2.0])
    assert up_swings(errors) == [(1, pytest.approx(30.0)), (7, pytest.approx(20.0))]
    assert up_swings(np.array([1.0, 9.0, 0.5, 4.0])) == []
