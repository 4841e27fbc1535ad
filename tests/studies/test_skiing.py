"""Rewards without variance: what sigma does not see, and scales that do."""

import csv

import numpy as np
import pytest

from rbs_tf import ReturnMoments
from rbs_tf.return_scaling import batch_sigma
from studies import skiing, skiing_errors

SIGMA_V = 1e-2
NAMES = list(skiing_errors.VARIANTS)
HEAD = skiing_errors.NAMES.index("clipped 0")


def recording(rewards, last, arrived=None) -> skiing_errors.Recording:
    """[K, N] each; every end is a true one."""
    rewards, last = np.asarray(rewards, float), np.asarray(last, bool)
    return skiing_errors.Recording(
        rewards, 1.0 - last, last, np.ones_like(last) if arrived is None else arrived
    )


def constant(rounds: int, length: int, reward: float = -5.0) -> skiing_errors.Recording:
    """One environment whose episodes last `length` steps and pay the same in every one."""
    steps = np.arange(rounds * skiing_errors.ROUND)
    return recording(np.full((len(steps), 1), reward), (steps % length == length - 1)[:, None])


def irregular() -> skiing_errors.Recording:
    """Two environments, three rounds, episodes that end anywhere, steps that are none."""
    rng = np.random.default_rng(0)
    last = rng.random((3 * skiing_errors.ROUND, 2)) < 0.05
    arrived = np.ones_like(last)
    arrived[1:] = ~last[:-1]
    last &= arrived
    return recording(rng.normal(-2.0, 3.0, last.shape), last, arrived)


@pytest.fixture(scope="module")
def played():
    return skiing_errors.record("skiing", num_envs=1, steps=1_600)


def test_skiing_pays_every_step_and_at_the_end_so_that_clipped_rewards_are_constant(played):
    ((rows, environment), *_) = played.episodes
    rewards = played.rewards[rows, environment]
    assert set(np.unique(rewards[:-1])) == {-7.0, -6.0}
    assert -10_000 <= rewards[-1] <= -5_000
    assert 700 < len(rewards) < 1_600
    clipped, _ = skiing_errors.head_columns(played.rewards[played.arrived], 1.0)
    assert (clipped[:, skiing_errors.CLIPS] == -1.0).all()


def test_in_skiing_sigma_alone_lets_errors_of_a_hundred_through_and_the_mean_error_stops_them(played):
    known, sums = skiing_errors.statistics(played, SIGMA_V), skiing_errors.sequence_sums(played)
    curves = skiing_errors.standing(sums, known)
    first = known.first
    assert 0 < first < len(known.steps)
    assert (known.sigma[:first, skiing_errors.CLIPS] == 0.0).all()
    assert (known.sigma[:, HEAD] == 0.0).all()
    assert (known.sigma[first:, skiing_errors.CLIPS][:, 1:] > 0.0).all()
    np.testing.assert_allclose(
        curves.errors[:first, skiing_errors.PAPER, skiing_errors.CLIPS], 100.0, rtol=1e-12
    )
    np.testing.assert_allclose(curves.errors[:, skiing_errors.PAPER, HEAD], 100.0, rtol=1e-12)
    assert curves.shares[first:, skiing_errors.PAPER, HEAD].min() > 0.9
    assert curves.errors[:, skiing_errors.REMEDY].max() < 1.1
    assert curves.shares[first:, skiing_errors.REMEDY, HEAD].max() < 0.5


