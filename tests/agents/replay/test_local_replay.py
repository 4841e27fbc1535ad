"""What only the local replay promises: exact and repeatable draws, also across a checkpoint."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from agents.replay.backends import LOCAL
from tests.agents.replay.streams import OBSERVATION, SHAPE, Stream

pytestmark = pytest.mark.parametrize("backend", [LOCAL], indirect=True)


def filled(make, count=100, **settings):
    """Windows with priorities from 0 to 30, some of them changed later."""
    replay, random = make(capacity=2 * count, **settings), np.random.default_rng(1)
    stream = Stream(replay)
    for priority in 30.0 * random.random(count) ** 3 * (random.random(count) > 0.1):
        stream.insert(1, priority)
    return replay


def test_draws_follow_the_whole_tables_priorities(make):
    exponent = 0.9
    count, batch, draws = 300, 10_000, 200_000
    replay = filled(make, count, priority_exponent=exponent)
    changed = np.random.default_rng(2).choice(count, 100, replace=False)
    replay.update_priorities(tf.constant(changed, tf.uint64), tf.linspace(0.0, 50.0, 100))
    powers = np.where(replay._priorities > 0.0, replay._priorities**exponent, 0.0)
    expected = powers / powers.sum()
    found = np.zeros(count)
    for _ in range(draws // batch):
        keys, probability = replay._draw(batch)
        np.testing.assert_allclose(probability, expected[keys], rtol=1e-12)
        found += np.bincount(keys, minlength=count)
    drawn = expected > 0.0
    assert not found[~drawn].any() and not drawn.all()
    assert stats.chisquare(found[drawn], draws * expected[drawn]).pvalue > 0.01


def use(replay, rounds=5):
    """Draws, priorities that depend on them and insertions by turns; everything that was drawn."""
    stream, batches, drawn = Stream(replay), iter(replay.dataset(8)), []
    for _ in range(rounds):
        sequence, info = next(batches)
        drawn += [column.numpy() for column in tf.nest.flatten((sequence, info))]
        replay.update_priorities(info.key, sequence.steps.reward[:, 0] % 7.0 + sequence.core_state[0][:, 0])
        stream.insert(3, priority=2.0)
    return drawn


def assert_same(one, other):
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second, strict=True)


def test_the_same_seed_gives_the_same_draws_and_a_checkpoint_changes_none(make, tmp_path):
    settings = {"priority_exponent": 0.9, "compression": 3, "replay_ratio": 2.5}
    whole, first, other = (filled(make, seed=seed, **settings) for seed in (5, 5, 0))
    begun = use(whole)
    assert_same(begun, use(first))
    assert any(not np.array_equal(a, b) for a, b in zip(begun, use(other), strict=True))
    first.checkpoint(tmp_path / "saved")
    # The checkpoint's seed counts.
    second = make(seed=6, capacity=200, saved=tmp_path / "saved", **settings)
    assert_same(use(whole), use(second))
    counts = [(replay.size, replay.inserted, replay.sampled) for replay in (whole, second)]
    assert counts[0] == counts[1]


def test_a_checkpoint_holds_each_row_once_and_nothing_that_could_run(make, tmp_path):
    """Windows of 4 blocks, each beginning one block after the one before."""
    replay, saved = make(), tmp_path / "saved"
    Stream(replay).insert(20)
    replay.checkpoint(saved)
    assert np.load(saved / "observations.npy").shape == (23 * SHAPE.block, *OBSERVATION.shape)
    assert np.load(saved / "windows.npy")[-1].tolist() == [19, 20, 21, 22]
    assert all(path.suffix in (".npy", ".npz", ".json") for path in saved.iterdir())


def test_an_empty_table_has_a_checkpoint_too(make, tmp_path):
    make().checkpoint(tmp_path / "saved")
    resumed = make(saved=tmp_path / "saved")
    assert (resumed.size, resumed.inserted) == (0, 0)
    Stream(resumed).insert(2)
    assert resumed.size == 2
