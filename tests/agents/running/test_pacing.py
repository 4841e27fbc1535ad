"""A number of environment steps per update: as many updates, whoever survives longer."""

import math

import pytest

from agents.replay.replay import LOCAL, REVERB
from agents.running.embedded import EmbeddedRun
from tests.agents.running.test_embedded import configured
from tests.agents.running.test_resume import assert_same, go

WARM_UP = 4 * 10  # Replay.min_sequences times SequenceShape.period, of the configuration below


def run_paced(root, steps_per_update, episode, *bindings):
    """Plays episodes of at most `episode` steps; environment steps, updates, sequences, and both before each update."""
    bindings = (
        f"train.steps_per_update = {steps_per_update}",
        f"environments.make.max_episode_steps = {episode}",
        "train.updates = 100000",
        "train.environment_steps = 300",
        "Replay.error_buffer = 4.0",  # a tolerance that would end such runs
        *bindings,
    )
    with configured(*bindings), EmbeddedRun(root) as run:
        learner, seen = run.learner, []
        update = learner.update

        def watched():
            seen.append((learner.environment_steps, learner.updates))
            return update()

        learner.update = watched
        result = run.run()
        return result.environment_steps, result.updates, run.replay.inserted, seen


# More samples than insertions allow by far, and fewer, which Reverb's limiter must let pass; no whole number of steps.
@pytest.mark.parametrize(
    ("backend", "steps_per_update"),
    [(REVERB, 2.5), pytest.param(REVERB, 70, marks=pytest.mark.slow), (LOCAL, 2.5)],
)
def test_the_same_steps_make_the_same_updates_whoever_survives(tmp_path, backend, steps_per_update):
    sequences = set()
    for episode in (3, 200):
        replay = f"Replay.backend = '{backend}'"
        steps, updates, inserted, seen = run_paced(tmp_path / str(episode), steps_per_update, episode, replay)
        assert updates == math.floor((steps - WARM_UP) / steps_per_update) > 2
        for before, made in seen:
            assert made + 1 <= (before - WARM_UP) / steps_per_update
        sequences.add(inserted)
    few, many = sorted(sequences)
    assert many > 2 * few, "by the replay ratio, the updates would have been others"


def test_a_paced_run_that_was_interrupted_goes_on_bit_for_bit(tmp_path):
    pace = "train.steps_per_update = 3.5"
    whole = tmp_path / "whole", go(tmp_path / "whole", pace)
    go(tmp_path / "halves", pace, interrupt_at=14)
    assert_same(tmp_path / "halves", go(tmp_path / "halves", pace), whole)


@pytest.mark.slow
def test_a_paced_run_with_reverb_goes_on_from_its_checkpoint(tmp_path):
    pytest.importorskip("reverb")
    for updates in (5, 8):
        bindings = "Replay.backend = 'reverb'", "train.steps_per_update = 9.0", f"train.updates = {updates}"
        with configured(*bindings), EmbeddedRun(tmp_path) as run:
            assert run.learner.resumed == (updates == 8)
            assert run.run().updates == updates
