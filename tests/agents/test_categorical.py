"""The whole agent with heads that put out distributions."""

import numpy as np
import pytest
import tensorflow as tf

from agents.agent import RecurrentMultiHeadAgent
from agents.scalings import HLGauss, Scaling, TwoHot
from tests.agents.scalings.test_categorical import expected_projection, softmax
from tests.agents.small_agent import (
    ACTIONS,
    PAIRS,
    SHAPE,
    as_sequence,
    make_agent,
    outputs_of,
    random_windows,
    shaken,
)

LAST = 2


def logits_of(network, sequence):
    """float64 [B, L, H, A, K]"""
    return outputs_of(network, sequence).numpy().astype(np.float64)


def values_of(agent, sequence, target=False):
    """float64 [B, L, H, A], reward units"""
    network = agent.target_network if target else agent.network
    return softmax(logits_of(network, sequence)) @ agent.scaling.support.astype(np.float64)


def in_numpy(agent, windows, double_q, eta=0.9, beta=0.6):
    """loss, priorities [B], mean losses [H] in loops. The network's outputs are TensorFlow's."""
    sequence = as_sequence(windows)
    logits, values = logits_of(agent.network, sequence), values_of(agent, sequence)
    target_values = values_of(agent, sequence, target=True)
    scaling = agent.scaling
    losses = np.zeros((4, SHAPE.length, len(PAIRS)))
    errors, mask = np.zeros_like(losses), np.zeros((4, SHAPE.length))
    valid = windows["step_type"] != LAST
    for s in range(4):
        for t in range(SHAPE.burn_in, SHAPE.burn_in + SHAPE.length):
            if not valid[s, t]:
                continue
            action = windows["previous_action"][s, t + 1]
            mask[s, t - SHAPE.burn_in] = 1.0
            for k, (discount, clip) in enumerate(PAIRS):
                target, weight, row = 0.0, 1.0, t
                while row < t + SHAPE.n_step and valid[s, row]:
                    reward = float(windows["reward"][s, row + 1])
                    target += weight * (np.clip(reward, -1, 1) if clip else reward)
                    weight *= discount * windows["discount"][s, row + 1]
                    row += 1
                choice = (values if double_q else target_values)[s, row, k].argmax()
                target += weight * target_values[s, row, k, choice]
                wanted = expected_projection(type(scaling), target)
                log_probabilities = np.log(softmax(logits[s, t, k, action]))
                losses[s, t - SHAPE.burn_in, k] = -(wanted * log_probabilities).sum()
                value = values[s, t, k, action]
                if isinstance(scaling, TwoHot):
                    target, value = (np.sign(x) * np.log1p(abs(x)) for x in (target, value))
                errors[s, t - SHAPE.burn_in, k] = target - value
    weights = (windows["table_size"] * windows["probability"]) ** -beta
    weights = weights / weights.max()
    loss = (losses.sum(axis=-1) * weights[:, None]).sum() / (4 * SHAPE.length)
    per_step = np.abs(errors).mean(axis=-1)
    priorities = eta * per_step.max(axis=1) + (1 - eta) * per_step.sum(axis=1) / mask.sum(axis=1)
    return loss, priorities, losses.sum(axis=(0, 1)) / mask.sum(), errors


@pytest.mark.parametrize("scaling, double_q", [(TwoHot, False), (TwoHot, True), (HLGauss, True)])
def test_loss_priorities_and_diagnostics_equal_numpy_in_float64(scaling, double_q):
    agent, windows = shaken(scaling=scaling, double_q=double_q), random_windows()
    windows["step_type"][1, : SHAPE.burn_in] = 1  # the reference unrolls from the window's first row
    info = agent.loss(as_sequence(windows))
    loss, priorities, per_head, errors = in_numpy(agent, windows, double_q)
    assert float(info.loss) == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(info.extra.priorities, priorities, rtol=1e-4)
    np.testing.assert_allclose(info.extra.per_head["loss"], per_head, rtol=1e-4)
    scaled = np.sqrt(np.square(errors).sum(axis=(0, 1)) / (errors[..., 0] != 0).sum())
    np.testing.assert_allclose(info.extra.per_head["td_error/scaled"], scaled, rtol=1e-4)


def test_gradients_reach_everything_but_the_logits_of_other_actions():
    agent, windows = shaken(scaling=TwoHot), random_windows()
    windows["previous_action"][:] = 1
    with tf.GradientTape() as tape:
        loss = agent.loss(as_sequence(windows)).loss
    heads = agent.network.heads
    variables = agent.network.trainable_variables
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)]
    assert all(np.isfinite(g).all() and g.any() for g in gradients)
    (of_ba,) = (g for g, v in zip(gradients, variables, strict=True) if v is heads.ba)
    taken, *others = np.moveaxis(of_ba.reshape(len(PAIRS), ACTIONS, -1), 1, 0)[[1, 0, 2]]
    for other in others:  # only by way of the mean that the advantages lose
        np.testing.assert_allclose(other, -taken / 2.0, atol=1e-6)


def test_the_policy_goes_by_decoded_values_and_first_priorities_are_the_learners():
    agent, windows = shaken(scaling=TwoHot), random_windows()
    agent.scaling.target_updated()
    for target, online in zip(agent.target_network.variables, agent.network.variables, strict=True):
        target.assign(online)
    sequence = as_sequence(windows)
    steps, state = sequence.steps, agent.policy.get_initial_state(4)
    agent.policy.head_probabilities.assign([0.0, 0.0, 1.0])
    time_step = agent.time_step_spec._replace(
        step_type=tf.zeros(4, tf.int32),
        reward=tf.zeros(4),
        discount=tf.ones(4),
        observation=steps.observation[:, 0],
    )
    step = agent.policy.action(time_step, state)
    begun = {name: windows[name].copy() for name in ("step_type", "previous_action", "reward")}
    for name, before in (("step_type", 0), ("previous_action", -1), ("reward", 0.0)):
        begun[name][:, 0] = before
    values = values_of(agent, as_sequence(windows | begun))[:, 0]
    np.testing.assert_array_equal(step.action, values[:, 2].argmax(axis=-1))
    np.testing.assert_allclose(agent.scaling.values(step.info.greedy_values), values.max(axis=-1), rtol=1e-4)

    values = agent.scaling.decode(outputs_of(agent.network, sequence))
    taken = tf.one_hot(tf.roll(steps.previous_action, -1, axis=1), ACTIONS)
    taken_values = tf.reduce_sum(values * taken[:, :, None], axis=-1)
    found = agent.initial_priorities(
        steps._replace(observation=None), taken_values, tf.reduce_max(values, axis=-1)
    )
    np.testing.assert_allclose(found, agent.loss(sequence).extra.priorities, rtol=1e-4)


def test_a_network_with_other_outputs_is_refused():
    agent = make_agent(scaling=Scaling)
    parts = agent.time_step_spec, agent.action_spec, agent.network.copy(name="unused")
    with pytest.raises(
        ValueError,
        match=r"outputs_per_action=1, and the agent needs .*outputs_per_action=255",
    ):
        RecurrentMultiHeadAgent(*parts, heads=agent.heads, scaling=TwoHot, shape=SHAPE)
