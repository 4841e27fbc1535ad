"""The parts of a run are connected: each test fails when one of them is cut off from another."""

import numpy as np
import pytest
import tensorflow as tf

from agents.replay.replay import Episode
from agents.running.embedded import EmbeddedRun
from rbs_tf import ReturnMoments
from tests.agents.quickstart import configured, scalars

HEADS = (
    "Heads.pairs = ((0.5, True), (0.9, True), (0.99, False))",
    "train.updates = 12",
    "Heads.reward_multiplier = 0.25",
)


@pytest.fixture
def run(tmp_path):
    with configured(*HEADS), EmbeddedRun(tmp_path) as run:
        yield run


def report_of(returns, heads):
    """Episodes that some collector has finished, in steps that say nothing."""
    steps = np.zeros((2, 4, 3))
    moments = ReturnMoments.from_steps(*steps).to_array()
    episodes = [Episode(points, 9, head, 0.1, 2) for head, points in zip(heads, returns, strict=True)]
    return {"moments": moments, "episodes": np.array(episodes)}


def test_finished_episodes_move_the_bandit_and_what_is_acted_with(run, tmp_path):
    returns = [3.0, -40.0, 250.0, 260.0, 500.0, -7.0, 270.0, 280.0]  # the multiplier has no part in them
    run.replay.put_statistics(report_of(returns[:4], [0, 0, 1, 1]))
    run.replay.put_statistics(report_of(returns[4:], [2, 2, 1, 1]))
    assert run.learner.drain_statistics() == returns
    # Episodes at or above the mean: none of head 0's two, all four of head 1's, one of head 2's two.
    expected = np.array([0.5 / 3, 4.5 / 5, 1.5 / 3])
    np.testing.assert_allclose(
        run.agent.collect_policy.head_probabilities, expected / expected.sum(), rtol=1e-6
    )
    assert run.agent.policy.head_probabilities.numpy().tolist() == [0.0, 1.0, 0.0]
    run.learner.summary_writer.flush()
    written = scalars(tmp_path / "train")
    assert written["episode/return"].tolist() == [pytest.approx(np.mean(returns))]
    assert written["episode/length"].tolist() == [9.0]
    header, *rows = (tmp_path / "train/episodes.csv").read_text().splitlines()
    assert header == "environment_steps,head,epsilon,return,steps,rewards"
    heads = [run.agent.heads.names[head] for head in (0, 0, 1, 1, 2, 2, 1, 1)]
    assert [row.split(",")[1:] for row in rows] == [
        [head, "0.1", str(points), "9", "2"] for head, points in zip(heads, returns, strict=True)
    ]

    # An evaluation acts greedily with the head that the bandit rates best.
    run.evaluations.run(0, 1, lambda: False)
    assert f"greedy, head {run.agent.heads.names[1]} (the bandit's best)" in run.evaluations.last_words

    # Head and return of every episode of evaluations are kept.
    kept = [(0, 1, run.evaluations.last_return)]

    def evaluate(update, head):
        run.agent.policy.act_with(head)
        run.evaluations.run(update, 2, lambda: False)
        assert run.evaluations.last_words.startswith("4 episodes")
        kept.append((update, head, run.evaluations.last_return))

    def assert_kept(*episodes):
        header, *lines = (tmp_path / "eval/episodes.csv").read_text().splitlines()
        assert header == "update,head,return,steps"
        rows = [line.split(",") for line in lines]
        assert all(int(steps) > 0 for *_, steps in rows)
        found = {}
        for update, head, points, _ in rows:
            found.setdefault((int(update), run.agent.heads.names.index(head)), []).append(float(points))
        assert [(*key, np.mean(points)) for key, points in found.items()] == kept
        assert [len(points) for points in found.values()] == [*episodes]

    for update, head in ((3, 0), (5, 2), (9, 1)):
        evaluate(update, head)
    assert_kept(2, 4, 4, 4)
    del kept[2:]
    evaluate(5, 1)  # by a start that had gone back to a checkpoint
    assert_kept(2, 4, 4)


