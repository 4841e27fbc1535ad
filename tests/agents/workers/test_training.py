"""Seeds of a run's parts, and that each part gets its own."""

import numpy as np
import pytest

from agents.replay.backends import LOCAL, RAY
from agents.seeds import Seeds
from agents.settings import Settings
from agents.workers import build
from tests.agents.quickstart import configured


def derived(*numbers):
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def test_every_part_has_a_seed_of_its_own_which_a_later_version_keeps():
    seeds = Seeds(7)
    assert (seeds.of_run, seeds.evaluation_seed(0), seeds.draws) == (7, derived(7, 1), derived(7, 1, 1))
    assert seeds.evaluation_seed(40) == derived(7, 1, 0, 40)
    assert [seeds.collection_seed(step) for step in (0, 40)] == [derived(7, 0, 0), derived(7, 0, 40)]
    assert seeds.collector_seed(1, 2, seconds=99) == derived(7, 3, 2, 99)


def test_parts_are_built_with_their_seeds_and_settings(monkeypatch):
    made, asked = [], []
    make, replay = build.environments.make, build.LocalReplay
    monkeypatch.setattr(
        build.environments, "make", lambda *names, **options: asked.append(options) or make(*names, **options)
    )
    monkeypatch.setattr(
        build, "LocalReplay", lambda *parts, **options: made.append(options) or replay(*parts, **options)
    )
    sticky = "train.eval_repeat_action_probability = 0.25"
    with configured("train.seed = 7", "Replay.capacity = 500", "Replay.min_sequences = 3", sticky):
        settings = Settings.from_gin()
        environment = build.build_eval_environment(settings, 2)
        build.build_environment(settings, 1, settings.seeds.collection_seed(7)).close()
        agent = build.build_agent(settings, environment)
    built = build.build_replay(settings, environment, agent, LOCAL)  # what gin says now plays no part
    environment.close()
    given = {"num_envs": 2, "seed": settings.seeds.evaluation_seed(0), "random_steps": 5}
    for_training = {"num_envs": 1, "seed": settings.seeds.collection_seed(7), "random_steps": 0}
    assert asked == [
        vars(settings.environment) | given | {"repeat_action_probability": 0.25},
        vars(settings.environment) | for_training,
    ]
    assert made[0]["seed"] == settings.seeds.draws
    assert built.min_sequences == 3 and built._settings.capacity == 500
    assert built._settings.read_ahead == 0
    pytest.importorskip("ray")
    beside_collectors = build.build_replay(settings, environment, agent, RAY)
    assert beside_collectors._settings.read_ahead == 1
