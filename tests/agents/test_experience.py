"""A stock `Trajectory` trains as the `Sequence` of the same rows, and what crosses an episode's end does not count."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from agents.sequences import SequenceShape
from tests.agents.small_agent import (
    FEATURES,
    SHAPE,
    as_sequence,
    as_trajectory,
    make_agent,
    random_windows,
    shaken,
    some_moments,
    unchanged,
)

FIRST, MID, LAST = 0, 1, 2


def alike(windows):
    """Windows that are drawn alike, as those of a `Trajectory` are taken to be."""
    return windows | {"probability": np.full(4, 0.02, np.float32)}


@pytest.mark.parametrize("double_q, burn_in", [(False, 2), (True, 0)])
def test_a_trajectory_trains_as_the_sequence_of_the_same_rows(double_q, burn_in):
    """Loss, priorities and gradients: equal bit for bit, as the weights after an update."""
    shape = dataclasses.replace(SHAPE, burn_in=burn_in)
    options = {"double_q": double_q, "shape": shape}
    windows = alike(random_windows(shape=shape))
    found = []
    for experience in (as_sequence(windows), as_trajectory(windows)):
        agent = shaken(**options)
        with tf.GradientTape() as tape:
            info = agent.loss(experience)
        gradients = tape.gradient(info.loss, agent.network.trainable_variables)
        trained = agent.train(experience)
        found.append((info, gradients, trained, [v.numpy() for v in agent.network.variables]))
    assert float(found[0][0].loss) > 0
    for a, b in zip(*map(tf.nest.flatten, found), strict=True):
        np.testing.assert_array_equal(tf.convert_to_tensor(a), tf.convert_to_tensor(b))


def test_the_specs_are_those_of_stock_replay():
    agent, experience = make_agent(), as_trajectory(random_windows())
    spec = agent.collect_data_spec
    assert agent.training_data_spec == spec and agent.train_sequence_length == SHAPE.rows
    for part, values in zip(tf.nest.flatten(spec), tf.nest.flatten(experience), strict=True):
        assert values.dtype == part.dtype and values.shape[1:] == [SHAPE.rows, *part.shape]
    assert agent.preprocess_sequence(experience) is experience


def test_weights_multiply_the_loss_of_each_window():
    agent, experience = shaken(), as_trajectory(random_windows())
    losses = []
    for index in range(4):
        only = np.eye(4, dtype=np.float32)[index]
        losses.append(float(agent.loss(experience, weights=only).loss))
    weights = np.array([0.5, 2.0, 0.0, 3.0], np.float32)
    whole = agent.loss(experience, weights=weights)
    assert float(whole.loss) == pytest.approx(np.dot(weights, losses), rel=1e-5)
    assert float(agent.loss(experience, weights=2.0).loss) == pytest.approx(2 * sum(losses), rel=1e-5)
    np.testing.assert_array_equal(whole.extra.priorities, agent.loss(experience).extra.priorities)
    # Beside importance weights, too.
    sequence, ones = as_sequence(random_windows()), tf.ones(4)
    assert float(agent.loss(sequence, weights=ones).loss) == float(agent.loss(sequence).loss)


def crossing(first_length, second_length, terminal, rows):
    """Two episodes in one stream, as stock drivers record them: [1, rows] of each column."""
    rng = np.random.default_rng(first_length)
    kinds = [FIRST, *[MID] * (first_length - 1), LAST, FIRST, *[MID] * (second_length - 1), LAST]
    kinds = np.array((kinds + [FIRST] + [MID] * rows)[:rows], np.int32)
    first = kinds == FIRST
    discount = np.where((kinds == LAST) & terminal, 0.0, 1.0)
    columns = {
        "step_type": kinds,
        "observation": rng.normal(size=(rows, FEATURES)),
        "previous_action": np.where(first, -1, rng.integers(0, 3, rows)),
        "reward": np.where(first, 0.0, 3.0 * rng.normal(size=rows)),
        "discount": discount,
    }
    ints = {"step_type", "previous_action"}
    return {
        name: values[None].astype(np.int32 if name in ints else np.float32)
        for name, values in columns.items()
    }


def with_state(columns, seed=3):
    rng, batch = np.random.default_rng(seed), len(columns["reward"])
    state = {name: rng.normal(size=(batch, 4)).astype(np.float32) for name in ("h", "c")}
    draws = {"probability": np.full(batch, 0.1, np.float32), "table_size": np.full(batch, 10, np.int64)}
    return columns | state | draws


def padded(columns, rows):
    """The rows, and then padding as our own replay has it."""
    size = columns["reward"].shape[1]
    filling = {"step_type": LAST, "previous_action": -1}
    return {
        name: np.concatenate(
            [values, np.full((1, rows - size, *values.shape[2:]), filling.get(name, 0), values.dtype)], axis=1
        )
        for name, values in columns.items()
    }


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_windows_across_an_episodes_end_give_each_episode_its_own_targets(length, terminal):
    """Against both episodes cut apart: errors, targets, and what the batch alone tells of sigma."""
    shape = SequenceShape(burn_in=0, length=8, period=4, n_step=3)
    agent = shaken(shape=shape)
    columns = crossing(length, 3, terminal, shape.rows)
    whole = agent.sequence_errors(agent.sequences(as_trajectory(with_state(columns))))
    ends = [0, length + 1, min(length + 5, shape.rows), shape.rows]
    mask = whole.mask[:, 0].numpy().astype(bool)
    last = columns["step_type"][0, : shape.length] == LAST
    np.testing.assert_array_equal(mask, ~last)
    parts = []
    for start, end in zip(ends[:-1], ends[1:], strict=True):
        part = {name: values[:, start:end].copy() for name, values in columns.items()}
        part["step_type"][:, -1] = LAST  # of the third, too, which the window cuts
        parts.append(with_state(padded(part, shape.rows)))
    batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    apart = agent.sequence_errors(as_sequence(batch))
    for index, (start, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        rows = min(end, shape.length) - start
        if rows > 0:
            for name in ("targets", "values", "errors", "losses", "mask"):
                found, expected = (
                    getattr(whole, name)[start : start + rows, 0],
                    getattr(apart, name)[:rows, index],
                )
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_episode_that_is_left_before_its_end_has_no_transition_into_the_next():
    """A driver that resets: no row tells what the last action led to."""
    shape = SequenceShape(burn_in=0, length=6, period=3, n_step=2)
    agent = shaken(shape=shape)
    columns = crossing(8, 1, False, shape.rows)
    columns["step_type"][0, 3] = FIRST
    first = agent.sequence_errors(as_sequence(with_state(columns)))
    assert first.mask[:, 0].numpy().tolist() == [1, 1, 0, 1, 1, 1]
    changed = {name: values.copy() for name, values in columns.items()}
    for name in ("observation", "reward", "discount"):
        changed[name][:, 3:] = 9.0
    other = agent.sequence_errors(as_sequence(with_state(changed)))
    np.testing.assert_array_equal(first.targets[:2], other.targets[:2])


def test_what_does_not_fit_is_refused_before_an_update():
    agent, experience = shaken(), as_trajectory(random_windows())

    def refused(given, words, **options):
        for call in (agent.train, agent.loss, tf.function(agent.train)):
            with unchanged(agent.variables), pytest.raises(ValueError, match=words):
                call(given, **options)

    refused(tf.nest.map_structure(lambda x: x[:, 1:], experience), r"L = 9 rows.*step_type is int32 \(4, 8\)")
    turned = tf.nest.map_structure(lambda x: tf.transpose(x, [1, 0, *range(2, x.shape.rank)]), experience)
    refused(turned, r"\(9, 4\), not int32 \[B, 9\]: time-major, it seems")
    refused(
        tf.nest.map_structure(lambda x: x[0], experience), r"step_type is int32 \(9,\).*has no batch axis"
    )
    refused(experience._replace(policy_info=()), "policy_info has another structure.*a random policy's")
    refused(
        experience._replace(observation=experience.observation[..., 1:]),
        r"observation is float32 \(4, 9, 3\)",
    )
    refused(experience._replace(action=tf.cast(experience.action, tf.int64)), "action is int64")
    refused({"experience": 1}, "takes a Trajectory of agent.collect_data_spec, or a Sequence; got dict")
    refused(experience, r"weights must have shape \[B\].*\(4,\) here; got \(3,\)", weights=tf.ones(3))
    refused(experience, r"weights must have shape \[B\].*got \(4, 9\)", weights=tf.ones((4, 9)))


def test_sizes_may_be_unknown_when_the_graph_is_traced_and_are_checked_when_it_runs():
    """As TF-Agents' Learner traces before there is data."""
    agent, experience = shaken(), as_trajectory(random_windows())
    any_size = tf.nest.map_structure(lambda x: tf.TensorSpec([None, None, *x.shape[2:]], x.dtype), experience)
    train = tf.function(lambda given, weights: agent.train(given, weights=weights)).get_concrete_function(
        any_size, tf.TensorSpec([None], tf.float32)
    )
    for given, weights in (
        (tf.nest.map_structure(lambda x: x[:, 1:], experience), tf.ones(4)),
        (experience, tf.ones(1)),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError):
            train(*tf.nest.flatten(given), weights)
    assert agent.train_step_counter.numpy() == 0
    found = train(*tf.nest.flatten(experience), tf.ones(4))
    np.testing.assert_allclose(found.loss, shaken().train(experience).loss, rtol=1e-5)


@pytest.mark.parametrize("traced, made", [(False, as_sequence), (True, as_trajectory)])
def test_without_statistics_training_raises_when_it_runs_and_says_what_to_type(traced, made):
    agent, experience = make_agent(), made(random_windows())
    train = tf.function(agent.train) if traced else agent.train
    if traced:
        train.get_concrete_function(experience)
    with (
        unchanged([*agent.variables, *agent.optimizer.variables]),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"no step has been.*\*agent.observers"),
    ):
        train(experience)
    assert agent.train_step_counter.numpy() == 0
    agent.observe(some_moments())
    assert np.isfinite(train(experience).loss)
    make_agent(scaling=None).train(experience)  # nothing is scaled
