"""Every configuration of a scaling, in the whole system: 2,000 environment steps, and on from a checkpoint."""

import numpy as np
import pytest

from agents.embedded import EmbeddedRun
from tests.agents.test_embedded import REPOSITORY, configured, scalars

SCALINGS = sorted(path.stem for path in (REPOSITORY / "configs/scaling").glob("*.gin"))
BINDINGS = ("train.num_envs = 8", "train.summary_interval = 20", "Replay.min_sequences = 10")


@pytest.mark.parametrize("name", SCALINGS)
def test_it_trains_and_goes_on_from_its_checkpoint(name, tmp_path):
    def run(updates):
        bindings = (f'include "configs/scaling/{name}.gin"', f"train.updates = {updates}")
        with configured(*BINDINGS, *bindings), EmbeddedRun(tmp_path) as embedded:
            state = {key: value.numpy() for key, value in embedded._agent.scaling.summaries().items()}
            result = embedded.run()
            after = {key: value.numpy() for key, value in embedded._agent.scaling.summaries().items()}
            return embedded, state, after, result

    embedded, _, saved, _ = run(200)
    resumed, restored, _, result = run(210)
    assert result.environment_steps >= 2_000 and resumed._learner.resumed
    for key, value in saved.items():
        np.testing.assert_array_equal(restored[key], value, err_msg=key)
    for variable in resumed._agent.variables:
        if variable.dtype.is_floating:
            assert np.isfinite(variable.numpy()).all(), variable.name
    shown = scalars(tmp_path / "train")
    assert {f"scaling/{key}/{head}" for key in saved for head in resumed._agent.heads.names} <= shown.keys()
    assert np.isfinite(shown["loss"]).all()
    del embedded
