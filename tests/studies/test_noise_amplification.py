"""What errors divided by their own size do, and what they do not do undivided (section 5)."""

import numpy as np
import pytest

from studies.noise_amplification import SCALES, SIGMA_BOUND, regress, up_swings


def test_a_window_of_errors_jumps_again_and_again_where_sigma_falls_below_the_bound():
    run = regress(SCALES["window"]())
    swings = up_swings(run.root_mean_square)
    assert 25 <= len(swings) <= 31
    assert 80.0 < np.median([swing.factor for swing in swings]) < 150.0
    assert run.root_mean_square[-10_000:].max() > 1.0
    first = int(np.argmax(run.scales < SIGMA_BOUND))
    assert 1200 < first < 2000 and abs(swings[0].start - first) < 200
    assert all(run.scales[swing.start : swing.start + 400].min() < SIGMA_BOUND for swing in swings[:-1])


def test_plain_sgd_converges_and_return_scaling_is_plain_sgd():
    vanilla, ours = (regress(SCALES[name]()) for name in ("vanilla", "return"))
    np.testing.assert_array_equal(ours.errors, vanilla.errors)
    assert vanilla.root_mean_square[-1] < 1e-13 and up_swings(vanilla.root_mean_square) == []


def test_an_up_swing_is_a_rise_and_ends_with_a_fall():
    errors = np.array([1.0, 0.1, 0.5, 1.5, 3.0, 1.0, 0.2, 0.1, 0.9, 2.0])
    assert up_swings(errors) == [(1, pytest.approx(30.0)), (7, pytest.approx(20.0))]
    assert up_swings(np.array([1.0, 9.0, 0.5, 4.0])) == []
