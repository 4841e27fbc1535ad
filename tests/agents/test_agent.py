"""The whole update against NumPy in float64, and what the method promises about it."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from agents.heads import Heads
from agents.scalings import HLGauss, PopArt, ReturnBasedScaling, ReturnOut, Scaling
from agents.storage.weights import assign, pack
from networks import loss_behind_torsos
from networks.loss_behind_torsos import choose_compiled
from rbs_tf import ReturnMoments
from tests.agents import numpy_step
from tests.agents.small_agent import (
    PAIRS,
    SHAPE,
    as_sequence,
    make_agent,
    measure_sigma_v,
    observe_rewards,
    parameters,
    random_windows,
    shaken,
    some_moments,
    unchanged,
)


def measured(**options):
    """An agent that has seen its first batch, and windows to learn from."""
    agent = shaken(**options)
    windows = random_windows(shape=agent.shape)
    sequence = as_sequence(windows)
    measure_sigma_v(agent, sequence)
    return agent, windows, sequence


@pytest.mark.parametrize(
    "double_q, burn_in, reward_input", [(False, 2, "clip"), (True, 2, "rms"), (False, 0, "clip")]
)
def test_loss_priorities_and_gradients_equal_numpy_in_float64(double_q, burn_in, reward_input):
    shape = dataclasses.replace(SHAPE, burn_in=burn_in)
    agent, windows, sequence = measured(double_q=double_q, shape=shape, reward_input=reward_input)
    with tf.GradientTape() as tape:
        info = agent.loss(sequence)
    variables, p = parameters(agent.network)
    _, target_p = parameters(agent.target_network)
    if reward_input == "rms":  # of an unclipped head's rewards so far; both networks see the same
        rewards = np.random.default_rng(3).normal(size=(30, len(PAIRS)))[:, 1]
        p["reward_rms"] = target_p["reward_rms"] = np.sqrt(np.mean(np.square(rewards)))
    gradients = tape.gradient(info.loss, list(variables.values()))

    sigma, sigma_v = agent.scaling.layer.sigma.numpy(), agent.scaling.layer.sigma_v.numpy()
    states = numpy_step.burned_in_states(p, windows, shape)

    def loss(weights):
        return numpy_step.step(
            weights, target_p, windows, states, PAIRS, shape, sigma, sigma_v, double_q=double_q
        )

    expected, priorities, scaled, _ = loss(p)
    assert float(info.loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(info.extra.priorities, priorities, rtol=1e-5)
    got = tf.transpose(agent.sequence_errors(sequence).errors, (1, 0, 2))
    np.testing.assert_allclose(got, scaled, rtol=1e-4, atol=1e-5)

    shared = {"torso_w", "torso_b", "lstm_x", "lstm_h", "lstm_b", "post_w", "post_b"}
    rng = np.random.default_rng(6)
    for name, gradient in zip(variables, gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy().astype(np.float64)
        for _ in range(4):  # directions
            along = rng.choice([-1e-6, 1e-6], p[name].shape)
            up, down = (loss(p | {name: p[name] + sign * along})[0] for sign in (1, -1))
            numerical = (up - down) / (np.sqrt(len(PAIRS)) if name in shared else 1.0)
            size = np.abs(gradient * along).sum()
            np.testing.assert_allclose(
                2 * np.sum(gradient * along), numerical, atol=1e-3 * size, err_msg=name
            )


def test_the_inputs_statistics_are_in_the_environments_units_and_reach_what_acts():
    heads, rewards = Heads(PAIRS, reward_multiplier=1000.0), np.array([0.0, 0.5, -2.0, 0.0])
    agent, other = (make_agent(seed=seed, reward_input="rms") for seed in (1, 2))
    agent.heads = heads
    agent.observe(ReturnMoments.from_steps(heads.rewards(rewards), heads.discounts(np.ones(4))))
    statistics = agent.network.reward_input.statistics
    np.testing.assert_allclose(statistics, [4.0, np.mean(np.square(rewards))], rtol=1e-12)
    assign(other.acting_variables, pack(agent.acting_variables))
    np.testing.assert_array_equal(other.network.reward_input.statistics, statistics)
    time_step = ts.TimeStep(
        *map(
            tf.constant,
            (np.zeros(1, np.int32), np.float32([8]), np.ones(1, np.float32), np.ones((1, 4), np.float32)),
        )
    )
    acted = other.collect_policy.action(time_step, other.collect_policy.get_initial_state(1)).info
    _, p = parameters(other.network)
    p["reward_rms"] = np.sqrt(np.mean(np.square(rewards)))
    values, _, _ = numpy_step.unroll(p, np.ones((1, 4)), [-1], [8.0], [0], np.zeros(4), np.zeros(4))
    np.testing.assert_allclose(acted.greedy_values[0], values[0].max(axis=-1), rtol=1e-5)
    with pytest.raises(ValueError, match="Heads.pairs has none"):
        make_agent(pairs=((0.9, True), (0.0, True)), reward_input="rms")


def test_two_training_steps_equal_numpy(adam_epsilon=1e-2):
    """`train`'s own loss, weights of importance, priorities and steps of Adam."""
    agent, windows, sequence = measured(learning_rate=1e-3, adam_epsilon=adam_epsilon)
    sigma, sigma_v = agent.scaling.layer.sigma.numpy(), agent.scaling.layer.sigma_v.numpy()
    for variable in agent.optimizer.variables:
        if "learning_rate" not in variable.name:
            variable.assign(tf.zeros_like(variable))
    _, target_p = parameters(agent.target_network)
    variables = agent.network.trainable_variables
    mean, square = ([np.zeros(v.shape) for v in variables] for _ in range(2))
    for step in (1, 2):
        with tf.GradientTape() as tape:
            loss = agent.loss(sequence).loss
        gradients = [
            tf.convert_to_tensor(g).numpy().astype(np.float64) for g in tape.gradient(loss, variables)
        ]
        weights = [variable.numpy().astype(np.float64) for variable in variables]
        _, p = parameters(agent.network)
        states = numpy_step.burned_in_states(p, windows, SHAPE)
        expected, priorities, *_ = numpy_step.step(p, target_p, windows, states, PAIRS, SHAPE, sigma, sigma_v)
        info = agent.train(sequence)
        assert float(info.loss) == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(info.extra.priorities, priorities, rtol=1e-5)
        rate = 1e-3 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for index, gradient in enumerate(gradients):
            mean[index] += 0.1 * (gradient - mean[index])
            square[index] += 0.001 * (gradient**2 - square[index])
            # Keras adds epsilon before the bias is corrected.
            moved = rate * mean[index] / (np.sqrt(square[index]) + adam_epsilon)
            np.testing.assert_allclose(variables[index], weights[index] - moved, rtol=1e-6, atol=3e-7)