def test_statistics_come_before_updates_dead_units_are_told_and_weights_that_are_no_numbers_end_it(
    run, tmp_path, capsys
):
    stage = run.agent.network._torso._stages[-1]
    stage.bias.assign(tf.fill(stage.bias.shape, -1e6))
    update, counts = run.learner.update, []

    def noting_update():
        counts.append((float(run.agent.scaling.layer.moments.count[0]), run.collector.environment_steps))
        return update()

    run.learner.update = noting_update
    run.run()
    # All that was collected is in sigma before an update.
    seen, collected = np.transpose(counts)
    assert len(counts) == 12 and collected[-1] > collected[0]
    np.testing.assert_array_equal(seen, collected)
    # Dead units are looked at with each summary, and told once.
    run.learner.summary_writer.flush()
    (layer,) = (tag for tag in scalars(tmp_path / "train") if tag.startswith("torso/dead_units/linear"))
    assert scalars(tmp_path / "train")[layer].tolist() == [1.0, 1.0]  # of updates 5 and 10
    said = f"100% of the units of the torso's layer {layer.rpartition('/')[2]} put out 0"
    assert capsys.readouterr().out.count(said) == 1
    # No checkpoint is written of what is no number.
    saved = sorted((tmp_path / "checkpoints").iterdir())
    biases = run.agent.network.heads.bv  # before the last layer, relu would turn NaN into 0
    biases.assign(biases * np.nan)
    with pytest.raises(FloatingPointError, match="loss of update 13"):
        update()
    assert sorted((tmp_path / "checkpoints").iterdir()) == saved


@pytest.mark.parametrize("backend", [pytest.param("reverb", marks=pytest.mark.slow), "local"])
def test_priorities_in_the_replay_are_the_agents_own_from_the_first_on(backend, tmp_path):
    still = "RecurrentMultiHeadAgent.learning_rate = 0.0"
    with (
        configured(*HEADS, still, f"Replay.backend = '{backend}'", "train.scaling = @scalings.none"),
        EmbeddedRun(tmp_path) as run,
    ):
        while run.replay.size < 12:
            run.collector.run(20)
        draws, overwritten = iter(run.replay.dataset(8)), set()

        def drawn():
            sequence, info = next(draws)
            # Weights do not move, so that an update would find the same once more.
            expected = run.agent.loss(sequence).extra.priorities.numpy()
            return expected, info.priority.numpy(), info.key

        expected, found, _ = drawn()
        np.testing.assert_allclose(found, expected, rtol=1e-3)
        assert len(np.unique(found.round(6))) > 1
        for _ in range(4):
            _, info = next(draws)
            run.replay.update_priorities(info.key, tf.fill([8], np.float64(3.0)))
            overwritten.update(info.key.numpy())
        for _ in range(3):
            run.learner.update()
        handed_back = 0
        for _ in range(4):
            expected, found, key = drawn()
            by_an_update = np.isin(key.numpy(), list(overwritten)) & (found != 3.0)
            np.testing.assert_allclose(found[by_an_update], expected[by_an_update], rtol=1e-3)
            handed_back += int(by_an_update.sum())
    assert handed_back > 0


def test_the_head_that_a_trial_finds_acts_and_the_bandits_plays_for_comparison(run, tmp_path, monkeypatch):
    agent, evaluations = run.agent, run.evaluations
    agent.policy.act_with(1)
    monkeypatch.setattr(evaluations.evaluator, "trial", lambda episodes, stopped: (2, episodes))
    evaluations.run(0, 1, lambda: False, trial_episodes=9)
    assert agent.policy.best_head == 2
    played = [line.split(",")[1] for line in (tmp_path / "eval/episodes.csv").read_text().splitlines()[1:]]
    first, second = agent.heads.names[1:3]
    assert played == [first] * (len(played) // 2) + [second] * (len(played) // 2)
    assert f"head {second} (the best of a trial of 9 episodes" in evaluations.last_words
    assert f"; the bandit's, {first}, earns" in evaluations.last_words
