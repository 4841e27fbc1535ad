"""Two replicas that share a batch make the update that one device makes of all of it.

TensorFlow must hear of logical devices before it does anything else, and the collectives of two strategies in one
process clash: these tests have a process of their own, and one strategy in it.
"""

import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from agents import configuration
from agents.replay.backends import LOCAL, REVERB
from agents.running.embedded import EmbeddedRun
from agents.scalings import ReturnBasedScaling, Scaling
from agents.sequences import Steps
from agents.workers import build
from agents.workers.build import build_strategy
from agents.workers.learner import Learner
from tests.agents.quickstart import REPOSITORY, configured
from tests.agents.replay.streams import make_replay, rows_of
from tests.agents.small_agent import (
    PAIRS,
    SHAPE,
    as_sequence,
    as_trajectory,
    make_agent,
    random_windows,
    some_moments,
)
from tests.agents.stock import batch_of, in_tensorflow, step_driver
from tests.devices import process_with_two_cpus

CHOICES = configuration.list_scalings(REPOSITORY / "configs")
SCALINGS = dict.fromkeys(CHOICES, ())
# Larger steps than usual, so that every update changes the units.
RMS = "RecurrentQNetwork.reward_input = 'rms'"
SCALINGS |= {
    "return_out": (RMS,),
    "cross_head": ("scalings.cross_head.step = 0.3",),
    "error": ("scalings.error_based.step = 0.3",),
    "pop_art": ("scalings.pop_art.step_size = 0.3",),
    "pop_art_first": ("scalings.pop_art.step_size = 0.3",),
    "return_half_life": ("scalings.return_based.half_life = 40",),
}
# Each sums over a batch, or over what others do, in code of its own.
OF_A_BATCH = {
    "error",
    "pop_art_first",
    "return",
    "return_out",
    "two_hot",
}
UPDATES = 2  # the second from targets that lag behind; after it they are replaced


@pytest.fixture(scope="module")
def process():
    with process_with_two_cpus() as process:
        yield process


@functools.cache
def mirrored():
    strategy = build_strategy("mirrored")
    assert strategy.num_replicas_in_sync == 2
    return strategy


def agent_under(strategy, scaling, **options):
    with strategy.scope():
        train_step = tf.Variable(0, dtype=tf.int64)
    return make_agent(scaling=scaling, strategy=strategy, train_step=train_step, **options)


def shared_out(strategy, nest):
    """Each replica gets two of the four windows; they differ in how much of them is padding."""

    def share(tensor):
        array = np.array(tensor)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(np.split(array, 2)[context.replica_id_in_sync_group])
        )

    return tf.nest.map_structure(share, nest)


def compare_updates(strategy, one, two, experience, weights=None):
    """Lets both make an update of the same windows, and compares what they give out and what they have become."""
    expected = one.train(experience, weights=weights)
    options = {} if weights is None else {"weights": shared_out(strategy, weights)}
    found = strategy.run(two.train, (shared_out(strategy, experience),), options)
    priorities = tf.concat(strategy.experimental_local_results(found.extra.priorities), axis=0)
    loss = strategy.reduce(tf.distribute.ReduceOp.SUM, found.loss, axis=None)
    np.testing.assert_allclose(loss, expected.loss, rtol=1e-5)
    np.testing.assert_allclose(priorities, expected.extra.priorities, rtol=1e-5)
    for part in ("network", "target_network", "scaling", "optimizer"):
        variables = getattr(one, part).variables, getattr(two, part).variables
        for variable, other in zip(*variables, strict=True):
            first, second = (copy.numpy() for copy in strategy.experimental_local_results(other))
            np.testing.assert_array_equal(first, second, err_msg=f"replicas of {part}: {variable.name}")
            np.testing.assert_allclose(
                first, variable.numpy(), rtol=1e-5, atol=1e-5, err_msg=f"{part}: {variable.name}"
            )


def check_updates(name):
    with configured(CHOICES[name], *SCALINGS[name]):
        one, strategy = make_agent(scaling=ReturnBasedScaling, target_update_period=2), mirrored()
        two = agent_under(strategy, ReturnBasedScaling, target_update_period=2)
    assert {variable.dtype for variable in two.scaling.variables} <= {tf.float64, tf.bool}

    for update in range(UPDATES):
        for agent in (one, two):
            agent.observe(some_moments(seed=update))
        compare_updates(strategy, one, two, as_sequence(random_windows(seed=update)))
        assert two.train_step_counter.numpy() == update + 1


@pytest.mark.parametrize(
    "name", [name if name in OF_A_BATCH else pytest.param(name, marks=pytest.mark.slow) for name in SCALINGS]
)
def test_two_replicas_make_the_update_of_one_device(process, name):
    """Without a graph, for tracing it takes three times as long as the updates; a run below makes its own."""
    process(check_updates, name)


def check_trajectories():
    """Stock windows with weights, and statistics by observers, which stay outside of the replicas."""
    strategy = mirrored()
    one, two = make_agent(), agent_under(strategy, ReturnBasedScaling)
    weights = np.array([0.5, 2.0, 1.0, 0.25], np.float32)
    for agent in (one, two):
        step_driver(in_tensorflow(batch_of(2)[1]), agent, 40).run()
    np.testing.assert_array_equal(one.scaling.layer.statistics, two.scaling.layer.statistics.values[1])
    assert one.scaling.layer.moments.count[0] >= 40
    for update in range(UPDATES):
        compare_updates(strategy, one, two, as_trajectory(random_windows(seed=update)), weights)
    with (
        strategy.scope(),
        pytest.raises(ValueError, match="outside of strategy.scope.., and hand it strategy="),
    ):
        make_agent()