def test_a_loss_that_is_only_looked_at_changes_nothing():
    agent, fresh = make_agent(), make_agent()
    for each in (agent, fresh):
        each.observe(some_moments())
    first, other = as_sequence(random_windows()), as_sequence(random_windows(seed=9))
    with unchanged(agent.variables):
        agent.loss(first)
        agent.sequence_errors(first)
    agent.train(other)
    fresh.train(other)
    np.testing.assert_array_equal(agent.scaling.layer.sigma_v, fresh.scaling.layer.sigma_v)


def test_sigma_v_is_the_spread_of_each_heads_values_on_the_first_batch():
    agent = make_agent()
    agent.observe(some_moments())
    windows = random_windows()
    agent.train(as_sequence(windows))
    _, p = parameters(make_agent().network)
    states = numpy_step.burned_in_states(p, windows, SHAPE)
    values = []
    for s in range(4):
        rows = slice(SHAPE.burn_in, SHAPE.burn_in + SHAPE.length)
        columns = [windows[n][s][rows] for n in ("observation", "previous_action", "reward", "step_type")]
        greedy = numpy_step.unroll(p, *columns, *states[s])[0].max(axis=-1)
        values.append(greedy[columns[-1] != 2])
    np.testing.assert_allclose(agent.scaling.layer.sigma_v, np.concatenate(values).std(axis=0), rtol=1e-4)
    before = agent.scaling.layer.sigma_v.numpy()
    agent.train(as_sequence(random_windows(seed=9)))
    np.testing.assert_array_equal(agent.scaling.layer.sigma_v, before)


