"""A run that ended, was interrupted or killed goes on as if nothing had been: same losses, weights, batches."""

import os
import re
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from agents.running import embedded
from agents.running.embedded import EmbeddedRun
from agents.workers.learner import Learner
from agents.workers.training import Seeds
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from tests.agents.running.test_embedded import COMPILED, configured, tensors, values

# Rounds end within blocks, and earn more than one update each. The network's input has statistics of its own.
BINDINGS = (
    "train.env = 'CartPole-v1'",
    "Replay.replay_ratio = 10.0",
    "train.num_envs = 3",
    "train.steps_per_round = 7",
    "train.summary_interval = 1",
    "train.checkpoint_interval = 27",
    "environments.make.max_episode_steps = 45",
    "RecurrentQNetwork.reward_input = 'rms'",
    "RecurrentQNetwork.normalise_torso = 'centre'",
)
UPDATES = 40
PACED, IMAGES = "train.steps_per_update = 3.5", "train.env = 'minatar/space_invaders'"


def go(root, *bindings, interrupt_at=None):
    """Trains in `root`; everything that the rest of the run would depend on."""
    with configured(*BINDINGS, *bindings, f"train.updates = {UPDATES}"), EmbeddedRun(root) as run:
        update = run.learner.update

        def interrupted():
            update()
            if run.learner.updates == interrupt_at:
                os.kill(os.getpid(), signal.SIGINT)

        run.learner.update = interrupted
        result = run.run()
        assert result.updates == (interrupt_at or UPDATES)
        agent = run.agent
        names = [re.sub(r"_\d+", "", variable.name) + str(i) for i, variable in enumerate(agent.variables)]
        # But for generators: a run that is interrupted evaluates more often.
        named = [pair for pair in zip(names, agent.variables, strict=True) if "StateVar" not in pair[0]]
        state = {name: variable.numpy() for name, variable in named}
        state |= {f"optimizer{i}": variable.numpy() for i, variable in enumerate(agent.optimizer.variables)}
        state |= {
            "moments": agent.scaling.layer.statistics.numpy(),
            "bandit": agent.bandit.ratings,
            "head probabilities": agent.collect_policy.head_probabilities.numpy(),
            "generator": agent.collect_policy._generator.state.numpy(),
            "steps": run.learner.environment_steps,
            "episodes": run.learner.episodes,
            "sequences": run.replay.size,
            "inserted": run.replay.inserted,
            "sampled": run.replay.sampled,
            "due": run.replay.updates_due(result.updates, 4),
        }
        state |= run.collector.state()
        batch, _ = next(iter(run.replay.dataset(4)))
        state |= {f"batch {i}": column.numpy() for i, column in enumerate(tf.nest.flatten(batch))}
        # Nothing of this is in the checkpoint, and it tells what the environments would have done.
        run.collector.run(60)
        state |= {f"later {name}": array for name, array in run.collector.state().items()}
    return state


@pytest.fixture
def set_torsos(monkeypatch):
    """Notes each time that a torso is set from the replay: update, whether both networks are the same then."""
    noted, centre = [], Learner._centre_torso

    def noting(learner):
        centre(learner)
        agent = learner._agent
        networks = agent.network.variables, agent.target_network.variables
        same = all(np.array_equal(*pair) for pair in zip(*networks, strict=True))
        noted.append((learner.updates, same))

    monkeypatch.setattr(Learner, "_centre_torso", noting)
    return noted


@pytest.mark.parametrize("others", [(), pytest.param((PACED, COMPILED, IMAGES), marks=pytest.mark.slow)])
def test_a_run_that_was_killed_and_then_interrupted_goes_on_bit_for_bit(
    tmp_path, capfd, monkeypatch, set_torsos, others
):
    begun, collecting = [], Seeds.collecting
    monkeypatch.setattr(
        Seeds, "collecting", lambda seeds, step: begun.append(step) or collecting(seeds, step)
    )
    whole, root = tmp_path / "whole", tmp_path / "parts"
    expected = go(whole, *others)
    assert set_torsos == [(0, True)], "before the first update"
    assert expected["episodes"] > 3
    assert any("statistics:0" in name for name in expected), "the input's are compared"
    # What came after the checkpoint is repeated, and counted once.
    shutil.copytree(whole, root)
    shutil.rmtree(root / "checkpoints" / str(UPDATES))
    assert os.listdir(root / "checkpoints") == ["27"]
    stopped = go(root, *others, "train.eval_interval = 5", interrupt_at=34)
    # It stopped within a round, in the middle of episodes and of blocks.
    assert stopped["due"] or others
    assert sum(len(stopped[f"reports/{i}/rewards"]) > 0 for i in range(3)) >= 2
    assert any(len(stopped[f"cutters/{i}/pending/reward"]) for i in range(3))
    found = go(root, *others)
    said = capfd.readouterr().out
    assert "Resumed at update 27.\n" in said and "Resumed at update 34.\n" in said
    assert begun == [0, 27, 34], "environments that cannot be restored would begin other episodes"
    assert len(set_torsos) == 1, "never again"
    assert losses(root) == losses(whole) and len(losses(whole)) == UPDATES
    assert (root / "train/episodes.csv").read_text() == (whole / "train/episodes.csv").read_text()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def losses(root):
    """Update -> loss, the last one where an update was made twice."""
    events = tensors(root / "train")["loss"]
    return dict(zip([event.step for event in events], values(events).tolist(), strict=True))


