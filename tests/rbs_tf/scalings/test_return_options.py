"""What return-based scaling can do beside what the paper proposes; all of it is off unless asked for."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from networks.dueling_heads import DuelingHeads
from rbs_tf import ReturnMoments
from rbs_tf.returns import n_step_sums
from rbs_tf.scalings import ErrorContext, ReturnBasedScaling

H = 2
SHAPE = (5, 3, H)
ROWS = (7, 3, H)  # two more for the n-step window


def episode(seed=0, steps=40, size=(1.0, 100.0), offset=(0.0, 0.0)):
    rewards = np.random.default_rng(seed).normal(size=(steps, H)) * size + offset
    discounts = np.full((steps, H), [0.9, 0.99])
    discounts[-1] = 0.0
    return ReturnMoments.from_episode(rewards, discounts)


def context(gaps=None, mask=None, rewards=None):
    gaps = np.zeros(SHAPE) if gaps is None else gaps
    online = np.random.default_rng(9).normal(size=SHAPE)
    return ErrorContext(
        tf.zeros(ROWS) if rewards is None else tf.constant(rewards, tf.float32),
        tf.ones(ROWS),
        tf.ones(ROWS[:2]) if mask is None else tf.constant(mask, tf.float32),
        tf.constant(online, tf.float32),
        tf.constant(online + gaps, tf.float32),
    )


def scales(scaling, batch):
    """What an error is divided by, [H]."""
    return 1.0 / scaling.errors(tf.ones(SHAPE), tf.zeros(SHAPE), batch).numpy()[0, 0]


def head_layers(seed):
    layer = DuelingHeads(H, 4, hidden=3, seed=seed)
    layer(np.zeros((1, 6)))
    return layer


INPUTS = np.random.default_rng(3).normal(size=(20, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "options", [{}, {"target_network_term": True}, {"half_life": 1e300}, {"value_bias": True}]
)
def test_options_without_effect_leave_errors_bit_for_bit(options):
    """Networks that agree, a half-life that never comes, a bias that is not the errors' business."""
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, **options)
    targets, outputs = tf.random.normal(SHAPE, seed=1), tf.random.normal(SHAPE, seed=2)
    for seed in range(3):
        for scaling in (plain, other):
            scaling.observe(episode(seed))
        np.testing.assert_array_equal(
            other.errors(targets, outputs, context()), plain.errors(targets, outputs, context())
        )


def test_by_default_there_is_no_other_state_and_the_heads_are_left_alone():
    scaling = ReturnBasedScaling(H)
    assert {variable.name for variable in scaling.variables} == {"statistics:0", "sigma_v:0"}
    scaling.observe(episode())
    scaling.before_update(None, None)


def test_the_gap_between_the_networks_enters_as_in_the_papers_formula():
    scaling, moments = ReturnBasedScaling(H, target_network_term=True), episode()
    scaling.observe(moments)
    gaps, mask = np.random.default_rng(1).normal(size=SHAPE) * [3.0, 5000.0], np.ones(ROWS[:2])
    mask[3:5, 1] = 0
    gaps[3:5, 1] = 1e9
    counted = gaps[mask[:5] == 1]
    expected = moments.reward_variance + moments.discount_variance * (
        moments.return_mean_square + np.square(counted).mean(axis=0)
    )
    assert (expected > 1.001 * moments.sigma_squared).all()
    np.testing.assert_allclose(scales(scaling, context(gaps, mask)), np.sqrt(expected), rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-2, 6), seed=st.integers(0, 1000))
def test_with_the_gap_the_scale_is_homogeneous_and_never_smaller(exponent, seed):
    factor = 10.0**exponent
    gaps = np.random.default_rng(seed).normal(size=SHAPE) * 30.0
    plain = ReturnBasedScaling(H)
    with_gap, times = (ReturnBasedScaling(H, sigma_v=1e-9, target_network_term=True) for _ in range(2))
    plain.observe(episode(seed))
    with_gap.observe(episode(seed))
    times.observe(episode(seed, size=(factor, 100.0 * factor)))
    # Gaps alone, so that float32 values do not round them.
    batch = context()._replace(online_values=tf.zeros(SHAPE))
    small, large = (batch._replace(target_values=tf.constant(gaps * by, tf.float32)) for by in (1.0, factor))
    np.testing.assert_allclose(scales(times, large), factor * scales(with_gap, small), rtol=1e-5)
    assert (scales(with_gap, small) >= scales(plain, small)).all()