def test_two_replicas_train_on_trajectories_as_one_device(process):
    process(check_trajectories)


def check_learner(root_dir, backend):
    strategy = mirrored()
    agent = agent_under(strategy, Scaling)
    replay = make_replay(
        backend,
        SHAPE,
        agent.time_step_spec.observation,
        agent.network.state_spec,
        len(PAIRS),
        capacity=100,
        min_sequences=1,
    )
    windows = random_windows()
    for index in range(4):
        writer = replay.writer()
        columns = {name: windows[name][index] for name in Steps._fields}
        rows = rows_of(**columns, core_state=np.concatenate([windows["h"][index], windows["c"][index]]))
        for row in range(SHAPE.rows):
            writer.append(rows[row : row + 1], True, 100.0 + index if row == SHAPE.rows - 1 else None)
        replay.end_round()
    learner = Learner(root_dir, agent, replay, batch_size=6, summary_interval=1)
    # Unscaled, with weights all alike, a window's priority does not depend on the others'.
    expected = make_agent(scaling=Scaling).loss(as_sequence(windows)).extra.priorities.numpy()
    learner.update()
    assert replay.sampled == 6, "nothing is drawn ahead"
    drawn = 0
    sequence, info = next(iter(replay.dataset(64)))
    for reward, priority in zip(sequence.steps.reward[:, 0].numpy(), info.priority.numpy(), strict=True):
        (index,) = (i for i in range(4) if reward == windows["reward"][i, 0])
        if priority >= 100.0:
            assert priority == 100.0 + index
        else:
            np.testing.assert_allclose(priority, expected[index], rtol=1e-5)
            drawn += 1
    assert drawn and learner.updates == 1
    replay.stop()


@pytest.mark.parametrize("backend", [pytest.param(REVERB, marks=pytest.mark.slow), LOCAL])
def test_priorities_of_all_replicas_reach_their_sequences(process, tmp_path, backend):
    process(check_learner, str(tmp_path), backend)


def check_embedded(root_dir):
    one_head = "Heads.pairs = ((0.99, False),)"  # tracing takes its time, once per replica and head
    of_vectors = "train.env = 'CartPole-v1'", "RecurrentQNetwork.torso = @networks.MlpTorso"
    bindings = one_head, *of_vectors, "train.strategy = 'mirrored'", "train.updates = 6"
    asked, weights = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "build_strategy", lambda name: asked.append(name) or mirrored())
        refused = pytest.raises(ValueError, match="31 sequences cannot be .* write a multiple of 2")
        with configured(*bindings, "train.batch_size = 31"), refused:
            EmbeddedRun(root_dir)
        assert os.listdir(root_dir) == []
        for resumed in (False, True):
            with configured(*bindings), EmbeddedRun(root_dir) as run:
                assert run.agent.strategy.num_replicas_in_sync == 2 and run.learner.resumed == resumed
                weights.append([variable.numpy() for variable in run.agent.network.variables])
                result = run.run()
                weights.append([variable.numpy() for variable in run.agent.network.variables])
                assert result.updates == 6 and result.environment_steps > 0
    initial, saved, restored, _ = weights
    assert set(asked) == {"mirrored"} and any((a != b).any() for a, b in zip(initial, saved, strict=True))
    for before, after in zip(saved, restored, strict=True):
        np.testing.assert_array_equal(after, before)


def test_the_embedded_mode_trains_on_two_replicas_and_its_checkpoint_restores_them(process, tmp_path):
    process(check_embedded, str(tmp_path))


def check_xla_refusal():
    with pytest.raises(ValueError, match=r"jit_compile does not go with train.strategy = 'mirrored' on CPUs"):
        agent_under(mirrored(), Scaling, jit_compile=True)


def test_xla_with_replicas_on_cpus_is_refused(process):
    process(check_xla_refusal)


def check_clipping():
    """The sum of the replicas' gradients is clipped, as one device clips its own."""
    strategy, limit = mirrored(), 1e-3
    one = make_agent(scaling=Scaling, optimizer=tf.keras.optimizers.SGD(1.0, clipnorm=limit))
    with strategy.scope():
        clipping = tf.keras.optimizers.SGD(1.0, clipnorm=limit)
    two, sequence = agent_under(strategy, Scaling, optimizer=clipping), as_sequence(random_windows())
    for agent in (one, two):
        agent.observe(some_moments())
    before = [variable.numpy() for variable in one.network.trainable_variables]
    one.train(sequence)
    strategy.run(two.train, (shared_out(strategy, sequence),))
    after = one.network.trainable_variables
    steps = [np.linalg.norm(b - a) for a, b in zip(before, after, strict=True)]
    assert max(steps) == pytest.approx(limit, rel=1e-2), "some are clipped"
    for variable, start, other in zip(after, before, two.network.trainable_variables, strict=True):
        for copy in strategy.experimental_local_results(other):
            np.testing.assert_allclose(copy - start, variable - start, atol=limit / 100)


def test_an_optimizer_clips_the_sum_of_the_replicas_gradients(process):
    process(check_clipping)


def test_without_a_tpu_its_strategy_is_refused(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(ValueError, match="no TPU device on this machine.*TPU_NAME"):
        build_strategy("tpu")
