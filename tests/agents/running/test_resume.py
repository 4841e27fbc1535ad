"""A run that ended, was interrupted or killed goes on as if nothing had been: same losses, weights, batches."""

import os
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.running.embedded import EmbeddedRun
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from tests.agents.running.test_embedded import COMPILED, configured, state_of

# Rounds end within blocks, and earn more than one update each.
BINDINGS = (
    "Replay.replay_ratio = 10.0",
    "train.num_envs = 3",
    "train.steps_per_round = 7",
    "train.summary_interval = 1",
    "train.checkpoint_interval = 27",
    "environments.make.max_episode_steps = 45",
)
UPDATES = 40
OLD_FILES = ["extra.json", "manifest.json", "replay", "variables.data-00000-of-00001", "variables.index"]


def go(root, *bindings, updates=UPDATES, interrupt_at=None):
    """Trains in `root` to `updates`; everything that the rest of the run would depend on."""
    with configured(*BINDINGS, *bindings, f"train.updates = {updates}"), EmbeddedRun(root) as run:
        update = run.learner.update

        def interrupted():
            update()
            if run.learner.updates == interrupt_at:
                os.kill(os.getpid(), signal.SIGINT)

        run.learner.update = interrupted
        result = run.run()
        assert result.updates == (interrupt_at or updates)
        generator = {"generator": run.agent.collect_policy._generator.state.numpy()}
        state = state_of(run) | generator | run.collector.state()
        state |= {"sampled": run.replay.sampled, "due": run.replay.updates_due(result.updates, 4)}
        batch, _ = next(iter(run.replay.dataset(4)))
        state |= {f"batch {i}": column.numpy() for i, column in enumerate(tf.nest.flatten(batch))}
        # Nothing of this is in the checkpoint, and it tells what the environments would have done.
        run.collector.run(60)
        state |= {f"later {name}": array for name, array in run.collector.state().items()}
    return state


def losses(root):
    events = EventAccumulator(str(root / "train"), size_guidance={"tensors": 0})
    events.Reload()
    return {event.step: tf.make_ndarray(event.tensor_proto).item() for event in events.Tensors("loss")}


def assert_same(root, state, whole):
    other_root, other = whole
    assert losses(root) == losses(other_root) and len(losses(root)) == UPDATES
    assert state.keys() == other.keys()
    for name, values in other.items():
        np.testing.assert_array_equal(state[name], values, err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder and state of a run that went through."""
    root = tmp_path_factory.mktemp("whole")
    state = go(root, COMPILED)
    assert state["episodes"] > 3
    return root, state


def test_a_run_that_was_interrupted_goes_on_bit_for_bit(whole, tmp_path, capfd):
    state = go(tmp_path, COMPILED, "train.eval_interval = 5", interrupt_at=14)
    # It stopped within a round, in the middle of episodes and of blocks.
    assert state["due"] and all(len(state[f"reports/{i}/rewards"]) for i in range(3))
    assert any(len(state[f"cutters/{i}/pending/reward"]) for i in range(3))
    state = go(tmp_path, COMPILED)
    assert "Resumed at update 14.\n" in capfd.readouterr().out
    assert_same(tmp_path, state, whole)


def test_a_run_that_was_killed_repeats_what_came_after_its_checkpoint_and_counts_it_once(whole, tmp_path):
    root = tmp_path / "killed"
    shutil.copytree(whole[0], root)
    shutil.rmtree(root / "checkpoints" / str(UPDATES))
    assert os.listdir(root / "checkpoints") == ["27"]
    assert_same(root, go(root, COMPILED), whole)


def start_again(root, environment, *bindings):
    """Plays a little in a fresh folder, ends, and starts there once more; how many steps the new collector knows of."""
    bindings = (
        *bindings,
        f"train.env = '{environment}'",
        "Heads.reward_multiplier = 1.0",
        "train.updates = 0",
    )
    with configured(*bindings):
        with EmbeddedRun(root) as run:
            run.collector.run(3)
            run.run()
        with EmbeddedRun(root) as run:
            run.run()
            return run.collector.environment_steps


def test_where_environments_cannot_be_restored_the_run_says_that_new_episodes_begin(tmp_path, capfd):
    assert start_again(tmp_path / "cartpole", "CartPole-v1") == 4
    assert "Resumed at update 0.\n" in capfd.readouterr().out
    assert start_again(tmp_path / "breakout", "breakout") == 0
    reason = "New episodes begin: the checkpoint does not hold the state of breakout.\n"
    assert f"Resumed at update 0. {reason}" in capfd.readouterr().out
    assert sorted(os.listdir(tmp_path / "breakout/checkpoints/0")) == OLD_FILES


def test_with_reverb_a_resumed_run_says_that_new_episodes_begin(tmp_path, capfd):
    pytest.importorskip("reverb")
    assert start_again(tmp_path, "CartPole-v1", "Replay.backend = 'reverb'") == 0
    assert (
        "New episodes begin: the checkpoint does not hold the state of CartPole-v1.\n"
        in capfd.readouterr().out
    )


def test_where_the_state_of_environments_is_spoiled_the_run_says_that_new_episodes_begin(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(GymnasiumVectorEnvironment, "state", lambda self: b"of a former version")
    assert start_again(tmp_path, "CartPole-v1") == 0
    assert "New episodes begin: the state of CartPole-v1 does not load: " in capfd.readouterr().out


def test_the_environments_state_of_another_user_is_not_loaded(tmp_path, monkeypatch):
    with configured("train.updates = 5"), EmbeddedRun(tmp_path) as run:
        run.run()
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with configured("train.updates = 6"), EmbeddedRun(tmp_path) as run:
        assert "a pickle" in run._why_new_episodes
        run.run()