def test_the_floors_still_hold_beside_the_gap():
    scaling = ReturnBasedScaling(H, target_network_term=True)
    np.testing.assert_allclose(scales(scaling, context(np.full(SHAPE, 7.0))), 1e-2, rtol=1e-6)
    rewards = np.zeros(ROWS)
    rewards[1, 0] = 1e6
    assert scales(scaling, context(rewards=rewards)).min() > 1e5
    nothing = context(np.full(SHAPE, 7.0), np.zeros(ROWS[:2]))
    assert np.isfinite(scales(scaling, nothing)).all()


def test_each_heads_values_move_by_its_mean_return_once_in_both_networks():
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    before = [layer(INPUTS).numpy() for layer in layers]
    scaling.observe(ReturnMoments.from_steps(np.full((30, H), -5.0), np.ones((30, H))))
    scaling.before_update(*layers)
    for layer, old in zip(layers, before, strict=True):
        np.testing.assert_array_equal(layer(INPUTS), old, "no return has been seen")
    assert not scaling.biased.numpy().any()

    first = ReturnMoments.from_returns(np.random.default_rng(0).normal(size=(30, H)) + [-1000.0, 3.0])
    for moments in (first, episode(offset=(50.0, -50.0)), episode(1)):
        scaling.observe(moments)
        scaling.before_update(*layers)
        for layer, old in zip(layers, before, strict=True):
            np.testing.assert_allclose(layer(INPUTS) - old, moved(first), atol=1e-3)
    np.testing.assert_array_equal(scaling.summaries()["value_biased"], [1.0, 1.0])


def moved(moments):
    """[20, H, A]"""
    return np.broadcast_to(moments.mean_return[:, None], (len(INPUTS), H, 4))


def test_heads_get_their_bias_each_when_its_own_returns_are_there():
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    before = layers[0](INPUTS).numpy()
    fields = ReturnMoments.from_returns(np.full((3, H), 8.0)).to_array()
    fields[5:, 1] = 0.0
    scaling.observe(ReturnMoments.from_array(fields))
    scaling.before_update(*layers)
    np.testing.assert_array_equal(scaling.biased, [True, False])
    scaling.observe(ReturnMoments.from_returns(np.full((3, H), -4.0)))
    scaling.before_update(*layers)
    np.testing.assert_allclose((layers[0](INPUTS) - before).numpy()[0, :, 0], [8.0, -4.0], rtol=1e-5)


def test_after_a_restart_no_head_gets_its_bias_again(tmp_path):
    scaling, layers = ReturnBasedScaling(H, value_bias=True), [head_layers(0), head_layers(1)]
    scaling.observe(episode(offset=(10.0, 10.0)))
    scaling.before_update(*layers)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnBasedScaling(H, value_bias=True)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    before = layers[0](INPUTS).numpy()
    restored.before_update(*layers)
    np.testing.assert_array_equal(layers[0](INPUTS), before)


def test_statistics_count_half_after_a_half_life():
    scaling, old, new = ReturnBasedScaling(H, half_life=20), episode(0, steps=50), episode(1, steps=20)
    scaling.observe(old)
    scaling.observe(new)
    found = scaling.layer.moments
    np.testing.assert_allclose(found.count, 50 / 2 + 20)
    np.testing.assert_allclose(found.return_count, 50 / 2 + 20)

    # Twice the new beside the old is the same as the new beside half of the old.
    twice = ReturnMoments.merge(new, new)
    expected = ReturnMoments.merge(old, twice)
    for name in ("reward_variance", "discount_variance", "return_mean", "return_mean_square", "sigma"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    half_life=st.floats(0.5, 1e4),
    seed=st.integers(0, 1000),
)
def test_fading_statistics_are_weighted_moments_of_everything(lengths, half_life, seed):
    scaling, rng = ReturnBasedScaling(H, half_life=half_life), np.random.default_rng(seed)
    rewards, weights = [], []
    for steps in lengths:
        rewards.append(rng.normal(size=(steps, H)) * [1.0, 100.0] + [1000.0, 0.0])
        weights = [w * 0.5 ** (steps / half_life) for w in weights] + [np.ones(steps)]
        scaling.observe(ReturnMoments.from_episode(rewards[-1], np.zeros((steps, H))))
    everything, share = np.concatenate(rewards), np.concatenate(weights)
    mean = np.average(everything, axis=0, weights=share)
    variance = np.average(np.square(everything - mean), axis=0, weights=share)
    moments = scaling.layer.moments
    np.testing.assert_allclose(moments.count, share.sum(), rtol=1e-9)
    np.testing.assert_allclose(moments.reward_variance, variance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        moments.return_mean_square, np.average(np.square(everything), axis=0, weights=share), rtol=1e-9
    )


