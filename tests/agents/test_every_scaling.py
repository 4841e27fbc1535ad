"""Every scaling in an agent, and one of each kind in the whole system: 1,200 environment steps."""

import numpy as np
import pytest
import tensorflow as tf

from agents import configuration
from agents.running.embedded import EmbeddedRun
from agents.settings import Settings
from tests.agents.quickstart import REPOSITORY, configured, scalars
from tests.agents.small_agent import as_sequence, make_agent, observe_rewards, random_windows

SCALINGS = configuration.list_scalings(REPOSITORY / "configs")
# No hook at all; last layers rewritten before updates and after them; logits.
QUICK = "pop_art_first", "hl_gauss"
SLOW = "none", "return_out"  # which runs in test_units.py, too
# Nearly all of the time is tracing, which every head makes longer: one of each kind of rewards and discounts.
BINDINGS = (
    "Heads.pairs = ((0.9, True), (1.0, False))",
    "RecurrentMultiHeadAgent.target_update_period = 4",
    "Replay.min_sequences = 10",
    "Replay.replay_ratio = 0.5",
    "train.environment_steps = 1_200",
    "train.num_envs = 8",
    "train.summary_interval = 5",
    "train.updates = 1_000",
)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_it_trains_and_shows_what_errors_are_scaled_by(name, tmp_path):
    bindings = (*BINDINGS, SCALINGS[name])
    with configured(*bindings), EmbeddedRun(tmp_path) as run:
        initial = values_of(run.agent)["weights"]
        result = run.run()
        trained = values_of(run.agent)["weights"]
        shown = {
            f"scaling/{key}/{head}" for key in run.agent.scaling.summaries() for head in run.agent.heads.names
        }
    assert result.environment_steps >= 1_200 and result.updates >= 6
    assert all(not np.array_equal(a, b) for a, b in zip(initial, trained, strict=True))
    written = scalars(tmp_path / "train")
    assert shown <= written.keys() and np.isfinite(written["loss"]).all()


def test_each_makes_an_agent_learn_whose_checkpoint_holds_everything(tmp_path):
    for name in SCALINGS:
        with configured(SCALINGS[name]):
            agent, restored = (
                make_agent(scaling=Settings.from_gin().train.scaling, seed=seed) for seed in (1, 2)
            )
        before = values_of(agent)["weights"]
        observe_rewards(agent, random_windows())
        info = agent.train(as_sequence(random_windows()))
        assert np.isfinite(info.loss) and np.isfinite(info.extra.priorities).all(), name
        saved = values_of(agent)
        assert any(not np.array_equal(a, b) for a, b in zip(before, saved["weights"], strict=True)), name
        path = tf.train.Checkpoint(agent=agent).write(str(tmp_path / name))
        tf.train.Checkpoint(agent=restored).read(path).assert_existing_objects_matched()
        for part, values in saved.items():
            for value, other in zip(values, values_of(restored)[part], strict=True):
                np.testing.assert_array_equal(other, value, err_msg=f"{name}: {part}")


def values_of(agent):
    """Every variable's: the network's trainable ones, what the scaling remembers, and the rest."""
    parts = {
        "weights": agent.network.trainable_variables,
        "scaling": agent.scaling.variables,
        "agent": agent.variables,
        "optimizer": agent.optimizer.variables,
    }
    return {part: [variable.numpy() for variable in variables] for part, variables in parts.items()}