def test_no_gradient_flows_through_the_burn_in():
    agent = make_agent()
    sequence = as_sequence(random_windows())
    with tf.GradientTape() as tape:
        tape.watch(sequence.core_state)
        tape.watch(sequence.steps.observation)
        loss = agent.loss(sequence).loss
    state_gradients, observed = tape.gradient(loss, (sequence.core_state, sequence.steps.observation))
    assert state_gradients == (None, None)
    observed = tf.convert_to_tensor(observed).numpy()
    assert not observed[:, : SHAPE.burn_in].any()
    assert observed[0, SHAPE.burn_in].any()


def test_what_stands_in_padding_changes_nothing():
    agent = make_agent()
    windows = random_windows()
    plain = agent.loss(as_sequence(windows))
    garbage = {name: values.copy() for name, values in windows.items()}
    final_row = SHAPE.burn_in + 2  # of sequence 2; what follows is padding
    for name in ("observation", "reward", "discount"):
        garbage[name][2, final_row + 1 :] = 1e6
        garbage[name][1, : SHAPE.burn_in] = -1e6
    garbage["observation"][2, final_row] = -1e6  # a terminal observation is not bootstrapped from
    variables = agent.network.trainable_variables
    gradients = []
    for version in (windows, garbage):
        with tf.GradientTape() as tape:
            info = agent.loss(as_sequence(version))
        assert float(info.loss) == float(plain.loss)
        np.testing.assert_array_equal(info.extra.priorities, plain.extra.priorities)
        gradients.append(tape.gradient(info.loss, variables))
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_array_equal(a, b)


def shared_gradient_norms(agent, windows):
    """Norm of each head's own gradient in the weights that all heads share: float32 [H]."""
    with tf.GradientTape(persistent=True) as tape:
        losses = tf.reduce_sum(agent.sequence_errors(windows).losses, axis=(0, 1))
    shared = agent.network.trainable_variables[: -len(agent.network.heads.trainable_variables)]
    gradients = tape.jacobian(losses, shared, experimental_use_pfor=False)
    squares = [tf.reduce_sum(tf.square(g), axis=tuple(range(1, len(g.shape)))) for g in gradients]
    return tf.sqrt(tf.add_n(squares)).numpy()


def test_scaling_balances_the_heads_in_the_shared_gradient():
    """Rewards times 100, values grown to that size: unscaled, the unclipped heads own the torso; scaled, nobody."""
    shares = {}
    for scaling in (Scaling, ReturnBasedScaling):
        agent = make_agent(Heads().pairs, scaling)
        unclipped = np.array([not clip for _, clip in agent.heads.pairs])
        for network in (agent.network, agent.target_network):
            network.heads.rescale_outputs(np.where(unclipped, 100.0, 1.0), np.zeros(10))
        windows = random_windows(reward_scale=100.0)
        observe_rewards(agent, windows)
        sequence = as_sequence(windows)
        measure_sigma_v(agent, sequence)
        norms = shared_gradient_norms(agent, sequence)
        shares[scaling] = norms[unclipped].sum() / norms.sum()
        largest = norms.max() / norms.sum()
    assert shares[Scaling] > 0.999
    assert 0.25 < shares[ReturnBasedScaling] < 0.75
    assert largest < 0.4