def test_returns_that_come_after_their_steps_do_not_age_anything():
    scaling = ReturnBasedScaling(H, half_life=1.0)
    scaling.observe(episode())
    before = scaling.layer.moments.count.numpy()
    scaling.observe(ReturnMoments.from_returns(np.ones((9, H))))
    np.testing.assert_array_equal(scaling.layer.moments.count, before)


def test_a_change_of_rewards_is_followed_and_without_half_life_remembered():
    tracking, all_time = ReturnBasedScaling(H, half_life=100), ReturnBasedScaling(H)
    for scaling in (tracking, all_time):
        for seed in range(20):
            scaling.observe(episode(seed, size=(1000.0, 1000.0)))
        for seed in range(60):
            scaling.observe(episode(seed, size=(1.0, 1.0)))
    assert (tracking.layer.sigma.numpy() < 5).all()
    assert (all_time.layer.sigma.numpy() > 400).all()


def test_a_half_life_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="half_life is a number of environment steps above 0"):
        ReturnBasedScaling(H, half_life=0)


def test_xla_equals_eager_with_all_options_on():
    gaps = np.random.default_rng(4).normal(size=SHAPE) * 50.0
    targets, outputs = tf.random.normal(SHAPE, seed=1), tf.random.normal(SHAPE, seed=2)
    found = []
    for jit_compile in (False, True):
        scaling = ReturnBasedScaling(H, target_network_term=True, value_bias=True, half_life=30, n_step=True)
        layers = [head_layers(0), head_layers(1)]

        @tf.function(jit_compile=jit_compile)
        def step(scaling=scaling, layers=layers):
            scaling.before_update(*layers)
            return scaling.errors(targets, outputs, context(gaps)._replace(n_step=3))

        for seed in range(2):
            observe(scaling, *some_steps(seed), n=3)
        found.append((step(), layers[0](INPUTS), layers[1](INPUTS)))
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-5)


def observe(scaling, rewards, discounts, n):
    """One episode, [T, H] each, as the agent hands it on."""
    n_step = ReturnMoments.from_steps(*n_step_sums(rewards, discounts, n))
    scaling.observe(ReturnMoments.from_episode(rewards, discounts), n_step=n_step)


def some_steps(seed=0, steps=40, gammas=(0.9, 0.99)):
    rewards = np.random.default_rng(seed).normal(size=(steps, H)) * [1.0, 100.0] + [0.0, 9.0]
    discounts = np.full((steps, H), gammas)
    discounts[-1] = 0.0
    return rewards, discounts


def n_step_sigma(rewards, discounts, n):
    """sqrt(V[R^(n)] + V[gamma^(n)] E[G^2]) of one head's episode [T], term by term."""
    t, steps = np.arange(len(rewards)), len(rewards)
    weights = [np.prod(discounts[i:j]) for i in t for j in t]
    weights = np.triu(np.reshape(weights, (steps, steps)))  # what step j counts for in the return of step i
    near = np.tril(weights, n - 1)
    products = [np.prod(discounts[i : i + n]) for i in t]
    return np.sqrt(np.var(near @ rewards) + np.var(products) * np.mean((weights @ rewards) ** 2))


