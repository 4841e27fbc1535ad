"""Outputs in units of returns or of targets, errors divided by sigma, by the unit or by the root of both."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rbs_tf import ReturnMoments
from rbs_tf.scalings import ErrorContext, PopArt, PopArtFirst, ReturnOut
from tests.rbs_tf.scalings.test_pop_art import H, LastLayers, outputs_of

SHAPE = (5, 3, H)
SIZES = (3.0, 20.0, 0.5)  # of the rewards of three updates
KINDS = {
    "returns, taken over": ReturnOut,
    "returns, preserved": functools.partial(ReturnOut, preserve_first=True),
    "targets, taken over": PopArtFirst,
    "targets, preserved": functools.partial(PopArt, min_scale=1e-300, max_scale=np.inf),
}
ROWS = pytest.mark.parametrize("kind", KINDS)
COLUMNS = pytest.mark.parametrize("divisor", ["sigma", "s", "geometric"])


def steps(seed):
    """Rewards and discounts of an episode, float64 [20, H]."""
    rewards = np.random.default_rng(seed).normal(0.3, SIZES[seed], (20, H))
    return rewards, np.full((20, H), 0.9) * (np.arange(20) < 19)[:, None]


def normal(seed, size, shape=SHAPE):
    return (size * np.random.default_rng(seed).normal(0.3, 1.0, shape)).astype(np.float32)


def context(seed, size):
    """A batch of seven rows in mid-episode, five of which have errors."""
    rewards, nothing = normal(seed, size, (7, 3, H)), tf.zeros(SHAPE)
    return ErrorContext(rewards, tf.fill(rewards.shape, 0.9), tf.ones((7, 3)), nothing, nothing)


def updated(kind, divisor, factor=1.0, compiled=lambda function: function):
    """The scaling and its layers after three updates from rewards times `factor`, and all errors on the way."""
    scaling, layers, errors = KINDS[kind](H, divisor=divisor), LastLayers(), []
    hooks = map(compiled, (scaling.before_update, scaling.errors, scaling.after_update))
    before_update, errors_of, after_update = hooks
    for seed, size in enumerate(SIZES):
        rewards, discounts = steps(seed)
        scaling.observe(ReturnMoments.from_episode(factor * rewards, discounts))
        before_update(layers, None)
        scaling.initialise(outputs_of(layers), tf.ones(SHAPE[:2]), seed == 0)
        targets = tf.constant(np.float32(factor) * normal(seed, size))
        batch = context(seed, np.float32(factor) * size)
        errors.append(errors_of(targets, outputs_of(layers), batch).numpy())
        after_update(targets, targets, batch.error_mask, layers, None)
        scaling.target_updated()
    return scaling, layers, errors


def statistics():
    """Of the three episodes: sigma and the root of the larger of E[G^2] and E[R^2], float64 [H]."""
    columns = []
    for seed in range(len(SIZES)):
        rewards, discounts = steps(seed)
        returns, total = np.zeros_like(rewards), np.zeros(H)
        for t in reversed(range(20)):
            returns[t] = total = rewards[t] + discounts[t] * total
        columns.append((rewards, discounts, returns))
    rewards, discounts, returns = map(np.concatenate, zip(*columns, strict=True))
    mean_square = np.square(returns).mean(axis=0)
    sigma = np.sqrt(rewards.var(axis=0) + discounts.var(axis=0) * mean_square)
    return sigma, np.sqrt(np.maximum(mean_square, np.square(rewards).mean(axis=0)))


def deviation_of_targets(kind, last):
    """The unit of Pop-Art's outputs after the three updates and a fourth batch of targets, float64 [H]."""
    preserved = kind.endswith("preserved")
    mean, mean_square = np.zeros(H), np.full(H, float(preserved))
    for index, targets in enumerate([*map(normal, range(len(SIZES)), SIZES), last]):
        x, step = targets.astype(np.float64), 1.0 if index == 0 and not preserved else 0.001
        mean += step * (x.mean(axis=(0, 1)) - mean)
        mean_square += step * (np.square(x).mean(axis=(0, 1)) - mean_square)
    return np.sqrt(mean_square - mean**2)


@ROWS
@COLUMNS
@pytest.mark.parametrize("sigma_v, batch_size", [(1e-9, 1e-3), (50.0, 1e-3), (1e-9, 1e5)])
def test_each_cell_divides_by_its_own(kind, divisor, sigma_v, batch_size):
    scaling, layers, _ = updated(kind, divisor)
    of_returns = scaling if kind.startswith("returns") else scaling.returns
    if of_returns is not None:
        of_returns.layer.sigma_v.assign([sigma_v] * H)
    targets, outputs, batch = normal(7, 4.0), outputs_of(layers), context(8, batch_size)
    delta = targets - scaling.values(outputs).numpy().astype(np.float64)
    sigma, s = statistics()
    if kind.startswith("targets"):
        s = deviation_of_targets(kind, targets)
    sigma_batch = batch.rewards.astype(np.float64).std(axis=(0, 1))
    sigma = np.maximum(sigma, np.maximum(sigma_v * s, sigma_batch))
    divided_by = {"sigma": sigma, "s": s, "geometric": np.sqrt(sigma * s)}[divisor]
    np.testing.assert_allclose(
        scaling.errors(tf.constant(targets), outputs, batch), delta / divided_by, rtol=5e-4, atol=1e-4
    )


