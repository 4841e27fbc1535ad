"""Streams of episodes, and random play on a real game."""

import numpy as np

from studies.episodes import Episode, Stream


def test_streams_keep_the_discount_of_a_time_out_and_cut_its_return():
    stream = Stream.of([Episode(np.array([1.0, 1.0]), terminal=False), Episode(np.array([4.0, 8.0]))], 0.5)
    np.testing.assert_array_equal(stream.discounts, [0.5, 0.5, 0.5, 0.0])
    np.testing.assert_array_equal(stream.returns, [1.5, 1.0, 8.0, 8.0])
    np.testing.assert_array_equal(stream.errors(stream.returns), 0.0)
    np.testing.assert_array_equal(stream.following(np.arange(4.0)), [1.0, 0.0, 3.0, 0.0])


def test_early_values_are_the_returns_of_other_steps():
    stream = Stream.of([Episode(np.arange(5.0)), Episode(np.ones(4))], 0.9)
    values = stream.early_values(3)
    assert values.shape == (3, 9)
    for row in values:
        np.testing.assert_array_equal(np.sort(row), np.sort(stream.returns))
        assert (row != stream.returns).any()
