"""Policies where TF-Agents expects them: distributions, greedy wrappers, SavedModels of PolicySaver and its trigger."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import greedy_policy, py_tf_eager_policy
from tf_agents.train import learner, triggers
from tf_agents.trajectories import time_step as ts

from tests.agents.small_agent import ACTIONS, FEATURES, make_agent, shake
from tests.agents.stock import as_tensors, batch_of

SIZE = 40


def steps(seed=0, count=6):
    """A stream of batched time steps in which episodes end at other times."""
    rng = np.random.default_rng(seed)
    kinds = np.full((count, SIZE), 1, np.int32)
    kinds[0] = 0
    kinds[3, ::2], kinds[4, ::2] = 2, 0
    for kind in kinds:
        reward = np.where(kind == 0, 0.0, rng.normal(size=SIZE)).astype(np.float32)
        observation = 5.0 * rng.normal(size=(SIZE, FEATURES)).astype(np.float32)
        yield as_tensors(ts.TimeStep(kind, reward, np.ones(SIZE, np.float32), observation))


def played(policy, state):
    """Actions [T, SIZE] of a policy on the stream, and what it told of them."""
    actions, infos = [], []
    for time_step in steps():
        step = policy.action(time_step, state)
        state = step.state
        actions.append(step.action.numpy())
        infos.append(step.info)
    return np.array(actions), infos


def agent_with_one_head(**options):
    agent = make_agent(**options)
    rng = np.random.default_rng(0)
    for variable in agent.network.trainable_variables:
        if variable.shape.rank > 1:
            variable.assign(rng.normal(size=variable.shape))
    for policy in (agent.policy, agent.collect_policy):
        policy.head_probabilities.assign([0.0, 1.0, 0.0])  # so that nothing is drawn
    return agent


def test_a_distribution_has_the_chances_that_acting_has():
    agent = agent_with_one_head(epsilon_greedy=0.3)
    time_step, state = next(steps()), agent.collect_policy.get_initial_state(SIZE)
    step = agent.collect_policy.distribution(time_step, state)
    chances = step.action.probs_parameter().numpy()
    np.testing.assert_allclose(np.sort(chances, axis=1), [[0.1, 0.1, 0.8]] * SIZE, rtol=1e-6)
    acted = agent.policy.action(time_step, state)
    np.testing.assert_array_equal(step.action.mode(), acted.action)
    assert step.action.dtype == agent.action_spec.dtype
    for a, b in zip(tf.nest.flatten(step.info), tf.nest.flatten(acted.info), strict=True):
        np.testing.assert_array_equal(np.where(np.isclose(a, 0.3), 0.0, a), b)  # but for epsilon
    often = [agent.collect_policy.action(time_step, state).action for _ in range(100)]
    assert np.mean(np.array(often) == acted.action.numpy()) == pytest.approx(0.8, abs=0.03)


def test_a_greedy_wrapper_acts_as_the_greedy_policy():
    """Also around a collect policy that explores, and whatever state it carries on."""
    agent = agent_with_one_head(epsilon_greedy=0.9)
    expected, infos = played(agent.policy, agent.policy.get_initial_state(SIZE))
    for policy in (agent.policy, agent.collect_policy):
        greedy = greedy_policy.GreedyPolicy(policy)
        actions, seen = played(greedy, greedy.get_initial_state(SIZE))
        np.testing.assert_array_equal(actions, expected)
        for a, b in zip(infos, seen, strict=True):
            np.testing.assert_array_equal(a.taken_values, b.taken_values)
            np.testing.assert_array_equal(a.previous_action, b.previous_action)
    assert len(np.unique(expected)) > 1


def test_the_trigger_of_stock_learners_saves_all_three_policies(tmp_path):
    agent = agent_with_one_head()
    trigger = triggers.PolicySavedModelTrigger(
        str(tmp_path), agent, agent.train_step_counter, interval=1, save_greedy_policy=True
    )
    time_step = next(steps())
    before = agent.policy.action(time_step, agent.policy.get_initial_state(SIZE)).action
    shake(agent.network, seed=9)
    agent.train_step_counter.assign(1)
    trigger(1)
    names = learner.RAW_POLICY_SAVED_MODEL_DIR, learner.GREEDY_POLICY_SAVED_MODEL_DIR
    raw = tf.saved_model.load(str(tmp_path / names[0]))
    distribution = raw.distribution(time_step, raw.get_initial_state(SIZE)).action
    np.testing.assert_array_equal(distribution.mode(), before)

    def loaded(name):
        folder = str(tmp_path / name)
        return py_tf_eager_policy.SavedModelPyTFEagerPolicy(
            folder, load_specs_from_pbtxt=True, batch_time_steps=False
        )

    # Steps of the collect policy have all that training needs.
    collect = loaded(learner.COLLECT_POLICY_SAVED_MODEL_DIR)
    step = collect.action(batch_of(2)[1].reset(), collect.get_initial_state(2))
    assert (step.info.previous_action.numpy() == -1).all() and (step.action.numpy() < ACTIONS).all()
    tf.nest.assert_same_structure(step.info, agent.collect_policy.info_spec)
    # The greedy one acts as the agent does, with newer weights from a checkpoint.
    expected, _ = played(agent.policy, agent.policy.get_initial_state(SIZE))
    policy = loaded(names[1])
    (newest,) = (tmp_path / learner.POLICY_CHECKPOINT_DIR).iterdir()
    policy.update_from_checkpoint(str(newest))
    state, actions = policy.get_initial_state(SIZE), []
    for time_step in steps():
        step = policy.action(time_step, state)
        state = step.state
        actions.append(step.action.numpy())
    np.testing.assert_array_equal(actions, expected)


def test_actions_have_the_dtype_of_their_spec():
    """Gymnasium's environments count in int64."""
    from agents.agent import RecurrentMultiHeadAgent

    agent = make_agent()
    action_spec = tf.nest.map_structure(
        lambda spec: type(spec)(spec.shape, tf.int64, spec.minimum, spec.maximum), agent.action_spec
    )
    wide = RecurrentMultiHeadAgent(
        agent.time_step_spec, action_spec, agent.network.copy(), heads=agent.heads, shape=agent.shape
    )
    state = wide.collect_policy.get_initial_state(SIZE)
    step = wide.collect_policy.action(next(steps()), state)
    assert step.action.dtype == tf.int64 and step.state.previous_action.dtype == tf.int32
    assert wide.collect_policy.distribution(next(steps()), state).action.dtype == tf.int64
