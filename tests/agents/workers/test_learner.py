"""What the learner does beside its updates."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from agents.replay.blocks import Layout
from agents.replay.local_replay import LocalReplay
from agents.replay.replay import Episode
from agents.sequences import Packed, Steps
from agents.settings import ReplaySettings
from agents.storage.checkpoint import Checkpointer
from agents.storage.run_folder import newest_replay
from agents.storage.statistics_log import StatisticsLog
from agents.workers.learner import Learner
from rbs_tf import ReturnMoments
from tests.agents.replay.streams import rows_of
from tests.agents.small_agent import PAIRS, SHAPE, make_agent, random_windows

H = len(PAIRS)


def replay_for(agent, compression=None, **options):
    layout = Layout(SHAPE, agent.time_step_spec.observation, agent.network.state_spec, compression)
    return LocalReplay(layout, H, ReplaySettings(capacity=100, min_sequences=1), **options)


def write_windows(replay):
    windows = random_windows()
    for index in range(4):
        columns = {name: windows[name][index] for name in Steps._fields}
        rows, writer = rows_of(**columns, core_state=np.ones(8)), replay.writer()
        for end in range(SHAPE.block, SHAPE.rows + 1, SHAPE.block):
            writer.append(rows[end - SHAPE.block : end], True, 1.0 if end == SHAPE.rows else None)


def test_a_loss_that_is_no_number_ends_the_run_and_leaves_priorities_that_can_be_drawn(tmp_path, monkeypatch):
    agent = make_agent(scaling=None)
    agent.network.heads.bv.assign(np.nan * agent.network.heads.bv)
    replay, handed_back = replay_for(agent), []
    write_windows(replay)
    monkeypatch.setattr(replay, "update_priorities", lambda keys, new: handed_back.append(new.numpy()))
    learner = Learner(str(tmp_path), agent, replay, batch_size=4, summary_interval=0)
    with pytest.raises(FloatingPointError, match="The loss of update 1 is nan"):
        learner.update()
    np.testing.assert_array_equal(handed_back, np.zeros((1, 4)))


def test_a_gpu_gets_packed_observations_and_learns_from_the_same(tmp_path, monkeypatch):
    agent, found = make_agent(), []
    for gpus in ([], ["GPU:0"]):
        replay = replay_for(agent, compression=3)
        write_windows(replay)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None, gpus=gpus: gpus)
        learner = Learner(str(tmp_path / str(len(gpus))), agent, replay, batch_size=4, summary_interval=0)
        sequence, _ = next(learner._batches)
        assert isinstance(sequence.steps.observation, Packed) == bool(gpus)
        found.append(agent.sequences(sequence).steps.observation)
    np.testing.assert_array_equal(*found)


@pytest.fixture
def start(tmp_path):
    """Starts learner and replay from the folder, as a process does; `replay` goes on with one that is there."""

    def start(replay=None):
        agent = make_agent()
        if replay is None:
            replay = replay_for(agent, saved=newest_replay(tmp_path))
        trackables = {"agent": agent, "step": agent.train_step_counter}
        checkpointer = Checkpointer(tmp_path, trackables, replay.checkpoint)
        learner = Learner(str(tmp_path), agent, replay, 1, 0, checkpointer)
        return learner, replay, agent.scaling.layer.statistics

    return start


def report(seed, steps=5):
    samples = np.random.default_rng(seed).normal(size=(2, steps, H))
    moments = ReturnMoments.from_episode(*samples)
    episodes = np.array([Episode(float(seed), steps, seed % H, 0.1, 1)])
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


@pytest.mark.parametrize("logged", [False, True])
def test_a_report_counts_once_though_its_reader_dies_before_it_has_left_the_queue(start, tmp_path, logged):
    _, replay, _ = start()
    put(replay, 0, 1)
    key, found = next(replay.statistics())
    if logged:
        StatisticsLog(tmp_path).append(key, found)
    learner, _, statistics = start(replay)
    assert learner.episodes == logged
    assert learner.drain_statistics() == [0.0, 1.0][logged:] and learner.drain_statistics() == []
    assert_counted(learner, statistics, 0, 1)


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


@pytest.mark.parametrize("drained", [False, True])
def test_reports_that_wait_while_a_checkpoint_is_written_count_once_after_it(start, drained):
    """Also where they were drained afterwards, and the replay brings them back from its checkpoint."""
    learner, replay, _ = start()
    put(replay, 0)
    learner.drain_statistics()
    put(replay, 1, 2)
    learner.save()
    assert learner.episodes == 1
    if drained:
        learner.drain_statistics()
    replay.stop()
    resumed, _, statistics = start()
    assert_counted(resumed, statistics, *((0, 1, 2) if drained else (0,)))
    assert resumed.drain_statistics() == ([] if drained else [1.0, 2.0])
    assert_counted(resumed, statistics, 0, 1, 2)