def test_n_step_statistics_on_the_reference_sequence_of_the_paper():
    reference = np.sin(2 * np.pi * np.arange(100) / 50)
    rewards, discounts = np.stack([reference, reference + 1.0], axis=1), np.full((100, H), 0.97)
    discounts[-1] = 0.0
    scaling = ReturnBasedScaling(H, n_step=True)
    observe(scaling, rewards, discounts, n=5)
    expected = [n_step_sigma(rewards[:, head], discounts[:, head], 5) for head in range(H)]
    assert 0.938559 * 3 < expected[0] < 0.938559 * 5  # this smooth one adds up almost fully
    np.testing.assert_allclose(scaling.layer.sigma, expected, rtol=1e-12)
    np.testing.assert_allclose(scales(scaling, context()._replace(n_step=5)), expected, rtol=1e-6)


def test_n_step_statistics_of_the_batch_are_a_floor_as_well():
    scaling, rewards = ReturnBasedScaling(H, n_step=True), np.random.default_rng(5).normal(size=ROWS)
    mask = np.ones(ROWS[:2])
    mask[4:, 1] = 0
    batch = context(rewards=rewards, mask=mask)._replace(n_step=3)
    sums, products, returns = [], [], []
    for length, stretch in zip((7, 4, 7), rewards.astype(np.float32).swapaxes(0, 1), strict=True):
        returns += [stretch[t:length].sum(axis=0) for t in range(length)]
        # Transitions of the last two rows are incomplete, wherever the padding begins.
        for t in range(min(length, 5)):
            sums.append(stretch[t : min(t + 3, length)].sum(axis=0))
            products.append(1.0)
    expected = np.sqrt(np.var(sums, axis=0) + np.var(products) * np.mean(np.square(returns), axis=0))
    np.testing.assert_allclose(scales(scaling, batch), expected, rtol=1e-5)
    plain = ReturnBasedScaling(H)
    np.testing.assert_array_equal(scales(plain, batch), scales(plain, batch._replace(n_step=1)))


@settings(max_examples=25, deadline=None)
@given(exponent=st.integers(-2, 6), seed=st.integers(0, 1000), n=st.integers(1, 10))
def test_with_n_step_statistics_the_scale_is_homogeneous(exponent, seed, n):
    factor = 10.0**exponent
    rewards, discounts = some_steps(seed)
    in_batch = np.random.default_rng(seed).normal(size=ROWS) * [100.0, 1.0]
    found = []
    for by in (1.0, factor):
        scaling = ReturnBasedScaling(H, sigma_v=1e-9, n_step=True)
        observe(scaling, by * rewards, discounts, n)
        found.append(scales(scaling, context(rewards=by * in_batch)._replace(n_step=n)))
    np.testing.assert_allclose(found[1], factor * found[0], rtol=1e-5)


def test_n_step_statistics_of_one_step_leave_errors_bit_for_bit():
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, n_step=True)
    targets, outputs = tf.random.normal(SHAPE, seed=1), tf.random.normal(SHAPE, seed=2)
    for seed, size in ((0, 1.0), (1, 1e4)):
        for scaling in (plain, other):
            observe(scaling, *some_steps(seed), n=1)
        batch = context(rewards=size * np.random.default_rng(seed).normal(size=ROWS))
        np.testing.assert_array_equal(
            other.errors(targets, outputs, batch), plain.errors(targets, outputs, batch)
        )


def test_heads_without_a_future_keep_their_scale_and_the_others_scale_grows():
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, n_step=True)
    for scaling in (plain, other):
        observe(scaling, *some_steps(gammas=(0.0, 0.9)), n=5)
    ratio = (other.layer.sigma / plain.layer.sigma).numpy()
    assert ratio[0] == 1.0 and 1.3 < ratio[1] < 2.5
    in_batch = context(rewards=1e6 * np.random.default_rng(3).normal(size=ROWS))
    in_batch = in_batch._replace(n_step=5, discounts=tf.ones(ROWS) * [0.0, 0.9])
    ratio = scales(other, in_batch) / scales(plain, in_batch)
    # The batch's incomplete transitions do not count, not even for heads that need no more than their first step.
    assert 0.8 < ratio[0] < 1.2 and 1.3 < ratio[1] < 2.5


