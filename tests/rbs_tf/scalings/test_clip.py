"""Clipped rewards: what the agent learns from, and what stays as it was."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from rbs_tf.scalings.clip import ClippedRewards
from tests.agents.small_agent import as_sequence, make_agent, random_windows
from tests.rbs_tf.scalings.episodes import SHAPE, context

PAIRS = ((0.0, False), (0.9, False), (1.0, True))


@given(reward=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False))
def test_rewards_are_clipped_to_plus_and_minus_one(reward):
    assert ClippedRewards(1).rewards(tf.fill([1, 1, 1], reward)).numpy().item() == np.clip(reward, -1, 1)


def test_errors_and_values_are_left_alone_and_there_is_no_state():
    scaling = ClippedRewards(2)
    targets, outputs = 1e3 * tf.random.normal(SHAPE), 1e3 * tf.random.normal(SHAPE)
    np.testing.assert_array_equal(scaling.errors(targets, outputs, context()), targets - outputs)
    np.testing.assert_array_equal(scaling.values(outputs), outputs)
    assert scaling.summaries() == {} and scaling.variables == ()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_agent_learns_the_same_from_rewards_that_were_clipped_before(jit_compile):
    windows = random_windows(reward_scale=3.0)
    clipped = dict(windows, reward=np.clip(windows["reward"], -1.0, 1.0))
    found = []
    for batch in (windows, clipped):
        agent = make_agent(PAIRS, scaling=ClippedRewards, jit_compile=jit_compile)
        # The network's own input, the previous reward, is clipped by the network.
        for _ in range(3):
            agent.train(as_sequence(batch))
        found.append([variable.numpy() for variable in agent.network.variables])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
