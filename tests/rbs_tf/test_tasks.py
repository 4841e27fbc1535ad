"""One scale per task: steps and errors that are of one head each."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import SyncVectorEnv

from rbs_tf import ReturnMoments, ReturnScaling, collect_returns
from rbs_tf.numpy import ReturnScaling as NumpyScaling
from tests.scripted import Script

TASKS = 3


def steps(seed=0):
    """Rewards, discounts, returns, tasks and a mask, [T, B] each."""
    rng = np.random.default_rng(seed)
    return *rng.normal(size=(3, 12, 5)), rng.integers(TASKS, size=(12, 5)), rng.random((12, 5)) < 0.8


def of_each_task(rewards, discounts, returns, tasks, mask):
    """[8, TASKS]: the moments of each task's own steps."""
    found = []
    for task in range(TASKS):
        own = (tasks == task) & mask
        moments = ReturnMoments.from_steps(rewards[own], discounts[own])
        found.append(ReturnMoments.merge(moments, ReturnMoments.from_returns(returns[own])).to_array())
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize(
    "mode",
    [lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True)],
    ids=["eager", "graph", "xla"],
)
def test_statistics_and_errors_of_tasks(mode):
    rewards, discounts, returns, tasks, mask = steps()
    layer = ReturnScaling(TASKS)

    def feed(rewards):
        layer.update_state(rewards, discounts, mask, head=tasks)
        layer.update_returns(returns, mask, head=tasks)

    mode(feed)(np.where(mask, rewards, np.nan))
    expected = of_each_task(rewards, discounts, returns, tasks, mask)
    np.testing.assert_allclose(layer.statistics, expected, rtol=1e-12, atol=1e-14)
    scale = NumpyScaling(TASKS)
    scale.merge_state(ReturnMoments.from_array(expected))
    errors = np.float32(rewards)
    wanted = errors / np.float32(scale.sigma)[tasks]
    np.testing.assert_allclose(mode(lambda: layer(errors, head=tasks))(), wanted, rtol=1e-6)
    np.testing.assert_array_equal(scale(errors, head=tasks), wanted)
    np.testing.assert_allclose(layer(errors, head=2), scale(errors, head=2), rtol=1e-6)
    before = layer.moments.count.numpy()
    layer.update_state([1.0, 3.0], [0.9, 0.0], head=1)
    np.testing.assert_array_equal(layer.moments.count - before, [0.0, 2.0, 0.0])


@pytest.mark.parametrize("head", [3, -1, [0, 4], 0.5])
def test_wrong_tasks(head):
    layer, scale = ReturnScaling(TASKS), NumpyScaling(TASKS)
    for call in (
        lambda: layer.update_state(np.ones(2), np.ones(2), head=head),
        lambda: layer(np.ones(2, np.float32), head=head),
        lambda: scale(np.ones(2), head=head),
        lambda: collect_returns(Script(([1.0], True)), scale, 0.9, head=head),
    ):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="whole numbers from 0 to 2"):
            call()
    assert not layer.moments.count.numpy().any()


def test_environments_of_a_vector():
    episodes = [([1.0, 2.0], True), ([10.0] * 3, False), ([-5.0, 0.0, 1.0], True)]
    gammas, tasks = np.array([0.5, 0.9, 1.0]), [2, 0, 2]
    for make in (NumpyScaling, ReturnScaling):
        scaling = make(TASKS)
        envs = SyncVectorEnv([lambda e=e: Script(e, forever=True) for e in episodes])
        envs = collect_returns(envs, scaling, gammas, head=tasks)
        envs.reset()
        for _ in range(3):
            envs.step(np.zeros(3, int))
        envs.reset()
        expected = ReturnMoments.empty(TASKS)
        for (rewards, terminal), task in zip(episodes, tasks, strict=True):
            discounts = np.full(len(rewards), gammas[task])
            discounts[-1] *= not terminal
            own = ReturnMoments.from_episode(rewards, discounts).put_in_head(task, TASKS)
            expected = ReturnMoments.merge(expected, own)
        found = ReturnMoments(*map(np.array, scaling.moments))
        np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="one number, or one per environment, 3"):
        collect_returns(SyncVectorEnv([lambda: Script()] * 3), NumpyScaling(TASKS), 0.9, head=[0, 1])
