"""What is left of a loss's scale behind the real Adam."""

import numpy as np
import pytest

from studies.adam import updates

FACTORS = 10.0 ** np.array([-5.0, -4.0, -0.25, 0.0, 2.0, 6.0])
ONE = 3


@pytest.fixture(scope="module", params=[0.0, 1e-6, 1e-3])
def result(request):
    return request.param, updates(request.param, FACTORS)


def test_large_losses_all_move_parameters_by_about_a_learning_rate(result):
    _, measured = result
    assert measured.losses[-1] > 1e7 * measured.losses[-2]
    np.testing.assert_allclose(measured.steps[-1], measured.steps[-2], rtol=1e-3)
    assert 0.3 < measured.steps[-1] < 1.0


def test_below_epsilon_updates_shrink_with_the_loss(result):
    epsilon, measured = result
    losses, steps = (values[1] / values[0] for values in (measured.losses, measured.steps))
    assert losses == pytest.approx(100.0, rel=0.01)
    assert steps == pytest.approx(100.0 if epsilon else 1.0, rel=0.02)


def test_the_loss_where_updates_shrink_is_that_whose_gradient_is_about_epsilon():
    large, small = (updates(epsilon).flat_from for epsilon in (1e-3, 1e-6))
    assert large == pytest.approx(1000.0 * small, rel=0.05)


def test_a_constant_factor_changes_what_is_learned_only_through_epsilon(result):
    epsilon, measured = result
    bounds = {0.0: (0.0, 1e-14), 1e-6: (1e-4, 1e-2), 1e-3: (0.1, 1.0)}
    low, high = bounds[epsilon]
    assert low <= measured.effect(ONE - 1, ONE) < high
