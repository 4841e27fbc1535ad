"""Two replicas, each fed its share of the data, hold the statistics that one process finds in all of it.

TensorFlow takes logical devices only before it has done anything: these tests run in a separate process.
"""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from rbs_tf import ReturnMoments, ReturnScaling, ScaledLoss, batch_sigma, discounted_returns
from tests.devices import process_with_two_cpus


@pytest.fixture(scope="module")
def process():
    with process_with_two_cpus() as process:
        yield process


def data(seed=0):
    rewards = np.random.default_rng(seed).normal(1e4, 2.0, (8, 3))
    discounts = np.full((8, 3), 0.9)
    discounts[-1] = 0.0
    return rewards, discounts, discounted_returns(rewards, discounts)


@functools.cache
def two_replicas():
    """One per process: TensorFlow gives the collectives of different strategies the same keys."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def replicated():
    strategy = two_replicas()
    with strategy.scope():
        return strategy, ReturnScaling(3)


def run(strategy, function, arrays, axis=0):
    """Each replica gets its share of the arrays, unequally large; returns every replica's result."""

    def share(array):
        parts = np.split(array, [3], axis)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    def step(*shares):
        return strategy.run(function, shares)

    result = tf.function(step)(*map(share, arrays))
    return [x.numpy() for x in strategy.experimental_local_results(result)]


def assert_every_copy(strategy, layer, expected, rtol=0.0):
    for copy in strategy.experimental_local_results(layer.statistics):
        np.testing.assert_allclose(copy.numpy(), expected, rtol=rtol)


def check_statistics():
    strategy, layer = replicated()

    def update(rewards, discounts, returns):
        layer.update_state(rewards, discounts, tf.ones(tf.shape(rewards)[:1]))
        layer.update_returns(returns)
        return layer.sigma

    for seed in (1, 2):
        sigmas = run(strategy, update, data(seed))
    expected = ReturnMoments.merge(*(ReturnMoments.from_episode(*data(seed)[:2]) for seed in (1, 2)))
    np.testing.assert_array_equal(*sigmas)
    np.testing.assert_allclose(sigmas[0], expected.sigma, rtol=1e-12)
    assert_every_copy(strategy, layer, expected.to_array(), rtol=1e-12)


def check_refusal():
    """One replica's NaN keeps the statistics of both as they were."""
    strategy, layer = replicated()
    rewards, discounts, _ = data()
    rewards[6, 1] = np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match="rewards must be finite"):
        run(strategy, lambda *x: layer.update_state(*x) or tf.constant(0), (rewards, discounts))
    assert_every_copy(strategy, layer, np.zeros((8, 3)))
    run(strategy, lambda *x: layer.update_state(*x) or tf.constant(0), data()[:2])
    np.testing.assert_array_equal(layer.moments.count, [8.0] * 3)


def check_merging():
    """Moments of another process count once, wherever they are merged."""
    strategy, layer = replicated()
    moments = ReturnMoments.from_episode(*data()[:2])
    for merge in (layer.merge_state, lambda moments: strategy.run(lambda: layer.merge_state(moments))):
        layer.reset_state()
        merge(moments)
        assert_every_copy(strategy, layer, moments.to_array())


def check_batch_sigma():
    rng = np.random.default_rng(0)
    rewards, discounts = rng.normal(size=(6, 5, 3)), rng.uniform(size=(6, 5, 3))
    mask = rng.uniform(size=(6, 5)) < 0.7
    strategy, _ = replicated()
    first, second = run(strategy, batch_sigma, (rewards, discounts, mask), axis=1)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, batch_sigma(rewards, discounts, mask), rtol=1e-12)


def check_scaled_loss():
    """The actor's steps are observed once, outside of the replicas; each of these computes its share of the loss."""
    strategy, _ = replicated()
    with strategy.scope():
        loss = ScaledLoss(gamma=0.9)
    rewards = np.random.default_rng(0).normal(size=(5, 2))
    for t, reward in enumerate(rewards):
        kinds = np.full(2, min(t, 1), np.int32), np.full(2, 1 + (t == 4), np.int32)
        fields = dict(zip(("step_type", "next_step_type"), kinds, strict=True))
        loss.observe(types.SimpleNamespace(reward=reward, discount=np.full(2, float(t < 4)), **fields))
    discounts = np.append(np.full(4, 0.9), 0.0)
    episodes = (ReturnMoments.from_episode(column, discounts) for column in rewards.T)
    errors = np.arange(8.0)
    shares = run(strategy, loss, (errors, np.zeros(8)))
    expected = 0.5 * (errors / ReturnMoments.merge(*episodes).sigma) ** 2
    np.testing.assert_allclose(np.concatenate(shares), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "check",
    [
        check_statistics,
        check_refusal,
        check_merging,
        check_batch_sigma,
        check_scaled_loss,
    ],
)
def test_replicas(process, check):
    process(check)
