"""The parts of a run are connected: each test fails when one of them is cut off from another."""

import numpy as np
import pytest
import tensorflow as tf

from agents.replay.replay import Episode
from agents.running.embedded import EmbeddedRun
from agents.workers import build
from agents.workers.settings import Settings
from rbs_tf import ReturnMoments, environments
from tests.agents.running.test_embedded import configured, scalars

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
    episodes = [Episode(points, 9, head, 0.1) for head, points in zip(heads, returns, strict=True)]
    return {"moments": moments, "episodes": np.array(episodes)}


def test_finished_episodes_move_the_bandit_and_both_policies(run, tmp_path):
    returns = [3.0, -40.0, 250.0, 260.0, 500.0, -7.0, 270.0, 280.0]  # the multiplier has no part in them
    run.replay.put_statistics(report_of(returns[:4], [0, 0, 2, 2]))
    run.replay.put_statistics(report_of(returns[4:], [1, 1, 2, 2]))
    assert run.learner.drain_statistics() == returns
    # Episodes at or above the mean: none of head 0's two, one of head 1's two, all four of head 2's.
    expected = np.array([0.5 / 3, 1.5 / 3, 4.5 / 5])
    np.testing.assert_allclose(
        run.agent.collect_policy.head_probabilities, expected / expected.sum(), rtol=1e-6
    )
    assert run.agent.policy.head_probabilities.numpy().tolist() == [0.0, 0.0, 1.0]
    run.learner.summary_writer.flush()
    written = scalars(tmp_path / "train")
    assert written["episode/return"].tolist() == [pytest.approx(np.mean(returns))]
    assert written["episode/length"].tolist() == [9.0]


def test_an_evaluation_acts_greedily_with_the_head_that_the_bandit_rates_best(run):
    run.replay.put_statistics(report_of([1.0, 1.0, 5.0, 5.0, 2.0, 2.0], [0, 0, 1, 1, 2, 2]))
    run.learner.drain_statistics()
    network, environment, played = run.agent.network, run.eval_environment, []
    rng = np.random.default_rng(0)
    for variable in network.trainable_variables:  # heads that disagree
        variable.assign_add(0.3 * rng.normal(size=variable.shape).astype(np.float32))
    reset, step = environment.reset, environment.step

    def noting_reset():
        played.append((reset(), None))
        return played[-1][0]

    def noting_step(action):
        played.append((step(action), action))
        return played[-1][0]

    environment.reset, environment.step = noting_reset, noting_step
    run.evaluations.run(0, 1, lambda: False)

    state = tf.nest.map_structure(lambda s: tf.zeros((environment.batch_size, *s.shape)), network.state_spec)
    choices = []
    for (time_step, action), (_, taken) in zip(played, played[1:], strict=False):
        previous = np.where(time_step.is_first(), -1, 0 if action is None else action).astype(np.int32)
        inputs = tf.constant(time_step.observation), tf.constant(previous), tf.constant(time_step.reward)
        values, state = network(inputs, tf.constant(time_step.step_type), state)
        matters = ~time_step.is_last()
        choices.append((values.numpy().argmax(axis=-1) == taken[:, None])[matters])
    agreement = np.concatenate(choices).mean(axis=0)
    assert agreement[1] == 1.0 and agreement[0] < 1.0 and agreement[2] < 1.0


def test_head_and_return_of_every_episode_of_evaluations_are_kept(run, tmp_path):
    played = []

    def evaluate(update, head):
        run.agent.policy.head_probabilities.assign(tf.one_hot(head, 3))
        run.evaluations.run(update, 2, lambda: False)
        assert run.evaluations.last_episodes.startswith("4 episodes")
        played.append((str(update), run.agent.heads.names[head], run.evaluations.last_return))

    def kept():
        header, *lines = (tmp_path / "eval/episodes.csv").read_text().splitlines()
        assert header == "update,head,return,steps"
        rows = [line.split(",") for line in lines]
        assert all(int(steps) > 0 for *_, steps in rows)
        by_update = {row[0]: row[1] for row in rows}
        returns = {update: [float(row[2]) for row in rows if row[0] == update] for update in by_update}
        assert all(len(of_one) == 4 for of_one in returns.values())
        return [(update, head, np.mean(returns[update])) for update, head in by_update.items()]

    for update, head in ((3, 0), (5, 2), (9, 1)):
        evaluate(update, head)
    assert kept() == played
    evaluate(5, 1)  # by a start that had gone back to a checkpoint
    assert kept() == [played[0], played[-1]]


