"""A run that was killed or stopped goes on from its checkpoint, in new episodes, and counts every step once."""

import os
import re
import shutil

import numpy as np
import pytest

from agents.running.embedded import EmbeddedRun
from agents.seeds import Seeds
from agents.workers.learner import Learner
from tests.agents.quickstart import configured, tensors, values

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


def state(run):
    """What a checkpoint holds of a run in one process, by name."""
    agent, replay = run.agent, run.replay
    variables = [*agent.variables, *agent.optimizer.variables]
    names = [re.sub(r"_\d+", "", variable.name) for variable in variables]
    return {f"{index} {name}": variables[index].numpy() for index, name in enumerate(names)} | {
        "moments": agent.scaling.layer.statistics.numpy(),
        "bandit": agent.bandit.ratings,
        "head probabilities": agent.collect_policy.head_probabilities.numpy(),
        "generator": agent.collect_policy._generator.state.numpy(),
        "steps": run.learner.environment_steps,
        "episodes": run.learner.episodes,
        "table": (replay.size, replay.inserted, replay.sampled),
        "priorities": np.sort(replay._priorities),
        "draws": str(replay._random.bit_generator.state),
        "waiting": [key for key, _ in replay._queue],
    }


def go(root):
    """Trains in `root`; its states at the checkpoints, how it began, and steps that were collected now."""
    states = {}
    with configured(*BINDINGS, f"train.updates = {UPDATES}"), EmbeddedRun(root) as run:
        begun, save = state(run), run.learner.save

        def saved():
            states[run.learner.updates] = state(run)
            save()

        run.learner.save = saved
        assert run.run().updates == UPDATES
        return states, begun, run.collector.environment_steps


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


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


def test_a_run_repeats_bit_for_bit_and_one_that_was_killed_goes_on_from_its_checkpoint(
    tmp_path, capfd, monkeypatch, set_torsos
):
    begun, collection_seed = [], Seeds.collection_seed
    monkeypatch.setattr(
        Seeds, "collection_seed", lambda seeds, step: begun.append(step) or collection_seed(seeds, step)
    )
    root = tmp_path / "killed"
    whole, _, collected = go(tmp_path / "whole")
    again, _, _ = go(root)
    assert list(whole) == [27, UPDATES] and whole[UPDATES]["episodes"] > 3
    assert whole[UPDATES]["steps"] == collected
    for update in whole:
        again[update]["waiting"] = whole[update]["waiting"]  # keys, which are random
        assert_equal(whole[update], again[update])
    assert losses(root) == losses(tmp_path / "whole") and len(losses(root)) == UPDATES
    assert set_torsos == 2 * [(0, True)], "before the first update"

    # Everything behind the checkpoint is forgotten, its statistics in the log too.
    shutil.rmtree(root / "checkpoints" / str(UPDATES))
    end, found, collected = go(root)
    assert "Resumed at update 27.\n" in capfd.readouterr().out
    assert begun == [0, 0, 27] and len(set_torsos) == 2
    assert_equal(found, whole[27])
    assert end[UPDATES]["steps"] == whole[27]["steps"] + collected == end[UPDATES]["moments"][0, 0]

    # Killed before it had written any checkpoint, it begins again.
    shutil.rmtree(root / "checkpoints")
    assert os.listdir(root / "statistics")
    end, _, collected = go(root)
    assert end[UPDATES]["steps"] == collected == end[UPDATES]["moments"][0, 0]


def losses(root):
    events = tensors(root / "train")["loss"]
    return dict(zip([event.step for event in events], values(events).tolist(), strict=True))


def test_evaluations_go_on_and_the_chosen_head_is_kept(tmp_path):
    bindings = (
        *BINDINGS,
        "train.eval_interval = 10",
        "train.eval_envs = 2",
        "train.final_eval_rounds = 1",
        "train.trial_episodes = 6",
        "RecurrentMultiHeadAgent.evaluation_epsilon = 0.5",
    )

    def go_on(updates, interrupt_at=None):
        with configured(*bindings, f"train.updates = {updates}"), EmbeddedRun(tmp_path) as run:
            update = run.learner.update
            run.learner.update = lambda: update() if run.learner.updates != interrupt_at else run._stop(0)
            return run.run().head, run.agent.policy.best_head

    go_on(30, interrupt_at=14)
    name, head = go_on(30)
    rows = [row.split(",") for row in (tmp_path / "eval/episodes.csv").read_text().splitlines()[1:]]
    assert list(dict.fromkeys(update for update, *_ in rows)) == ["10", "20", "30"]
    assert rows[-1][:2] == ["30", name]
    with configured(*bindings, "train.updates = 30"), EmbeddedRun(tmp_path) as run:
        assert run.agent.policy.best_head == head, "the checkpoint has it"