def test_a_gap_between_the_networks_counts_by_the_spread_of_n_step_discounts():
    scaling, (rewards, discounts) = ReturnBasedScaling(H, target_network_term=True, n_step=True), some_steps()
    observe(scaling, rewards, discounts, n=5)
    gaps = np.full(SHAPE, 500.0)
    spread = np.var(n_step_sums(rewards, discounts, 5)[1], axis=0)
    expected = np.sqrt(
        np.square([n_step_sigma(rewards[:, h], discounts[:, h], 5) for h in range(H)]) + spread * 500.0**2
    )
    np.testing.assert_allclose(scales(scaling, context(gaps)._replace(n_step=5)), expected, rtol=1e-5)


def test_n_step_statistics_age_by_environment_steps_and_returns_and_bias_are_what_they_were():
    plain, other = (
        ReturnBasedScaling(H, value_bias=True, half_life=20, n_step=n_step) for n_step in (False, True)
    )
    old, new = some_steps(0, steps=50), some_steps(1, steps=20)
    for scaling in (plain, other):
        observe(scaling, *old, n=5)
        late = ReturnMoments.from_steps(*(column[:16] for column in n_step_sums(*new, 5)))
        scaling.observe(ReturnMoments.from_episode(*new), n_step=late)
        scaling.before_update(head_layers(0), head_layers(1))
    np.testing.assert_allclose(other.layer.moments.count, 50 / 2 + 16)
    np.testing.assert_array_equal(other.biased, [True, True])
    np.testing.assert_array_equal(other.layer.statistics[5:], plain.layer.statistics[5:])


def test_n_step_statistics_survive_a_restart_and_are_asked_for(tmp_path):
    scaling = ReturnBasedScaling(H, n_step=True)
    observe(scaling, *some_steps(), n=5)
    path = tf.train.Checkpoint(scaling=scaling).write(str(tmp_path / "scaling"))
    restored = ReturnBasedScaling(H, n_step=True)
    tf.train.Checkpoint(scaling=restored).read(path).assert_consumed()
    for each in (scaling, restored):
        observe(each, *some_steps(1), n=5)
    np.testing.assert_array_equal(restored.layer.statistics, scaling.layer.statistics)
    with pytest.raises(ValueError, match=r"n_step needs the moments of n-step transitions; write observe"):
        restored.observe(episode())
    np.testing.assert_array_equal(restored.layer.statistics, scaling.layer.statistics)


def divisors(scaling, errors, batch):
    """What such errors, float [T', B, H], are divided by: [H]."""
    scaled = scaling.errors(tf.constant(errors, tf.float32), tf.zeros(errors.shape), batch).numpy()
    return errors[0, 0] / scaled[0, 0]


@pytest.mark.parametrize("reward", [-1.0, 7.0])
@pytest.mark.parametrize("learned", [0.0, 0.75, 1.0, 3.0])
def test_rewards_that_never_vary_are_scaled_by_the_mean_error(reward, learned):
    """As in Skiing: no episode has ended, and the head of gamma 0 would wait for such an end in vain."""
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, mean_error=True)
    for scaling in (plain, other):
        scaling.observe(ReturnMoments.from_steps(np.full((40, H), reward), np.full((40, H), [0.0, 0.9])))
        np.testing.assert_array_equal(scaling.layer.sigma, [0.0, 0.0])
    batch = context(rewards=np.full(ROWS, reward))._replace(discounts=tf.ones(ROWS) * [0.0, 0.9])
    targets, outputs = tf.fill(SHAPE, reward), tf.fill(SHAPE, learned * reward)
    offset = (1.0 - learned) * reward
    np.testing.assert_allclose(plain.errors(targets, outputs, batch), np.full(SHAPE, 100.0 * offset))
    np.testing.assert_array_equal(other.errors(targets, outputs, batch), np.full(SHAPE, np.sign(offset)))


