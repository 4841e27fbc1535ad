"""The NumPy scale and the Keras layer against the vectors that also hold PyTorch's and JAX's to the method."""

import numpy as np
import pytest

import rbs_tf
from tests.elsewhere.vectors import BY_NAME, TOLERANCE


@pytest.fixture(params=BY_NAME)
def vector(request):
    return BY_NAME[request.param]


@pytest.mark.parametrize("kind", [rbs_tf.numpy.ReturnScaling, rbs_tf.ReturnScaling])
def test_statistics_and_scaled_errors(kind, vector):
    scale = kind(vector.num_heads, vector.sigma_v, floor_in_units=vector.in_units)
    for episode in vector.episodes:
        scale.merge_state(rbs_tf.ReturnMoments.from_episode(*episode))
    found = {
        "sigma": scale.sigma,
        "unit": scale.unit,
        "scaled": scale(vector.errors),
        "scaled_with_batch": scale(vector.errors, vector.batch_sigma),
        "scaled_with_part": scale(vector.errors, vector.part_of_batch_sigma),
        "scaled_by_task": scale(vector.errors[:, 0], head=vector.tasks),
    }
    for name, values in found.items():
        np.testing.assert_allclose(values, getattr(vector, name), rtol=TOLERANCE, err_msg=name)
        assert np.asarray(values).dtype == np.float64


def test_batch_sigma(vector):
    expected = vector.batch_sigma
    rewards, discounts, mask = vector.batch
    numpy = rbs_tf.ReturnMoments.from_batch(rewards, discounts, mask).sigma
    np.testing.assert_allclose(numpy, expected, rtol=TOLERANCE)
    np.testing.assert_allclose(rbs_tf.batch_sigma(rewards, discounts, mask), expected, rtol=TOLERANCE)
