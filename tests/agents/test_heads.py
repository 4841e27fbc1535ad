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


@pytest.mark.parametrize("as_input", [np.asarray, lambda x: tf.constant(x, tf.float32)])
def test_rewards_are_clipped_where_a_head_says_so(as_input):
    heads = Heads([(0.9, True), (0.9, False)])
    rewards = np.array([[-300.0, 0.5], [0.0, 7.0]])
    expected = np.stack([np.clip(rewards, -1, 1), rewards], axis=-1)
    np.testing.assert_allclose(heads.rewards(as_input(rewards)), expected)


@pytest.mark.parametrize("as_input", [np.asarray, lambda x: tf.constant(x, tf.float32)])
def test_rewards_are_multiplied_before_they_are_clipped(as_input):
    heads = Heads([(0.9, True), (0.9, False)], reward_multiplier=4.0)
    expected = [[-1.0, -300.0], [1.0, 2.0], [0.4, 0.4]]
    np.testing.assert_allclose(heads.rewards(as_input(np.array([-75.0, 0.5, 0.1]))), expected)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.nan, np.inf])
def test_a_multiplier_that_is_not_positive_is_refused(multiplier):
    with pytest.raises(ValueError, match=r"Heads\.reward_multiplier"):
        Heads(reward_multiplier=multiplier)


@pytest.mark.parametrize("as_input", [np.asarray, lambda x: tf.constant(x, tf.float32)])
def test_a_terminal_step_has_discount_zero_for_every_head(as_input):
    heads = Heads([(0.0, False), (0.9, False), (1.0, True)])
    np.testing.assert_allclose(
        heads.discounts(as_input(np.array([1.0, 0.0]))), [[0, 0.9, 1], [0, 0, 0]], rtol=1e-6
    )


def test_equal_heads_keep_names_apart():
    assert len(set(Heads([(0.9, False)] * 3).names)) == 3


@pytest.mark.parametrize("pairs", [(), ((0.9,),), ((1.5, False),), (0.9, False)])
def test_wrong_pairs_are_refused(pairs):
    with pytest.raises(ValueError, match=r"Heads\.pairs"):
        Heads(pairs)