def test_the_mean_error_is_that_of_the_errors_own_real_steps():
    scaling, mask = ReturnBasedScaling(H, mean_error=True), np.ones(ROWS[:2])
    errors = np.random.default_rng(1).normal(size=SHAPE) + [3.0, -400.0]
    mask[3:, 1] = 0
    errors[3:, 1] = [np.nan, 1e9]
    expected = np.abs(errors[mask[:5] == 1].mean(axis=0))
    np.testing.assert_allclose(divisors(scaling, errors, context(mask=mask)), expected, rtol=1e-6)
    nothing = scaling.errors(tf.ones(SHAPE), tf.zeros(SHAPE), context(mask=np.zeros(ROWS[:2])))
    np.testing.assert_allclose(nothing, np.full(SHAPE, 100.0))


@pytest.mark.parametrize("options", [{}, {"target_network_term": True}, {"n_step": True}, {"half_life": 20}])
@pytest.mark.parametrize("offset", [0.1, 1e5])
def test_the_mean_error_is_one_more_lower_bound_whatever_else_counts(options, offset):
    plain, other = ReturnBasedScaling(H, **options), ReturnBasedScaling(H, **options, mean_error=True)
    rng = np.random.default_rng(2)
    gaps, errors = rng.normal(size=SHAPE) * 50.0, rng.normal(size=SHAPE) + [offset, -1.0]
    batch = context(gaps, rewards=rng.normal(size=ROWS))._replace(n_step=3)
    for scaling in (plain, other):
        observe(scaling, *some_steps(), n=3)
    bounds = divisors(plain, errors, batch), np.abs(errors.mean(axis=(0, 1)))
    assert (bounds[0] < bounds[1]).tolist() == [offset > 1.0, False]
    np.testing.assert_allclose(divisors(other, errors, batch), np.maximum(*bounds), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(exponent=st.integers(-2, 6), seed=st.integers(0, 1000))
def test_with_the_mean_error_the_scale_is_homogeneous(exponent, seed):
    factor, rng = 10.0**exponent, np.random.default_rng(seed)
    errors, in_batch = rng.normal(size=SHAPE) + [30.0, 0.0], rng.normal(size=ROWS)
    found = []
    for by in (1.0, factor):
        scaling = ReturnBasedScaling(H, sigma_v=1e-9, mean_error=True)
        scaling.observe(episode(seed, size=(by, 100.0 * by)))
        found.append(divisors(scaling, by * errors, context(rewards=by * in_batch)))
    np.testing.assert_allclose(found[1], factor * found[0], rtol=1e-5)


def test_no_gradient_flows_through_the_mean_error():
    scaling, outputs = ReturnBasedScaling(H, mean_error=True), tf.Variable(tf.random.normal(SHAPE, seed=2))
    with tf.GradientTape() as tape:
        errors = scaling.errors(tf.fill(SHAPE, 50.0), outputs, context())
    expected = -1.0 / np.abs(np.mean(50.0 - outputs.numpy(), axis=(0, 1)))
    np.testing.assert_allclose(tape.gradient(errors, outputs), np.broadcast_to(expected, SHAPE), rtol=1e-5)


def test_errors_without_a_mean_are_left_bit_for_bit():
    plain, other = ReturnBasedScaling(H), ReturnBasedScaling(H, mean_error=True)
    errors = np.random.default_rng(5).normal(size=SHAPE).astype(np.float32) * 1e6
    errors[:, 1], errors[:, 2] = -errors[:, 0], 0.0
    for seed in range(3):
        found = [s.errors(tf.constant(errors), tf.zeros(SHAPE), context()) for s in (plain, other)]
        np.testing.assert_array_equal(*found)
        for scaling in (plain, other):
            scaling.observe(episode(seed))


def test_xla_equals_eager_with_the_mean_error():
    scaling = ReturnBasedScaling(H, mean_error=True)
    scaling.observe(episode())
    targets, mask = tf.random.normal(SHAPE, 5.0, seed=1), np.ones(ROWS[:2])
    mask[2:, 0] = 0
    arguments = targets * [1.0, 1e4], tf.zeros(SHAPE), context(mask=mask)
    eager, compiled = scaling.errors(*arguments), tf.function(scaling.errors, jit_compile=True)(*arguments)
    assert (divisors(scaling, arguments[0].numpy(), arguments[-1]) > scaling.layer.sigma.numpy()).all()
    np.testing.assert_allclose(compiled, eager, rtol=1e-6)
