"""Moments with the largest reward and return, and how they merge."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings import MaxReward, MomentsWithMaxima, SimbaV2
from tests.rbs_tf.scalings.episodes import H, numbers, steps


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-3, 3), st.integers(1, 9)), max_size=5))
def test_they_are_the_moments_and_the_largest_sizes_of_everything(described):
    episodes = [steps(seed, length, 10.0**size) for seed, (size, length) in enumerate(described)]
    found, plain = (
        functools.reduce(kind.merge, [kind.from_episode(*each) for each in episodes], kind.empty(H))
        for kind in (MomentsWithMaxima, ReturnMoments)
    )
    np.testing.assert_array_equal([*found][:8], [*plain])
    for head in range(H):
        rewards, returns = [0.0], [0.0]
        for of_steps, discounts in episodes:
            total = 0.0
            for reward, discount in zip(of_steps[::-1, head], discounts[::-1, head], strict=True):
                total = reward + discount * total
                rewards.append(abs(reward))
                returns.append(abs(total))
        assert found.largest_reward[head] == max(rewards)
        assert found.largest_return[head] == pytest.approx(max(returns), rel=1e-12)
    copy = MomentsWithMaxima.from_array(found.to_array())
    np.testing.assert_array_equal(copy.to_array(), found.to_array())
    assert found.to_array().shape == (10, H)


def test_steps_tell_of_rewards_and_returns_of_returns():
    of_steps, of_returns = (
        MomentsWithMaxima.from_steps([[-3.0]], [[0.0]]),
        MomentsWithMaxima.from_returns([[-7.0]]),
    )
    assert (of_steps.largest_reward, of_steps.largest_return) == (3.0, 0.0)
    assert (of_returns.largest_reward, of_returns.largest_return) == (0.0, 7.0)


def test_plain_moments_and_other_numbers_of_heads_are_refused_and_leave_everything_as_it_was():
    for scaling in (MaxReward(H), SimbaV2(H)):
        before = numbers(scaling)
        with pytest.raises(
            ValueError, match=r"make them with rbs_tf.scalings.maxima.MomentsWithMaxima.from_episode"
        ):
            scaling.observe(ReturnMoments.from_episode(*steps()))
        with pytest.raises(ValueError, match="equally many heads"):
            scaling.observe(MomentsWithMaxima.from_steps([[1.0]], [[0.0]]))
        for a, b in zip(before, numbers(scaling), strict=True):
            np.testing.assert_array_equal(b, a)
