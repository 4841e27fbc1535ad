"""A score counter that overflows, and the scales that see it."""

import csv

import numpy as np
import pytest

from rbs_tf import ReturnMoments
from studies import spikes
from studies.episodes import Episode, Stream


@pytest.fixture(scope="module")
def curves():
    return spikes.study(spikes.play(150_000))


def test_the_counter_overflows_as_asterix_does():
    episodes = spikes.play(100_000)
    scores = [np.cumsum(episode.rewards) for episode in episodes]
    assert all(score.min() >= 0 and score.max() < spikes.COUNTER for score in scores)
    rewards = np.concatenate([episode.rewards for episode in episodes])
    assert set(np.unique(rewards)) == {spikes.POINTS - spikes.COUNTER, 0.0, spikes.POINTS}
    assert 0 < np.mean(rewards < 0) < 1e-4


def test_all_time_scales_end_at_the_sigma_of_everything():
    rng = np.random.default_rng(0)
    episodes = [Episode(rng.normal(size=n)) for n in (30, 7, 13, 50)]
    streams = [Stream.of(episodes, gamma) for gamma in (0.5, 1.0)]
    sigmas = spikes.all_time_scales(streams, updates=10)
    np.testing.assert_allclose(sigmas[-1], [stream.moments.sigma[0] for stream in streams], rtol=1e-12)
    before_any_end = streams[0].rewards[: spikes.STEPS_PER_UPDATE].std()
    np.testing.assert_allclose(sigmas[0], before_any_end, rtol=1e-12)


def test_the_scale_of_a_batch_is_the_formula_on_sequences_of_one_step():
    rng = np.random.default_rng(0)
    rewards, discounts = rng.normal(size=(1, 32)), rng.choice([0.0, 0.9], size=(1, 32))
    moments = ReturnMoments.merge(
        ReturnMoments.from_steps(rewards[0], discounts[0]), ReturnMoments.from_returns(rewards[0])
    )
    np.testing.assert_allclose(spikes.batch_scales(rewards, discounts), moments.sigma, rtol=1e-12)


def test_pop_art_follows_its_recursion_and_keeps_its_bounds():
    targets = np.random.default_rng(0).normal(5.0, 3.0, size=(500, 8))
    mean, mean_square, expected = 0.0, 1.0, []
    for batch in targets:
        mean += spikes.POP_ART_STEP * (batch.mean() - mean)
        mean_square += spikes.POP_ART_STEP * (np.mean(batch**2) - mean_square)
        expected.append(np.sqrt(mean_square - mean**2))
    np.testing.assert_allclose(spikes.pop_art_scales(targets, 0.0, np.inf), expected, rtol=1e-9)
    np.testing.assert_allclose(
        spikes.pop_art_scales(targets, 1.5, 2.0), np.clip(expected, 1.5, 2.0), rtol=1e-9
    )


def test_a_batch_with_one_spike_never_costs_more_than_half_under_return_scaling(curves):
    """The batch's own sigma is at least 1e6 sqrt(31) / 32, so that its loss is about 1/2 at most."""
    hit = curves.spikes == 1
    assert hit.any()
    assert curves.losses[spikes.RETURN][hit].max() < 0.55
    for name in spikes.POP_ART_BOUNDS:
        assert curves.losses[name][hit].min() > 20


def test_against_the_spike_itself_only_the_sigma_of_the_batch_helps(curves):
    assert curves.losses[spikes.ALL_TIME][curves.spikes > 0].min() > 100


def test_with_a_short_horizon_pop_art_falls_back_between_spikes_and_sigma_hardly_does(curves):
    hit = curves.spikes > 0
    after = ~hit & (np.cumsum(hit) > 0)

    def swing(name: str) -> float:
        scale = curves.scales[name][after, 0]
        return scale.max() / scale.min()

    bounded, unbounded = spikes.POP_ART_BOUNDS
    assert swing(spikes.RETURN) < 2.5 < swing(unbounded)
    assert curves.scales[bounded].max() == 1e3


def test_the_command_writes_figure_numbers_and_one_line(tmp_path, capsys):
    spikes.main([f"--output_dir={tmp_path}", "--steps=60000"])
    assert (tmp_path / "spikes.png").stat().st_size > 0
    assert (tmp_path / "spikes.svg").stat().st_size > 0
    with open(tmp_path / "spikes.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 600
    assert all(np.isfinite(float(number)) for row in rows for number in row.values())
    assert capsys.readouterr().out.count("\n") == 1


def test_a_life_without_spikes_says_so():
    curves = spikes.study([Episode(np.ones(1000))])
    assert "raise --steps" in spikes.conclusion(curves)
