"""What a run has learned, played."""

import json
import shutil
import sys

import numpy as np
import pytest

from agents import Agent
from agents.__main__ import main
from agents.commands import loading, play
from tests.agents.commands.small_runs import BINDINGS, CARTPOLE, NAMES, refusal, write_slim_run


def test_the_best_weights_are_those_of_the_highest_evaluation(run, agent):
    update, mean, weights = max(run.offered, key=lambda of: of[1])
    assert agent.update == update
    assert f"Best evaluation so far: {mean:.4g} per episode in 2 episodes" in agent.weights
    for variable, values in zip(agent.tf_agent.acting_variables, weights, strict=True):
        if variable is not agent.tf_agent.policy.head_probabilities:
            np.testing.assert_array_equal(variable, values)
        else:
            assert agent.head == np.argmax(values)
            np.testing.assert_array_equal(variable, np.eye(2)[agent.head])


def test_the_latest_weights_are_those_of_the_newest_checkpoint(run, tmp_path):
    agent = Agent.load(run.root, "latest", head="0")
    assert agent.update == 30 and agent.head == 0
    for variable, values in zip(agent.tf_agent.network.variables, run.newest, strict=True):
        np.testing.assert_array_equal(variable, values)
    # So are the best of a run that has kept none.
    shutil.copytree(run.root, tmp_path / "run")
    (tmp_path / "run" / "best.npz").unlink()
    agent = Agent.load(tmp_path / "run", head="unclipped_0.99")
    assert agent.weights == "The run has kept no best weights. Newest checkpoint: update 30."
    assert agent.chosen == "Acting: head unclipped_0.99, as asked for."


def test_every_head_plays_in_turn_and_greedily(run, capsys, monkeypatch):
    acting, moments = [], play.moments

    def noted(agent, *arguments):
        acting.append(agent.tf_agent.policy.head_probabilities.numpy().tolist())
        return moments(agent, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(play, "moments", noted)
        assert main(["play", str(run.root), "--heads", "--episodes=3", "--seed=3"]) == 0
    assert acting == np.eye(2).tolist()
    header, *lines = capsys.readouterr().out.splitlines()
    assert "Acting" not in header and "Best evaluation so far" in header
    agent = Agent.load(run.root)
    environment = agent.make_environment(3, 3)  # one for all heads, whose starts differ
    for head, (name, line) in enumerate(zip(NAMES, lines, strict=True)):
        agent.let_act(head)
        ended = [moment for moment in moments(agent, environment, 3) if moment.ended]
        different = len({(moment.step, moment.episode_return) for moment in ended})
        repeated = "" if different == 3 else f", {different} different"
        assert line.startswith(
            f"{name}: mean return {np.mean([m.episode_return for m in ended]):.6g}, 95% interval"
        )
        assert line.endswith(f", 3 episodes{repeated}")
    environment.close()


def by_number(all_moments, episodes):
    """The moments of each episode, by its number."""
    played = {number: [] for number in range(1, episodes + 1)}
    for moment in all_moments:
        played[moment.episode].append(moment)
    for moments in played.values():
        assert [moment.step for moment in moments] == list(range(len(moments)))
        assert [moment.ended for moment in moments] == [False] * (len(moments) - 1) + [True]
        assert moments[-1].episode_return == sum(moment.reward for moment in moments)
    return played


def test_every_environment_plays_episodes_of_its_own_whoever_is_done_first(tmp_path, played):
    """No episode is lost to a cut, either."""
    # Outputs are values, of which `return_out` would make zeros.
    bindings = (*BINDINGS, *CARTPOLE, "train.scaling = @scalings.return_based")
    untrained = Agent.load(write_slim_run(tmp_path / "run", *bindings))
    concatenate_parts = by_number(played(untrained, 5, num_envs=2), 5)
    lengths = [len(moments) for moments in concatenate_parts.values()]
    assert lengths[0] != lengths[1]
    alone = by_number(played(untrained, 3), 3)  # the same as the first of the two
    for number, moments in alone.items():
        twins = concatenate_parts[2 * number - 1]
        assert [moment.action for moment in moments] == [moment.action for moment in twins]
        assert [moment.reward for moment in moments] == [moment.reward for moment in twins]
        np.testing.assert_allclose([m.values for m in moments], [m.values for m in twins], rtol=1e-3)
    untrained.reset()
    for moment in alone[1][:-1]:  # what the agent was told when it acted
        assert untrained.act(moment.observation, moment.reward) == moment.action
        np.testing.assert_allclose(untrained.values, moment.values, rtol=1e-3)
    cut_short = by_number(played(untrained, 7, num_envs=3, max_steps=8), 7)
    for moments in cut_short.values():
        assert len(moments) == 9 and moments[-1].cut and moments[-1].action is None


def test_playing_prints_every_return_and_their_mean_and_leaves_the_folder_as_it_was(run, capsys, monkeypatch):
    monkeypatch.setattr(play, "SIDE_BY_SIDE", 2)

    def contents():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.root.rglob("*")}

    before = contents()
    assert main(["play", str(run.root), "--episodes=3", "--max_steps=12", "--seed=1"]) == 0
    first, *episodes, last = capsys.readouterr().out.splitlines()
    assert first.startswith("minatar/space_invaders. Best evaluation so far: ")
    returns = [float(line.split("return ")[1].split(",")[0]) for line in episodes]
    assert [line.split(":")[0] for line in episodes] == ["episode 1", "episode 2", "episode 3"]
    assert any("12 steps, cut there" in line for line in episodes)
    assert float(last.split("mean return ")[1].split(",")[0]) == pytest.approx(np.mean(returns), rel=1e-5)
    assert contents() == before
    assert main(["play", str(run.root), "--episodes=3", "--max_steps=12", "--seed=1"]) == 0
    assert capsys.readouterr().out.splitlines() == [first, *episodes, last]


