"""The whole agent with heads that put out distributions."""

import numpy as np
import pytest
import tensorflow as tf

from agents.agent import RecurrentMultiHeadAgent
from agents.heads import Heads
from agents.scalings import HLGauss, Scaling, TwoHot
from agents.update import LossOptions, td_loss
from tests.agents.scalings.episodes import expected_projection, softmax
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


@pytest.mark.parametrize("kind, double_q", [(TwoHot, False), (TwoHot, True), (HLGauss, True)])
def test_targets_are_those_of_the_decoded_values_and_losses_are_cross_entropies(kind, double_q):
    scaling, windows, rng = kind(len(PAIRS)), random_windows(), np.random.default_rng(0)
    shape = (4, SHAPE.rows - SHAPE.burn_in, len(PAIRS), ACTIONS, scaling.outputs_per_action)
    logits = [tf.constant(rng.normal(size=shape), tf.float32) for _ in ("online", "target")]
    of_both = {"heads": Heads(PAIRS), "shape": SHAPE, "options": LossOptions(double_q, eta=0.9, beta=0.6)}
    sequence = as_sequence(windows)
    found = td_loss(*logits, sequence, scaling=scaling, **of_both)
    plain = td_loss(*map(scaling.decode, logits), sequence, scaling=Scaling(len(PAIRS)), **of_both)
    mask, targets = plain.mask.numpy(), plain.targets.numpy()
    for name in ("targets", "values", "mask"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-4, atol=1e-4)
    values = [np.sign(x) * np.log1p(abs(x)) if kind is TwoHot else x for x in (targets, plain.values.numpy())]
    np.testing.assert_allclose(found.errors, values[0] - values[1], rtol=1e-3, atol=1e-3)
    actions = windows["previous_action"][:, SHAPE.burn_in + 1 :][:, : SHAPE.length, None, None, None]
    taken = np.take_along_axis(logits[0].numpy()[:, : SHAPE.length], np.maximum(actions, 0), axis=3)[
        :, :, :, 0
    ]
    wanted = np.reshape([expected_projection(kind, x) for x in targets.ravel()], (*targets.shape, -1))
    losses = -(wanted * np.log(softmax(taken.swapaxes(0, 1).astype(float)))).sum(-1) * mask[..., None]
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4, atol=1e-5)
    weights = (windows["table_size"] * windows["probability"]) ** -0.6
    expected = (losses.sum(axis=(0, 2)) * weights / weights.max()).sum() / mask.size
    assert float(found.loss) == pytest.approx(expected, rel=1e-4)


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
    logits = outputs_of(agent.network, as_sequence(windows | begun))[:, 0].numpy().astype(np.float64)
    values = softmax(logits) @ agent.scaling.support.astype(np.float64)
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
