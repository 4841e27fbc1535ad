"""What holds for every scaling: graphs, checkpoints, gradients, padding, and heads that do not see one another."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from agents import scalings
from agents.scalings import ErrorBasedScaling, PopArt, ReturnBasedScaling, ReturnOut
from tests.agents.scalings import episodes
from tests.agents.scalings.episodes import (
    ROWS,
    SHAPE,
    H,
    LastLayers,
    context,
    layers_for,
    normal,
    numbers,
    played,
)

UNITLESS = {
    "pop_art, first targets": functools.partial(PopArt, start_at_first_targets=True),
    "return_out": ReturnOut,
}
CATEGORICAL = {"two_hot": scalings.TwoHot, "hl_gauss": scalings.HLGauss}
BY_VALUE = {
    "none": scalings.Scaling,
    "clip": scalings.ClippedRewards,
    "cross_head": functools.partial(scalings.CrossHeadScaling, step=0.3),
    "error": functools.partial(ErrorBasedScaling, step=0.3),
    "gymnasium": scalings.GymnasiumNormalise,
    "horizon": scalings.Horizon,
    "pop_art": functools.partial(PopArt, step_size=0.3),
    "return": ReturnBasedScaling,
    "return, all options": functools.partial(
        ReturnBasedScaling, target_network_term=True, value_bias=True, half_life=50.0
    ),
    "return_std": scalings.ReturnStd,
    "reward_std": scalings.RewardStd,
    "signed_hyperbolic": scalings.SignedHyperbolic,
    **UNITLESS,
}
SCALINGS = BY_VALUE | CATEGORICAL
EVERY = pytest.mark.parametrize("name", SCALINGS)


def test_every_class_of_scalings_is_here():
    built = {type(kind(H)) for kind in SCALINGS.values()}
    named = {getattr(scalings, name) for name in scalings.__all__}
    classes = {kind for kind in named if issubclass(kind, scalings.Scaling)} - {scalings.CategoricalScaling}
    assert built == classes


def assert_same(found, expected, of=lambda values: values):
    for a, b in zip(found, expected, strict=True):
        for own, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(of(own), of(other))


@EVERY
def test_xla_padding_and_other_heads_change_nothing(name):
    every = plain, compiled, padded, other = [SCALINGS[name](H) for _ in range(4)]
    expected = played(plain)
    for a, b in zip(played(compiled, by_xla=True), expected, strict=True):
        for by_xla, eager in zip(a, b, strict=True):
            np.testing.assert_allclose(by_xla, eager, rtol=1e-4, atol=1e-4)
    assert_same(played(padded, padding=np.inf), expected)
    assert_same(played(other, factor=np.array([1.0, 1000.0])), expected, of=lambda values: values[..., 0])
    for a, b, c, _ in zip(*map(numbers, every), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(c, a)


@EVERY
def test_a_restored_scaling_goes_on(name, tmp_path):
    scaling, restored = SCALINGS[name](H), SCALINGS[name](H)
    layers, copies = layers_for(scaling), layers_for(restored)
    played(scaling, range(3), layers=layers)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for copy, layer in zip(copies, layers, strict=True):
        copy.assign(layer)
    assert_same(played(restored, [3], layers=copies), played(scaling, [3], layers=layers))
    assert_same([numbers(restored)], [numbers(scaling)])
    assert {value.dtype for value in numbers(scaling)} <= {np.dtype(np.float64), np.dtype(bool)}


@EVERY
def test_errors_change_nothing(name):
    scaling = SCALINGS[name](H)
    for seen in (range(0), range(3)):
        played(scaling, seen)
        before, rewards = numbers(scaling), tf.constant(normal(7, 50.0, ROWS))
        targets, batch = scaling.rewards(rewards)[:5], context(rewards=rewards)
        raw = LastLayers(scaling.outputs_per_action)()[:5]
        errors = scaling.errors(targets, scaling.decode(raw), batch)
        losses = scaling.losses(errors, targets, raw, batch)
        assert np.isfinite(errors).all() and np.isfinite(losses).all()
        for shown in scaling.summaries().values():
            assert shown.shape == (H,) and np.isfinite(shown).all()
        assert_same([numbers(scaling)], [before])


@pytest.mark.parametrize("name", BY_VALUE)
def test_gradients(name):
    scaling = BY_VALUE[name](H)
    played(scaling)
    outputs, rewards = tf.Variable(normal(1)), tf.Variable(normal(2, 20.0, ROWS))
    with tf.GradientTape() as tape:
        batch = context()._replace(rewards=rewards)
        errors = scaling.errors(tf.constant(normal(3, 20.0)), outputs, batch)
    into_outputs, into_rewards = tape.gradient(errors, (outputs, rewards))
    assert into_rewards is None or not np.any(into_rewards)
    # What errors are divided by is the same for all of a head: a gradient through it would differ between them.
    assert (into_outputs.numpy() < 0.0).all()
    np.testing.assert_allclose(into_outputs, np.broadcast_to(into_outputs[0, 0], SHAPE), rtol=1e-6)


@EVERY
def test_a_batch_of_padding_changes_nothing(name):
    scaling = SCALINGS[name](H)
    layers = layers_for(scaling)
    played(scaling, layers=layers)
    before = scaling.summaries()
    episodes.update(scaling, layers, tf.zeros(ROWS), tf.zeros(ROWS[:2]), tf.constant(False))
    for shown, value in scaling.summaries().items():
        np.testing.assert_array_equal(value, before[shown], err_msg=shown)
    errors, losses = episodes.update(
        SCALINGS[name](H), layers, tf.zeros(ROWS), tf.zeros(ROWS[:2]), tf.constant(True)
    )
    assert not np.any(errors) and np.isfinite(losses).all()


@pytest.mark.parametrize("name", UNITLESS)
@pytest.mark.parametrize("exponent, updates", [(-100, 2), (100, 3), (-7, 0), (5, 4)])
def test_a_power_of_two_changes_nothing(name, exponent, updates):
    """From the very first priorities on, for which there are no statistics yet."""
    found = []
    for factor in (1.0, 2.0**exponent):
        scaling = UNITLESS[name](H)
        layers, rewards = layers_for(scaling), np.float32(factor) * normal(7, 5.0, ROWS)
        errors = [errors for errors, _ in played(scaling, range(updates), factor, layers)]
        errors.append(scaling.errors(rewards[:5], layers[0]()[:5], context(rewards=rewards)))
        found.append([*errors, layers[0]()])
    for plain, large in zip(*found, strict=True):
        np.testing.assert_array_equal(large, plain)


def test_first_large_rewards():
    rewards = np.zeros(ROWS)
    rewards[1, 0] = 1e6
    targets, outputs = tf.constant(rewards[:5], tf.float32), tf.zeros(SHAPE)
    for name in ("return", "error", "cross_head", "return_out", "pop_art, first targets"):
        errors = SCALINGS[name](H).errors(targets, outputs, context(rewards=rewards))
        assert np.abs(errors).max() < 5, name
    seen = ReturnBasedScaling(H)
    seen.observe(episodes.episode(size=1e-3))
    assert np.abs(seen.errors(targets, outputs, context())).max() > 1e7, "sigma_batch would have seen it"


def test_wrong_options():
    for kind, options, complaint in (
        (ErrorBasedScaling, {"step": 1.5}, "step"),
        (PopArt, {"step_size": 0.0}, "step_size"),
        (ReturnBasedScaling, {"half_life": 0}, "half_life"),
        (scalings.HLGauss, {"v_min": 3.0, "v_max": 3.0}, "not tell apart"),
        (scalings.HLGauss, {"v_min": 1e8, "v_max": 1e8 + 1.0}, "not tell apart"),
    ):
        with pytest.raises(ValueError, match=complaint):
            kind(H, **options)