def test_what_cannot_be_played_is_refused_in_one_line(run, tmp_path, capsys, monkeypatch):
    assert f"There is no folder {tmp_path}/none" in refusal(capsys, tmp_path / "none")
    (tmp_path / "config.gin").write_text("train.updates = 3")
    assert "holds no weights yet" in refusal(capsys, tmp_path)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    for flags, answer in (
        (["--heads", "--head=0"], "Leave out one of the two"),
        (["--heads", "--video=out.gif"], "Leave out one of the two"),
        (["--video=out.avi"], "ends in .mp4 or .gif"),
        ([f"--video={tmp_path}/none/out.gif"], "cannot be written"),
        ([f"--video={tmp_path}/out.mp4"], "pip install imageio-ffmpeg"),
    ):
        assert answer in refusal(capsys, run.root, *flags), flags


def test_pretrained_weights_play_and_export_by_name_or_are_refused_in_a_sentence(
    atari, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(loading, "PRETRAINED", atari)
    name = "--pretrained=small_breakout"
    assert main(["play", name, "--episodes=3", "--max_steps=30"]) == 0
    first, *episodes, last = capsys.readouterr().out.splitlines()
    assert all(line.endswith("cut there") for line in episodes) and "human-normalised" not in last
    assert main(["play", name, "--episodes=1"]) == 0
    assert "; human-normalised " in capsys.readouterr().out.splitlines()[-1]
    assert "1.5 per episode in 2 episodes, at update 7" in first and len(episodes) == 3
    assert first.endswith("As in its evaluations, 5% of its actions are random.")
    assert main(["export", name, str(tmp_path / "exported")]) == 0
    described = json.loads((tmp_path / "exported" / "policy.json").read_text())
    assert (described["environment"], described["update"]) == ("breakout", 7)
    capsys.readouterr()
    answer = refusal(capsys, "--pretrained=pong")
    assert "There is no pretrained agent 'pong'. There is: small_breakout." in answer
    assert "either RUN_DIR" in refusal(capsys, "runs/mine", name)
    assert "or --pretrained=NAME" in refusal(capsys)


def test_the_weights_in_the_repository_are_whole_and_small():
    names = [path.name for path in loading.PRETRAINED.iterdir() if path.is_dir()]
    assert "pong" in names
    files = [file for name in names for file in loading.pretrained_folder(name).iterdir()]
    assert sum(file.stat().st_size for file in files) < 5e6