def test_actions_are_sticky_in_evaluation_alone_if_asked_for(monkeypatch):
    asked, make = [], environments.make

    def noting(*arguments, **options):
        asked.append(options.get("repeat_action_probability"))
        return make(*arguments, **options)

    monkeypatch.setattr(environments, "make", noting)
    with configured("train.eval_repeat_action_probability = 0.25"):
        settings = Settings.configured()
        build.build_eval_environment(settings).close()
        build.build_environment(settings, 1, settings.seeds.collecting(7)).close()
    assert asked == [0.25, None]


def test_first_priorities_in_the_replay_are_the_agents_own(tmp_path):
    with (
        configured(*HEADS, "train.scaling = @scalings.none"),
        EmbeddedRun(tmp_path) as run,
    ):
        while run.replay.size < 12:
            run.collector.run(20)
        sequence, info = next(iter(run.replay.dataset(8)))
        expected = run.agent.loss(
            sequence
        ).extra.priorities.numpy()  # no update yet: both networks are what acted
        found = info.priority.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert len(np.unique(found.round(6))) > 1


@pytest.mark.parametrize("backend", ["reverb", "local"])
def test_an_update_hands_the_priorities_of_what_it_has_drawn_back_to_the_replay(backend, tmp_path):
    still = "RecurrentMultiHeadAgent.learning_rate = 0.0"
    with (
        configured(*HEADS, still, f"Replay.backend = '{backend}'", "train.scaling = @scalings.none"),
        EmbeddedRun(tmp_path) as run,
    ):
        while run.replay.size < 12:
            run.collector.run(20)
        draws, overwritten = iter(run.replay.dataset(8)), set()
        for _ in range(4):
            _, info = next(draws)
            run.replay.update_priorities(info.key, tf.fill([8], np.float64(3.0)))
            overwritten.update(info.key.numpy())
        for _ in range(3):
            run.learner.update()
        handed_back = 0
        for _ in range(4):
            sequence, info = next(draws)
            # Weights have not moved, so that an update would find the same once more.
            expected = run.agent.loss(sequence).extra.priorities.numpy()
            found = info.priority.numpy()
            by_an_update = np.isin(info.key.numpy(), list(overwritten)) & (found != 3.0)
            np.testing.assert_allclose(found[by_an_update], expected[by_an_update], rtol=1e-3)
            handed_back += int(by_an_update.sum())
    assert handed_back > 0


def test_a_normalised_torso_is_set_from_the_replay_before_the_first_update_and_never_again(tmp_path):
    calls = []

    def go(updates):
        normalised = "RecurrentQNetwork.normalise_torso = 'centre'"
        with configured(*HEADS, normalised, f"train.updates = {updates}"), EmbeddedRun(tmp_path) as run:
            set_torso = run.agent.set_torso_from

            def noting(sequences):
                set_torso(sequences)
                rows = sum(sequence.steps.reward.numpy().size for sequence in sequences)
                networks = run.agent.network.variables, run.agent.target_network.variables
                same = all(np.array_equal(*pair) for pair in zip(*networks, strict=True))
                calls.append((run.learner.updates, rows >= 1024, same))

            run.agent.set_torso_from = noting
            run.run()
            return [variable.numpy() for variable in run.agent.network.variables if "mean" in variable.name]

    means = go(6)
    assert means and all(mean.any() for mean in means)
    for before, after in zip(means, go(12), strict=True):
        np.testing.assert_array_equal(after, before)
    assert calls == [(0, True, True)]


def test_dead_units_are_looked_at_with_each_summary_and_told_once(run, tmp_path, capsys):
    stage = run.agent.network._torso._stages[-1]
    stage.bias.assign(tf.fill(stage.bias.shape, -1e6))
    run.run()
    run.learner.summary_writer.flush()
    (layer,) = (tag for tag in scalars(tmp_path / "train") if tag.startswith("torso/dead_units/linear"))
    assert scalars(tmp_path / "train")[layer].tolist() == [1.0, 1.0]  # of updates 5 and 10
    said = "100% of the units of the torso's layer linear_2 put out 0"
    assert capsys.readouterr().out.count(said) == 1


def test_all_that_was_collected_is_in_sigma_before_an_update(run):
    update, counts = run.learner.update, []

    def noting_update():
        counts.append((float(run.agent.scaling.layer.moments.count[0]), run.collector.environment_steps))
        return update()

    run.learner.update = noting_update
    run.run()
    seen, collected = np.transpose(counts)
    assert len(counts) == 12 and collected[-1] > collected[0]
    np.testing.assert_array_equal(seen, collected)