def test_the_heads_are_the_papers():
    rewards, discounts = skiing_errors.head_columns(np.array([-7.0, 0.5]), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(rewards[0], [-1.0] * 5 + [-7.0] * 5)
    np.testing.assert_array_equal(rewards[1], 0.5)
    np.testing.assert_array_equal(discounts[0], [0.0, 0.9, 0.99, 0.999, 1.0] * 2)
    np.testing.assert_array_equal(discounts[1], 0.0)


def test_values_from_steps_are_returns_of_that_many_steps():
    mean_reward, gamma = np.full(3, -2.0), np.array([0.0, 0.5, 1.0])
    np.testing.assert_array_equal(skiing_errors.value_from_steps(mean_reward, gamma, 3), [-2.0, -3.5, -6.0])


def test_with_the_mean_error_a_constant_error_is_never_scaled_above_one():
    errors = np.array([1e-3, 1.0, 1e6])
    np.testing.assert_array_equal(skiing_errors.total_scale(np.full(3, SIGMA_V), errors), [SIGMA_V, 1.0, 1e6])
    summed = skiing_errors.total_scale(np.full(3, SIGMA_V), errors, added=True, floored=False)
    np.testing.assert_allclose(summed, np.hypot(SIGMA_V, errors), rtol=1e-15)
    assert (errors / summed <= 1.0).all()


def test_the_mean_error_leaves_scales_alone_that_are_larger():
    floors = np.array([0.3, 2.0, 50.0])
    for mean in (-0.3, 0.0, 0.3):
        np.testing.assert_array_equal(skiing_errors.total_scale(floors, mean), floors)
    np.testing.assert_array_equal(skiing_errors.total_scale(floors, 7.0, added=False, floored=False), floors)


@pytest.mark.parametrize("factor", [0.5, -4.0, 1024.0])
def test_the_remedy_is_homogeneous_of_degree_one(factor):
    """In errors and floor together: scaled errors do not change with the unit of rewards."""
    floors, means = np.array([0.3, 2.0, 0.0]), np.array([-1.5, 0.25, 3.0])
    for kind in ({"added": True, "floored": False}, {"added": False, "floored": True}):
        expected = abs(factor) * skiing_errors.total_scale(floors, means, **kind)
        np.testing.assert_array_equal(
            skiing_errors.total_scale(abs(factor) * floors, factor * means, **kind), expected
        )


def test_constant_rewards_before_any_end():
    known = skiing_errors.statistics(constant(rounds=3, length=10_000), SIGMA_V)
    curves = skiing_errors.standing(skiing_errors.sequence_sums(constant(rounds=3, length=10_000)), known)
    assert known.first == 3
    assert (known.sigma == 0.0).all()
    expected = np.where(skiing_errors.CLIPS, 1.0, 5.0)
    np.testing.assert_allclose(
        curves.errors[:, skiing_errors.PAPER], np.tile(expected / SIGMA_V, (3, 1)), rtol=1e-12
    )
    np.testing.assert_array_equal(curves.errors[:, skiing_errors.REMEDY], 1.0)
    np.testing.assert_array_equal(curves.scales[:, skiing_errors.REMEDY], np.tile(expected, (3, 1)))
    summed = curves.errors[:, NAMES.index("mean error (sum of squares)")]
    np.testing.assert_allclose(summed, np.tile(expected / np.hypot(expected, SIGMA_V), (3, 1)), rtol=1e-12)
    # A bias cannot take the error away that every step makes when nothing is discounted.
    steps = curves.errors[:, NAMES.index("value bias from steps")]
    assert steps[:, HEAD].max() == 0.0
    np.testing.assert_allclose(steps[:, skiing_errors.GAMMAS == 1.0], [[100.0, 500.0]] * 3, rtol=1e-12)


def test_statistics_are_those_of_whole_episodes_once_these_have_ended():
    game = constant(rounds=3, length=30)
    known = skiing_errors.statistics(game, SIGMA_V)
    assert known.first == 0
    np.testing.assert_array_equal(known.steps, [40, 80, 120])
    rewards, discounts = skiing_errors.head_columns(np.full(30, -5.0), np.append(np.ones(29), 0.0))
    episode = ReturnMoments.from_episode(rewards, discounts)
    np.testing.assert_allclose(known.sigma[2], episode.sigma, rtol=1e-12)
    np.testing.assert_allclose(known.biases[2, skiing_errors.BIASED], episode.mean_return, rtol=1e-12)
    np.testing.assert_allclose(
        known.floors[2, skiing_errors.PAPER], np.maximum(episode.sigma, SIGMA_V), rtol=1e-12
    )
    squares = known.floors[2, NAMES.index("E[R^2] for good")]
    np.testing.assert_allclose(squares, np.sqrt(episode.sigma_squared + episode.reward_mean**2), rtol=1e-12)
    # Returns were known with the first report: "until then" is never.
    np.testing.assert_array_equal(
        known.floors[:, NAMES.index("E[R^2] until a return")], known.floors[:, skiing_errors.PAPER]
    )


def test_steps_that_begin_an_episode_count_for_nothing():
    game = irregular()
    changed = game._replace(rewards=np.where(game.arrived, game.rewards, 1e9))
    np.testing.assert_array_equal(
        skiing_errors.statistics(changed, SIGMA_V).sigma, skiing_errors.statistics(game, SIGMA_V).sigma
    )
    np.testing.assert_array_equal(skiing_errors.sequence_sums(changed), skiing_errors.sequence_sums(game))
    assert skiing_errors.statistics(game, SIGMA_V).steps[-1] == game.arrived.sum() < game.arrived.size


def test_sums_give_the_sigma_of_a_batch_as_the_agent_takes_it():
    game = irregular()
    time_major = [
        x.reshape(3, skiing_errors.ROUND, 2, -1).transpose(1, 0, 2, 3).reshape(skiing_errors.ROUND, 6, -1)
        for x in (*skiing_errors.head_columns(game.rewards, game.discounts), game.arrived)
    ]
    expected = batch_sigma(time_major[0], time_major[1], time_major[2][..., 0]).numpy()
    sums = skiing_errors.sequence_sums(game).sum(axis=(0, 1))
    np.testing.assert_allclose(skiing_errors.batch_sigma(sums), expected, rtol=1e-9)


def test_sums_give_mean_and_variance_of_the_errors():
    game = irregular()
    values = np.linspace(-3.0, 2.0, len(skiing_errors.NAMES))
    rewards, discounts = skiing_errors.head_columns(game.rewards[game.arrived], game.discounts[game.arrived])
    errors = rewards + discounts * values - values
    mean, variance = skiing_errors.error_moments(skiing_errors.sequence_sums(game).sum(axis=(0, 1)), values)
    np.testing.assert_allclose(mean, errors.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(variance, errors.var(axis=0), rtol=1e-9)


def test_adam_moves_a_bias_by_its_learning_rate_and_offsets_are_learned_by_all():
    """Constant reward -1, so that the clipped head without discount has to go from 0 to -1 in steps of 2e-4."""
    game = constant(rounds=50, length=500, reward=-1.0)
    known, sums = skiing_errors.statistics(game, SIGMA_V), skiing_errors.sequence_sums(game)
    curves = skiing_errors.learning(sums, known, updates=8_000)
    unbiased = [row for row, variant in enumerate(skiing_errors.VARIANTS.values()) if not variant.bias]
    np.testing.assert_allclose(curves.values[1, unbiased, 4], -skiing_errors.STORED * 2e-4, rtol=1e-3)
    np.testing.assert_allclose(curves.values[-1, :, HEAD], -1.0, atol=SIGMA_V)
    assert (curves.errors[:, skiing_errors.REMEDY, HEAD] <= 1.0 + 1e-12).all()
    noise = skiing_errors.offset_learned(curves, sums, SIGMA_V)[:, HEAD]
    assert noise[skiing_errors.REMEDY] < noise[skiing_errors.PAPER] < 8_000
    assert noise[skiing_errors.BOTH] < noise[skiing_errors.REMEDY]
    assert noise[NAMES.index("value bias from steps")] == 0.0
    # gamma 0.9 goes to -10.
    assert skiing_errors.offset_learned(curves, sums, SIGMA_V)[skiing_errors.PAPER, HEAD + 1] == np.inf


def test_shares_add_up_to_one_and_are_nothing_without_gradients():
    gradients = np.array([[[1.0, 3.0], [0.0, 0.0]]])
    curves = skiing_errors.Curves(*[np.zeros(1)] * 2, *[np.zeros_like(gradients)] * 3, gradients)
    np.testing.assert_array_equal(curves.shares, [[[0.25, 0.75], [0.0, 0.0]]])


@pytest.mark.parametrize("name", skiing.ORDINARY)
def test_in_ordinary_games_the_remedy_changes_nothing(name):
    game = skiing_errors.record(name, num_envs=4, steps=1_200)
    known = skiing_errors.statistics(game, SIGMA_V)
    curves = skiing_errors.standing(skiing_errors.sequence_sums(game), known)
    assert known.sigma[-1].min() > SIGMA_V
    summary = skiing_errors.summarise(game, curves, known.first)
    assert summary.raised == pytest.approx(1.0, abs=0.02)
    assert 1.0 <= summary.raised_n < 2.0


def test_errors_of_zero_values_are_rewards_of_n_steps_and_end_with_the_episode():
    (errors,) = skiing_errors.zero_value_errors(constant(rounds=1, length=20, reward=-1.0), n=3)
    # Of 20 steps 18 see three rewards, one sees two and the last one sees one.
    np.testing.assert_allclose(errors[skiing_errors.GAMMAS == 1.0], (18 * 3 + 2 + 1) / 20, rtol=1e-12)
    np.testing.assert_allclose(errors[skiing_errors.GAMMAS == 0.9], (18 * 2.71 + 1.9 + 1) / 20, rtol=1e-12)
    np.testing.assert_array_equal(errors[skiing_errors.GAMMAS == 0.0], 1.0)


def test_the_command_writes_figure_numbers_and_one_line(tmp_path, capsys):
    skiing.main([f"--output_dir={tmp_path}", "--environments=1", "--steps=1600", "--updates=1000"])
    assert (tmp_path / "skiing.png").stat().st_size > 0
    assert (tmp_path / "skiing.svg").stat().st_size > 0
    with open(tmp_path / "skiing.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["game"] for row in rows} == {skiing.GAME, *skiing.ORDINARY}
    assert {row["variant"] for row in rows} == set(NAMES)
    assert {row["values"] for row in rows} == {"standing still", "learning"}
    assert all(np.isfinite(float(row["RMS of scaled errors"])) for row in rows)
    assert "until the first episode ends" in (line := capsys.readouterr().out)
    assert line.count("\n") == 1


def test_a_game_without_an_end_says_so():
    game = constant(rounds=2, length=10_000)
    known, sums = skiing_errors.statistics(game, SIGMA_V), skiing_errors.sequence_sums(game)
    still, learned = skiing_errors.standing(sums, known), skiing_errors.learning(sums, known, updates=100)
    noise = skiing_errors.offset_learned(learned, sums, SIGMA_V)
    assert len(skiing.draw(known, still, learned, noise, SIGMA_V).axes) == 6
    results = {skiing.GAME: skiing_errors.summarise(game, still, known.first)}
    assert "raise --steps" in skiing.conclusion(game, known, results, noise)
