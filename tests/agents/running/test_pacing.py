"""A number of environment steps per update: as many updates, whoever survives longer."""

import math

import pytest

from agents.replay.backends import LOCAL, REVERB
from agents.running.embedded import EmbeddedRun
from tests.agents.quickstart import configured

WARM_UP = 4 * 10  # Replay.min_sequences times SequenceShape.period, of the configuration below


# More samples than insertions allow by far, and fewer, which Reverb's limiter must let pass; no whole number of steps.
@pytest.mark.parametrize(
    ("backends", "steps_per_update"),
    [
        ((LOCAL, REVERB), 2.5),
        pytest.param((LOCAL, LOCAL), 2.5, marks=pytest.mark.slow),
        pytest.param((REVERB, REVERB), 70, marks=pytest.mark.slow),
    ],
)
def test_the_same_steps_make_the_same_updates_whoever_survives(tmp_path, capsys, backends, steps_per_update):
    inserted = []
    for backend, episode in zip(backends, (3, 200), strict=True):
        bindings = (
            *("train.env = 'CartPole-v1'", "RecurrentQNetwork.torso = @networks.MlpTorso"),  # quick to trace
            "Heads.pairs = ((0.9, True),)",
            f"Replay.backend = '{backend}'",
            f"train.steps_per_update = {steps_per_update}",
            f"environments.make.max_episode_steps = {episode}",
            "train.updates = 100000",
            "train.environment_steps = 200",
            "Replay.error_buffer = 4.0",  # a tolerance that would end such runs
        )
        with configured(*bindings), EmbeddedRun(tmp_path / str(episode)) as run:
            learner, update = run.learner, run.learner.update

            def watched(learner=learner, update=update):
                due = (learner.environment_steps - WARM_UP) / steps_per_update
                assert learner.updates + 1 <= due
                return update()

            learner.update = watched
            result = run.run()
            inserted.append(run.replay.inserted)
        assert 200 <= result.environment_steps < 250, "the limit of steps ends the run first"
        assert f"steps {result.environment_steps}/200" in capsys.readouterr().out
        assert result.updates == math.floor((result.environment_steps - WARM_UP) / steps_per_update) > 2
    many, few = inserted
    assert many > 2 * few, "by the replay ratio, the updates would have been others"