@ROWS
def test_the_geometric_mean_makes_the_gradient_of_the_loss_in_the_output_delta_by_sigma(kind):
    """But that Pop-Art divides by the unit to come: outputs are still in the one before the batch."""
    targets = normal(7, 4.0)

    def gradient(divisor):
        scaling, layers, _ = updated(kind, divisor)
        outputs = tf.Variable(outputs_of(layers))
        with tf.GradientTape() as tape:
            errors = scaling.errors(tf.constant(targets), outputs, context(8, 1.0))
            loss = tf.reduce_sum(0.5 * tf.square(errors))
        return tape.gradient(loss, outputs), errors * before(scaling)

    def before(scaling):
        s = deviation_of_targets(kind, targets)
        return (scaling.online.scale / s).numpy() if kind.startswith("targets") else np.ones(H)

    np.testing.assert_allclose(gradient("geometric")[0], -gradient("sigma")[1], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(gradient("s")[0], -gradient("s")[1], rtol=1e-3, atol=1e-5)


@COLUMNS
@pytest.mark.parametrize("kind", ["returns, taken over", "targets, taken over"])
@settings(deadline=None, max_examples=4)
@given(exponent=st.integers(-60, 60))
def test_where_the_first_unit_is_taken_over_the_unit_of_rewards_does_not_matter(kind, divisor, exponent):
    _, layers, errors = updated(kind, divisor)
    _, other_layers, others = updated(kind, divisor, 2.0**exponent)
    np.testing.assert_array_equal(others, errors)
    np.testing.assert_array_equal(other_layers(), layers())


@COLUMNS
@pytest.mark.parametrize("kind", ["returns, preserved", "targets, preserved"])
def test_where_it_is_preserved_it_does(kind, divisor):
    _, layers, _ = updated(kind, divisor)
    _, other_layers, _ = updated(kind, divisor, 1024.0)
    ratio = other_layers().numpy().std(axis=0) / layers().numpy().std(axis=0)
    assert (ratio < 1e-2).all(), "weights are divided by the size of rewards"


def test_preserving_the_first_scale_of_returns_starts_at_1_and_changes_no_value():
    scaling, layers = KINDS["returns, preserved"](H), LastLayers()
    values = layers().numpy()
    nothing = ReturnMoments.from_episode(np.zeros((5, H)), np.ones((5, H)))
    for report in (nothing, ReturnMoments.from_episode(*steps(1)), ReturnMoments.from_episode(*steps(2))):
        scaling.observe(report)
        scaling.before_update(layers, None)
        np.testing.assert_allclose(scaling.values(layers()), values, atol=1e-5)
        if report is nothing:
            np.testing.assert_array_equal(scaling.online.scale, np.ones(H))
    assert (scaling.online.scale.numpy() > 5.0).all()
    np.testing.assert_array_equal(scaling.target.scale, np.ones(H))


@ROWS
def test_graphs_and_xla_compute_the_same(kind):
    """Of the divisor that takes all that the others take."""
    scaling, layers, errors = updated(kind, "geometric")
    for jit_compile in (False, True):
        compiled = functools.partial(tf.function, jit_compile=jit_compile)
        other, other_layers, others = updated(kind, "geometric", compiled=compiled)
        np.testing.assert_allclose(others, errors, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            other.values(other_layers()), scaling.values(layers()), rtol=1e-4, atol=1e-4
        )


@ROWS
@COLUMNS
def test_checkpoints_hold_what_is_used(kind, divisor, tmp_path):
    scaling, layers, _ = updated(kind, divisor)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = KINDS[kind](H, divisor=divisor)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    arguments = tf.constant(normal(7, 4.0)), outputs_of(layers), context(8, 1.0)
    np.testing.assert_array_equal(restored.errors(*arguments), scaling.errors(*arguments))
    assert ("sigma" in scaling.summaries()) == (kind.startswith("returns") or divisor != "s")
    for name, value in scaling.summaries().items():
        np.testing.assert_array_equal(restored.summaries()[name], value, err_msg=name)


@pytest.mark.parametrize("kind, default", [(ReturnOut, "sigma"), (PopArt, "s"), (PopArtFirst, "s")])
def test_another_divisor_is_refused(kind, default):
    with pytest.raises(
        ValueError, match=f"one of 'sigma', 's', 'geometric'; got 'mean'. The default is '{default}'"
    ):
        kind(H, divisor="mean")
