"""Acting: what is drawn when, and that what the collector stores is what the network needs."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from agents.policy import PAPER_EPSILONS, MultiHeadPolicy
from tests.agents.small_agent import ACTION, ACTIONS, FEATURES, PAIRS, TIME_STEP, make_agent

FIRST, MID, LAST = 0, 1, 2
HEADS = len(PAIRS)


def make_policy(seed=0, **options):
    network = make_agent().network
    return MultiHeadPolicy(TIME_STEP, ACTION, network, HEADS, seed=seed, **options), network


def time_step(step_type, seed=0):
    step_type = np.array(step_type, np.int32)
    rng = np.random.default_rng(seed)
    n = len(step_type)
    reward = np.where(step_type == FIRST, 0.0, rng.normal(size=n)).astype(np.float32)
    observation = rng.normal(size=(n, FEATURES)).astype(np.float32)
    return ts.TimeStep(*map(tf.constant, (step_type, reward, np.ones(n, np.float32), observation)))


def play(policy, step_types):
    """Runs a sequence of batched step types; returns the time steps and the policy steps."""
    act = tf.function(policy.action, autograph=False)
    state = policy.get_initial_state(len(step_types[0]))
    steps, results = [], []
    for index, types in enumerate(step_types):
        steps.append(time_step(types, index))
        results.append(act(steps[-1], state))
        state = results[-1].state
    return steps, results


def test_head_and_epsilon_change_at_first_steps_alone():
    n = 200
    _, results = play(make_policy()[0], [[FIRST] * n, [MID] * n, [LAST] * n, [FIRST] * n])
    heads = [result.info.head.numpy() for result in results]
    epsilons = [result.info.epsilon.numpy() for result in results]
    for drawn in (heads, epsilons):
        assert (drawn[0] == drawn[1]).all() and (drawn[1] == drawn[2]).all()
        assert (drawn[2] != drawn[3]).any()
    assert set(heads[0]) == set(range(HEADS))
    assert {float(e) for e in epsilons[0]} == {float(np.float32(e)) for e in PAPER_EPSILONS}


def test_each_environment_of_the_batch_begins_its_own_episodes():
    _, results = play(make_policy()[0], [[FIRST] * 50, [FIRST if i % 2 else MID for i in range(50)]])
    kept = np.arange(0, 50, 2)
    np.testing.assert_array_equal(results[0].info.head.numpy()[kept], results[1].info.head.numpy()[kept])
    core = results[1].info.core_state[0].numpy()
    assert not core[1::2].any() and core[0::2].any(axis=1).mean() > 0.5
    assert (results[1].info.previous_action.numpy()[1::2] == -1).all()


def test_heads_are_drawn_with_the_published_probabilities():
    policy, _ = make_policy()
    policy.head_probabilities.assign([0.0, 1.0, 0.0])
    _, results = play(policy, [[FIRST] * 100])
    assert (results[0].info.head.numpy() == 1).all()
    policy.head_probabilities.assign([0.5, 0.0, 0.5])
    _, results = play(policy, [[FIRST] * 1000])
    counts = np.bincount(results[0].info.head.numpy(), minlength=3)
    assert counts[1] == 0 and 400 < counts[0] < 600


def test_the_greedy_policy_takes_the_acting_heads_best_action():
    policy, _ = make_policy(epsilons=(0.0,))
    _, results = play(policy, [[FIRST] * 64, [MID] * 64])
    for result in results:
        taken, greedy, head = (
            result.info.taken_values.numpy(),
            result.info.greedy_values.numpy(),
            result.info.head.numpy(),
        )
        rows = np.arange(64)
        np.testing.assert_array_equal(taken[rows, head], greedy[rows, head])
        assert (taken <= greedy).all() and (taken < greedy).any()


def test_exploration_happens_as_often_as_epsilon_says():
    policy, _ = make_policy(epsilons=(0.4,))
    _, results = play(policy, [[FIRST] * 4000])
    info = results[0].info
    rows = np.arange(4000)
    head = info.head.numpy()
    off_greedy = info.taken_values.numpy()[rows, head] < info.greedy_values.numpy()[rows, head]
    assert off_greedy.mean() == pytest.approx(0.4 * (ACTIONS - 1) / ACTIONS, abs=0.04)


def test_unrolling_the_network_from_a_stored_state_reproduces_the_values_seen_while_acting():
    """The golden test of stored states: wherever a window begins, its state belongs to its first row."""
    policy, network = make_policy()
    types = [[FIRST] * 3] + [[MID] * 3] * 4 + [[MID, LAST, MID], [MID, FIRST, MID]] + [[MID] * 3] * 4
    steps, results = play(policy, types)
    for start in (0, 3, 6, 8):
        rows = range(start, len(types))
        inputs = [
            tf.stack([columns(t) for t in rows], axis=1)
            for columns in (
                lambda t: steps[t].observation,
                lambda t: results[t].info.previous_action,
                lambda t: steps[t].reward,
                lambda t: steps[t].step_type,
            )
        ]
        values, _ = network(tuple(inputs[:3]), inputs[3], results[start].info.core_state)
        seen = tf.stack([results[t].info.greedy_values for t in rows], axis=1)
        np.testing.assert_allclose(tf.reduce_max(values, axis=-1), seen, atol=1e-5)


def test_equal_seeds_act_alike():
    types = [[FIRST] * 20] + [[MID] * 20] * 5
    actions = [[r.action.numpy() for r in play(make_policy(seed)[0], types)[1]] for seed in (3, 3, 4)]
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])