def test_means_for_tensorboard_are_of_real_steps_in_the_units_of_their_update():
    """Pop-Art's 0 is another value than 0 in padding, and its units change with the update."""
    agent = make_agent(scaling=functools.partial(PopArt, step_size=0.5))
    agent.scaling.online.shift.assign([1.0, 2.0, 3.0])
    sequence = as_sequence(random_windows())
    result = agent.sequence_errors(sequence)
    per_head = agent.train(sequence).extra.per_head
    real = result.mask.numpy().astype(bool)
    assert not real.all() and agent.scaling.online.shift.numpy()[0] != 1.0
    values, targets = result.outputs.numpy() + [1.0, 2.0, 3.0], result.targets.numpy()
    np.testing.assert_allclose(per_head["value"], values[real].mean(axis=0), rtol=1e-5)
    unscaled = np.sqrt(np.square(targets - values)[real].mean(axis=0))
    np.testing.assert_allclose(per_head["td_error/unscaled"], unscaled, rtol=1e-5)


def test_the_target_network_is_replaced_every_period():
    agent = make_agent(target_update_period=3)
    agent.observe(some_moments())
    sequence = as_sequence(random_windows())
    initial = [variable.numpy() for variable in agent.target_network.variables]
    for update in (1, 2, 3):
        agent.train(sequence)
        same, kept = (
            all(np.array_equal(a, b) for a, b in zip(those, agent.target_network.variables, strict=True))
            for those in (agent.network.variables, initial)
        )
        assert (same, kept) == ((True, False) if update == 3 else (False, True))


def test_by_default_a_gpu_compiles_all_and_a_cpu_what_is_behind_the_torso_of_small_cores(monkeypatch):
    network, strategy = make_agent().network, tf.distribute.get_strategy()
    for kinds, expected in (
        (["CPU"], "behind_torso"),
        (["CPU", "GPU"], "update"),
        (["CPU", "TPU"], "nothing"),
    ):
        devices = [tf.config.LogicalDevice(f"/device:{kind}:0", kind) for kind in kinds]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda devices=devices: devices)
        assert choose_compiled(network, None, strategy) == expected
        assert choose_compiled(network, None, tf.distribute.OneDeviceStrategy("/cpu:0")) == "nothing"
    monkeypatch.undo()
    monkeypatch.setattr(loss_behind_torsos, "MOST_COMPILED_UNITS", 3)
    assert choose_compiled(network, None, strategy) == "nothing"


@pytest.mark.parametrize(
    "scaling, jit_compile",
    [
        (functools.partial(PopArt, start_at_first_targets=True), True),
        pytest.param(HLGauss, None, marks=pytest.mark.slow),
    ],
)
def test_the_update_compiles_with_xla_to_the_same_numbers(scaling, jit_compile):
    plain, compiled = (
        make_agent(jit_compile=jit, scaling=scaling, double_q=True) for jit in (False, jit_compile)
    )
    for seed in range(3):
        windows = random_windows(seed, reward_scale=10.0**seed)
        for agent in (plain, compiled):
            observe_rewards(agent, windows)
        a, b = (agent.train(as_sequence(windows)) for agent in (plain, compiled))
        np.testing.assert_allclose(b.loss, a.loss, rtol=1e-4)
        np.testing.assert_allclose(b.extra.priorities, a.extra.priorities, rtol=1e-4)
    for a, b in zip(plain.network.variables, compiled.network.variables, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5)


def test_compiling_in_part_and_ahead_changes_nothing_and_serves_the_first_update():
    agent, other = (make_agent(jit_compile=jit, scaling=ReturnOut) for jit in (None, False))
    sequence, train = as_sequence(random_windows()), tf.function(agent.train)
    with unchanged(agent.variables):
        agent.compile_ahead(batch_size=4)
        other.compile_ahead(batch_size=2**40)  # there is nothing to compile: no batch is made
    for each in (agent, other):
        each.observe(some_moments())
    for _ in range(3):
        np.testing.assert_allclose(train(sequence).loss, other.train(sequence).loss, rtol=1e-5)
    assert agent._td_loss._behind_torsos.experimental_get_tracing_count() == 1
    for a, b in zip(agent.network.variables, other.network.variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
