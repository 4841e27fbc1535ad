"""What an evaluation measures, on environments and values that are known beforehand."""

import numpy as np
import pytest
import tensorflow as tf

from agents.heads import Heads
from agents.scalings import Scaling
from agents.workers.evaluator import Evaluator, Stopped, describe_returns
from tests.agents.scripted import ScriptedEnvironment, ScriptedPolicy, reward_of

PAIRS = ((0.9, True), (1.0, False))


class InOtherUnits(Scaling):
    """The network puts out a tenth of a value."""

    def values(self, outputs, target=False):
        return 10.0 * outputs


def relative_value_errors(lengths, value):
    """By the definition; the k-th number of lengths[i] is the length of environment i's k-th episode."""
    columns = []
    for (gamma, clip), sign in zip(PAIRS, (1.0, -1.0), strict=True):
        errors, returns = [], []
        for index, episodes in enumerate(lengths):
            for episode, length in enumerate(episodes):
                rewards = [float(reward_of(index, episode, t)) for t in range(1, length + 1)]
                rewards = np.clip(rewards, -1.0, 1.0) if clip else np.array(rewards)
                for t in range(length):
                    following = rewards[t:]
                    returns.append(following @ gamma ** np.arange(len(following)))
                    errors.append(sign * value * t - returns[-1])
        columns.append(np.sqrt(np.mean(np.square(errors))) / np.std(returns))
    return columns


@pytest.mark.parametrize("max_steps, lengths", [(100, [[5, 3], [2, 4]]), (4, [[4], [2, 4]])])
def test_values_are_compared_with_the_returns_that_followed_in_their_standard_deviations(max_steps, lengths):
    """An episode that is cut counts up to there, and is its environment's last."""
    environment = ScriptedEnvironment([[5, 3], [2, 4]])
    evaluator = Evaluator(environment, ScriptedPolicy(0.5), Heads(PAIRS), InOtherUnits(2), max_steps)
    evaluation = evaluator.run(episodes_per_environment=2)
    assert sorted(evaluation.lengths) == sorted(sum(lengths, []))
    paid = [
        sum(float(reward_of(index, episode, t)) for t in range(1, length + 1))
        for index, episodes in enumerate(lengths)
        for episode, length in enumerate(episodes)
    ]
    np.testing.assert_allclose(sorted(evaluation.returns), sorted(np.array(paid)))
    np.testing.assert_allclose(evaluation.value_errors, relative_value_errors(lengths, 5.0), rtol=1e-5)


class Earning(ScriptedEnvironment):
    """Pays what the action is: a head's own number with `ItsNumber`."""

    def _step(self, action):
        time_step = super()._step(action)
        return time_step._replace(reward=np.where(time_step.is_first(), 0, action).astype(np.float32))


class ItsNumber(ScriptedPolicy):
    def act_by_heads(self, head, time_step, policy_state):
        step = super().act_by_heads(head, time_step, policy_state)
        info = step.info._replace(taken_values=tf.zeros((tf.shape(head)[0], 5)))
        return step._replace(action=tf.where(head == 3, 2 * head, head), info=info)


@pytest.mark.parametrize("scripts, max_steps", [([[5], [5], [5]], 100), ([[50]] * 4, 4)])
def test_in_a_trial_heads_act_side_by_side_and_the_one_that_earns_most_is_found(scripts, max_steps):
    heads = Heads(tuple((0.1 * index, False) for index in range(5)))
    evaluator = Evaluator(Earning(scripts), ItsNumber(), heads, Scaling(5), max_steps)
    found = evaluator.trial(16)
    # An episode that is cut is its environment's last: the fifth head's, behind another one, is not played.
    assert found == (3, 12 if max_steps > 5 else 11)
    with pytest.raises(Stopped):
        evaluator.trial(16, stopped=lambda: True)


def test_a_head_whose_returns_are_all_alike_has_no_relative_error():
    class Unrewarded(ScriptedEnvironment):
        def _time_step(self):
            time_step = super()._time_step()
            return time_step._replace(reward=np.zeros_like(time_step.reward))

    evaluator = Evaluator(Unrewarded([[5]]), ScriptedPolicy(), Heads(PAIRS), Scaling(2))
    evaluation = evaluator.run()
    assert np.isnan(evaluation.value_errors).all() and evaluation.returns.tolist() == [0.0]


def test_an_evaluation_without_end_says_how_far_it_is_until_it_is_cut():
    endless = ScriptedEnvironment([[10**9]] * 2)
    evaluator, said = Evaluator(endless, ScriptedPolicy(), Heads(PAIRS), Scaling(2), max_steps=100), []
    evaluator.run(stopped=lambda: said.append(evaluator.playing))
    assert said[70] == "evaluating: 70 steps of 2 environments, 0 episodes over, each at most 100 long"
    assert len(said) == 100


def test_equal_episodes_are_counted_once():
    alike, other = np.array([3.0, 3.0, 3.0]), np.array([7, 7, 8])
    assert describe_returns(alike, other) == "3 episodes, 2 different"
    assert describe_returns(alike + np.arange(3), other) == "3 episodes"
