"""Heads are data: discounts and clipping per head."""

import numpy as np
import pytest
import tensorflow as tf

from agents.heads import Heads


def test_the_default_is_the_papers_ten_heads():
    heads = Heads()
    assert len(heads) == 10
    assert {discount for discount, _ in heads.pairs} == {0.0, 0.9, 0.99, 0.999, 1.0}
    assert sum(clip for _, clip in heads.pairs) == 5
    assert len(set(heads.names)) == 10


def of_both(of, values, expected):
    """What heads make of NumPy's arrays, they make of TensorFlow's."""
    for found in of(np.asarray(values)), of(tf.constant(values, tf.float32)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_rewards_are_clipped_where_a_head_says_so():
    rewards = np.array([[-300.0, 0.5], [0.0, 7.0]])
    expected = np.stack([np.clip(rewards, -1, 1), rewards], axis=-1)
    of_both(Heads([(0.9, True), (0.9, False)]).rewards, rewards, expected)


def test_rewards_are_multiplied_before_they_are_clipped():
    heads = Heads([(0.9, True), (0.9, False)], reward_multiplier=4.0)
    of_both(heads.rewards, [-75.0, 0.5, 0.1], [[-1.0, -300.0], [1.0, 2.0], [0.4, 0.4]])


def test_a_terminal_step_has_discount_zero_for_every_head():
    heads = Heads([(0.0, False), (0.9, False), (1.0, True)])
    of_both(heads.discounts, [1.0, 0.0], [[0, 0.9, 1], [0, 0, 0]])


def test_equal_heads_keep_names_apart():
    assert len(set(Heads([(0.9, False)] * 3).names)) == 3


def test_wrong_pairs_are_refused():
    for pairs in ((), ((0.9,),), ((1.5, False),), (0.9, False)):
        with pytest.raises(ValueError, match=r"Heads\.pairs"):
            print(pairs, Heads(pairs))


def test_a_multiplier_of_rewards_is_said():
    assert Heads().note == ""
    assert (
        Heads(reward_multiplier=1000.0).note
        == "Heads learn from rewards times 1000: Heads.reward_multiplier."
    )