def start(root, *bindings):
    """Plays a little and ends; how many steps its collector knew of at the start."""
    with configured("train.updates = 0", *bindings), EmbeddedRun(root) as run:
        known = run.collector.environment_steps
        run.collector.run(3)
        run.run()
    return known


def test_where_environments_cannot_be_restored_the_run_says_that_new_episodes_begin(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(GymnasiumVectorEnvironment, "state", lambda self: None)  # as of ALE's
    assert start(tmp_path) == 0
    assert sorted(os.listdir(tmp_path / "checkpoints/0")) == [
        "extra.json",
        "manifest.json",
        "replay",
        "variables.data-00000-of-00001",
        "variables.index",
    ]
    monkeypatch.setattr(GymnasiumVectorEnvironment, "state", lambda self: b"of a former version")
    assert start(tmp_path) == 0
    reason = "New episodes begin: the checkpoint does not hold the state of minatar/space_invaders.\n"
    assert f"Resumed at update 0. {reason}" in capfd.readouterr().out
    assert start(tmp_path) == 0
    assert "begin: the state of minatar/space_invaders does not load: " in capfd.readouterr().out
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert start(tmp_path) == 0
    assert "begin: the environments' state is a pickle" in capfd.readouterr().out


def test_with_other_environments_open_episodes_are_cut_and_large_states_are_left_out(
    tmp_path, capfd, monkeypatch
):
    """One and the same answer for every number of environments."""
    start(tmp_path)
    another = "is no longer the environment whose state was written"
    for envs, largest, why in (
        (1, embedded._LARGEST, another),
        (3, 1000, another),
        (3, 1000, "the checkpoint does not hold the state of"),
    ):
        monkeypatch.setattr(embedded, "_LARGEST", largest)
        assert start(tmp_path, f"train.num_envs = {envs}") == 0
        said = capfd.readouterr().out
        assert "New episodes begin: " in said and why in said
    assert not (tmp_path / "checkpoints/0/environments.pickle").exists()


def test_evaluations_go_on_where_they_were_and_the_chosen_head_is_kept(tmp_path):
    """A resumed run plays the episodes that the straight one plays: the same returns, the same best weights."""
    bindings = (
        *BINDINGS,
        "train.eval_interval = 10",
        "train.eval_envs = 2",
        "train.trial_episodes = 6",
        "RecurrentMultiHeadAgent.evaluation_epsilon = 0.5",
    )

    def go_on(root, updates, interrupt_at=None):
        with configured(*bindings, f"train.updates = {updates}"), EmbeddedRun(root) as run:
            update = run.learner.update
            run.learner.update = lambda: update() if run.learner.updates != interrupt_at else run._stop(0)
            return run.run().head, run.agent.policy.best_head

    (name, head), _, resumed = (
        go_on(tmp_path / "whole", 30),
        *(go_on(tmp_path / "parts", 30, interrupt_at) for interrupt_at in (14, None)),
    )
    assert resumed == (name, head)
    whole, parts = ((tmp_path / root / "eval/episodes.csv").read_text() for root in ("whole", "parts"))
    assert whole == parts and f"\n30,{name}," in whole
    best = [np.load(tmp_path / root / "best.npz") for root in ("whole", "parts")]
    for array in best[0]:
        np.testing.assert_array_equal(*(each[array] for each in best))
    with configured(*bindings, "train.updates = 30"), EmbeddedRun(tmp_path / "whole") as run:
        assert run.agent.policy.best_head == head, "the checkpoint has it"
