"""What the learner does beside its updates."""

import functools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from agents.replay.local_replay import LocalReplay
from agents.replay.replay import Episode
from agents.replay.reverb_replay import ReverbReplay
from agents.replay.windows import Block
from agents.storage.checkpoint import Checkpointer
from agents.storage.statistics_log import StatisticsLog
from agents.targets import Steps
from agents.workers.learner import Learner
from rbs_tf import ReturnMoments
from rbs_tf.scalings import Scaling
from tests.agents.small_agent import PAIRS, SHAPE, make_agent, random_windows

H = len(PAIRS)


class Remembering(Scaling):
    """Keeps what it is told."""

    needs = {"n_step": ReturnMoments}

    def observe(self, moments, *, n_step):
        self.told = moments, n_step


def test_reports_of_every_kind_of_statistics_are_merged_and_handed_on(tmp_path):
    agent = make_agent(scaling=Remembering)
    observation, state = agent.time_step_spec.observation, agent.network.state_spec
    replay = ReverbReplay(SHAPE, observation, state, H, Remembering.needs, capacity=100, min_sequences=1)
    learner = Learner(str(tmp_path), agent, replay, batch_size=1, summary_interval=0)
    rng, rows = np.random.default_rng(0), []
    for steps in (7, 1, 30):
        # Each kind gets samples of its own, so that none may stand for another.
        samples = rng.normal(size=(4, steps, H))
        moments, n_step = ReturnMoments.from_episode(*samples[:2]), ReturnMoments.from_steps(*samples[2:])
        arrays = {"moments": moments, "n_step": n_step}
        report = {name: each.to_array() for name, each in arrays.items()}
        replay.put_statistics({**report, "episodes": np.zeros((0, 4))})
        rows.append(samples)
    learner.drain_statistics()
    moments, n_step = agent.scaling.told
    everything = np.concatenate(rows, axis=1)
    for found, expected in (
        (moments.to_array()[:5], ReturnMoments.from_steps(*everything[:2]).to_array()[:5]),
        (n_step.to_array(), ReturnMoments.from_steps(*everything[2:]).to_array()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    agent.scaling.told = None
    learner.drain_statistics()
    assert agent.scaling.told is None, "nothing has arrived since"
    replay.stop()


def test_a_gpu_gets_packed_observations_and_learns_the_same(tmp_path, monkeypatch):
    windows, updated, packed = random_windows(), [], []
    for gpus in ([], ["GPU:0"]):
        agent = make_agent()
        observation, state = agent.time_step_spec.observation, agent.network.state_spec
        settings = {
            "capacity": 100,
            "min_sequences": 1,
            "error_buffer": 50.0,
            "sampler": "fifo",
            "compression": 3,
        }
        replay = LocalReplay(SHAPE, observation, state, H, **settings)
        for index in range(4):
            steps, core_state = (
                Steps(*(windows[name][index] for name in Steps._fields)),
                (np.ones(4, np.float32),) * 2,
            )
            writer = replay.writer()
            for start in range(0, SHAPE.rows, SHAPE.block):
                rows = slice(start, start + SHAPE.block)
                writer.append(Block(Steps(*(column[rows] for column in steps)), core_state))
            writer.insert(1.0)
        dataset = mock.Mock(wraps=replay.dataset)
        monkeypatch.setattr(replay, "dataset", dataset)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None, gpus=gpus: gpus)
        learner = Learner(str(tmp_path / str(len(gpus))), agent, replay, batch_size=4, summary_interval=0)
        learner.update()
        packed.append(dataset.call_args.kwargs["packed"])
        updated.append([variable.numpy() for variable in agent.network.variables])
        replay.stop()
    assert packed == [False, True]
    for ours, expected in zip(*reversed(updated), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.fixture
def start(tmp_path):
    """Starts learner and replay from the folder, as a process does; `replay` goes on with one that is there."""
    replays = []

    def start(replay=None):
        agent = make_agent()
        checkpointer = Checkpointer(
            tmp_path, {"agent": agent, "step": agent.train_step_counter}, lambda: replay.checkpoint()
        )
        if replay is None:
            observation, state = agent.time_step_spec.observation, agent.network.state_spec
            replay = ReverbReplay(
                *(SHAPE, observation, state, H),
                capacity=100,
                min_sequences=1,
                folders=checkpointer.replay_folders(),
            )
            replays.append(replay)
        learner = Learner(str(tmp_path), agent, replay, 1, 0, checkpointer)
        return learner, replay, agent.scaling.layer.statistics

    yield start
    for replay in replays:
        replay.stop()


def report(seed, steps=5):
    samples = np.random.default_rng(seed).normal(size=(2, steps, H))
    moments = ReturnMoments.from_episode(*samples)
    episodes = np.array([Episode(float(seed), steps, seed % H, 0.1)])
    return {"moments": moments.to_array(), "episodes": episodes}


def put(replay, *seeds):
    for seed in seeds:
        replay.put_statistics(report(seed))


def assert_counted(learner, statistics, *seeds):
    """Every report of these once, and nothing else."""
    expected = functools.reduce(
        ReturnMoments.merge, [ReturnMoments.from_array(report(seed)["moments"]) for seed in seeds]
    )
    np.testing.assert_allclose(statistics.numpy(), expected.to_array(), rtol=1e-12)
    assert (learner.environment_steps, learner.episodes) == (5 * len(seeds), len(seeds))


def test_a_report_counts_once_though_its_reader_dies_before_it_is_logged(start):
    _, replay, _ = start()
    put(replay, 0, 1)
    next(replay.statistics())
    learner, _, statistics = start(replay)
    assert learner.drain_statistics() == [0.0, 1.0]
    assert_counted(learner, statistics, 0, 1)


def test_a_report_counts_once_though_its_reader_dies_before_it_has_left_the_queue(start, tmp_path):
    first, replay, _ = start()
    put(replay, 0, 1)
    key, found = next(replay.statistics())
    StatisticsLog(tmp_path).append(key, found)
    learner, _, statistics = start(replay)
    assert_counted(learner, statistics, 0)
    assert learner.drain_statistics() == [1.0] and learner.drain_statistics() == []
    assert_counted(learner, statistics, 0, 1)
    del first


def test_no_statistics_are_lost_that_came_after_the_last_checkpoint(start):
    learner, replay, _ = start()
    put(replay, 0)
    learner.save()
    put(replay, 1, 2)
    learner.drain_statistics()
    put(replay, 3)
    resumed, _, statistics = start(replay)
    assert resumed.resumed
    assert_counted(resumed, statistics, 0, 1, 2)
    resumed.drain_statistics()
    resumed.save()
    again, _, statistics = start(replay)
    assert_counted(again, statistics, 0, 1, 2, 3)


def test_reports_that_wait_while_a_checkpoint_is_written_count_once_after_it(start):
    learner, replay, _ = start()
    put(replay, 0)
    learner.drain_statistics()
    put(replay, 1, 2)
    learner.save()
    assert learner.episodes == 1
    replay.stop()
    resumed, _, statistics = start()
    assert_counted(resumed, statistics, 0)
    assert resumed.drain_statistics() == [1.0, 2.0]
    assert_counted(resumed, statistics, 0, 1, 2)


def test_reports_that_a_replay_brings_back_from_its_checkpoint_do_not_count_twice(start):
    learner, replay, _ = start()
    put(replay, 0)
    learner.drain_statistics()
    put(replay, 1)
    learner.save()
    learner.drain_statistics()
    replay.stop()
    resumed, _, statistics = start()
    assert_counted(resumed, statistics, 0, 1)
    assert resumed.drain_statistics() == []
    assert_counted(resumed, statistics, 0, 1)
