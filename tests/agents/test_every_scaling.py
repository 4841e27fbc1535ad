"""Every configuration of a scaling, in the whole system: 2,000 environment steps, and on from a checkpoint."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from agents.running.embedded import EmbeddedRun
from tests.agents.running.test_embedded import REPOSITORY, configured, scalars

SCALINGS = sorted(path.stem for path in (REPOSITORY / "configs/scaling").glob("*.gin"))
# Nearly all of the time is tracing, which every head makes longer: one of each kind of rewards and discounts.
BINDINGS = (
    "Heads.pairs = ((0.9, True), (1.0, False))",
    "RecurrentMultiHeadAgent.target_update_period = 10",
    "Replay.min_sequences = 10",
    "Replay.replay_ratio = 0.5",
    "train.environment_steps = 2_000",
    "train.num_envs = 8",
    "train.summary_interval = 10",
    "train.updates = 1_000",
)


@contextlib.contextmanager
def eager():
    """Traces nothing: cheaper where there is only one update to make."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.mark.filterwarnings("ignore:.*does not apply to tf.data functions:UserWarning")
@pytest.mark.parametrize("name", SCALINGS)
def test_it_trains_and_goes_on_from_its_checkpoint(name, tmp_path):
    bindings = (*BINDINGS, f'include "configs/scaling/{name}.gin"')
    with configured(*bindings), EmbeddedRun(tmp_path) as run:
        initial = values_of(run)
        result = run.run()
        saved = values_of(run)
        shown = {
            f"scaling/{key}/{head}" for key in run.agent.scaling.summaries() for head in run.agent.heads.names
        }
    assert result.environment_steps >= 2_000 and result.updates >= 10
    assert all(not np.array_equal(a, b) for a, b in zip(initial["weights"], saved["weights"], strict=True))
    written = scalars(tmp_path / "train")
    assert shown <= written.keys() and np.isfinite(written["loss"]).all()

    with eager(), configured(*bindings), EmbeddedRun(tmp_path) as resumed:
        assert resumed.learner.resumed
        for part, values in values_of(resumed).items():
            for value, before in zip(values, saved[part], strict=True):
                np.testing.assert_array_equal(value, before, err_msg=part)
        resumed.learner.update()
        assert resumed.learner.updates == result.updates + 1
        after = values_of(resumed)
    for part, values in after.items():
        assert all(np.isfinite(value).all() for value in values), part


def values_of(run):
    """Every variable's: the network's trainable ones, what the scaling remembers, and the rest."""
    agent = run.agent
    parts = {
        "weights": agent.network.trainable_variables,
        "scaling": agent.scaling.variables,
        "agent": agent.variables,
        "optimizer": agent.optimizer.variables,
    }
    return {part: [variable.numpy() for variable in variables] for part, variables in parts.items()}
