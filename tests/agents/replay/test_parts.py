"""Observations of several arrays, on their way from the environment to the update."""

import numpy as np
import pytest
import tensorflow as tf

from agents.errors import EnvironmentFault
from agents.replay.blocks import Layout
from agents.running.embedded import EmbeddedRun
from agents.sequences import concatenate_parts, stored_spec, unpack
from tests.agents.quickstart import configured
from tests.agents.replay.streams import SHAPE, STATE, rows_of

SMALL = {
    "image": tf.TensorSpec((5, 4, 3), tf.uint8),
    "a/vector": tf.TensorSpec((3,), tf.float32),
    "number": tf.TensorSpec((), tf.int64),
    "double": tf.TensorSpec((2, 2), tf.float64),
    "signed": tf.TensorSpec((7,), tf.int8),
}
LARGE = SMALL | {"image": tf.TensorSpec((84, 84, 3), tf.uint8)}


@pytest.mark.parametrize("specs", [SMALL, LARGE, {"only": SMALL["image"]}])
@pytest.mark.parametrize("level, on_gpu", [(0, False), (3, False), (3, True)])
def test_what_is_stored_side_by_side_comes_back_by_name(specs, level, on_gpu):
    """Compressed or not, put together before the copy to a GPU or behind it."""
    stored, windows, rng = stored_spec(specs), 3, np.random.default_rng(0)
    layout = Layout(SHAPE, stored, STATE, level)
    parts = {
        name: rng.integers(0, 99, (windows * SHAPE.rows, *spec.shape)).astype(spec.dtype.as_numpy_dtype)
        for name, spec in specs.items()
    }
    rows = concatenate_parts({name: parts[name] for name in sorted(parts, reverse=True)})
    assert rows.dtype == np.uint8 and rows.shape[1:] == stored.shape
    assert stored.shape[0] % 4096 == 0 or stored.shape[0] < 20_000
    stream = rows_of(rows, 1, 0, 0.0, 1.0, np.zeros(4))
    starts = range(0, len(rows), SHAPE.block)
    blocks = [layout.block(stream[at : at + SHAPE.block], True).observation for at in starts]
    columns = {
        layout.observations: np.array(blocks, object if level else np.uint8),
        "scalars": np.zeros((len(blocks), SHAPE.block, 4), np.float32),
    }
    batch = {
        name: tf.constant(column.reshape(windows, SHAPE.blocks, *column.shape[1:]))
        for name, column in columns.items()
    }
    batch["core_state"] = tf.zeros((windows, 4))

    @tf.function(autograph=False)
    def separated():
        sequence = layout.sequence(batch, tf.ones(windows), tf.ones(windows, tf.int64))
        return unpack(sequence if on_gpu else unpack(sequence, stored), specs).steps.observation

    found = separated()
    assert sorted(found) == sorted(specs)
    for name, part in parts.items():
        expected = part.reshape(windows, SHAPE.rows, *part.shape[1:])
        np.testing.assert_array_equal(found[name], expected, err_msg=name, strict=True)


SHOWN = "train.env = 'tests.agents.environments:Counts-v0'", "train.updates = 0"
CENTRED = "RecurrentQNetwork.normalise_torso = 'centre'", "train.updates = 2", "train.summary_interval = 2"


@pytest.mark.parametrize("more", [(), pytest.param(CENTRED, marks=pytest.mark.slow)])
def test_a_run_learns_from_several_arrays_keeps_them_together_and_goes_on(tmp_path, capfd, more):
    with configured(*SHOWN, *more), EmbeddedRun(tmp_path) as run:
        run.collector.run(70)
        run.run()
        network = run.agent.network
        assert network.torso_layers == [
            *("of/body/linear_1", "of/body/linear_2", "of/phase/linear_1", "of/phase/linear_2"),
            *("picture/conv_0", "picture/linear_2"),
        ]
        sequence, _ = next(iter(run.replay.dataset(8)))
        observation = unpack(sequence, run.agent.time_step_spec.observation).steps.observation
        features = network.features(observation)
        for name in observation:
            others = observation | {name: tf.ones_like(observation[name])}
            assert np.any(network.features(others) != features), name
    parts = {name: part.numpy() for name, part in observation.items()}
    t = parts["picture"][..., 0, 0, 0]
    real = np.any(parts["of/phase"] != 0, axis=-1)  # padding is zeros
    assert t.max() > 20 and real.mean() > 0.5
    np.testing.assert_array_equal(parts["picture"].min(axis=(2, 3, 4)), t)
    np.testing.assert_array_equal(parts["of/body"][real, 1], -1.0 * t[real])
    np.testing.assert_array_equal(parts["of/phase"][real].argmax(axis=-1), t[real] % 4)
    with configured(*SHOWN, *more), EmbeddedRun(tmp_path) as run:
        run.run()
        run.collector.run(5)
    assert f"Resumed at update {len(more) and 2}.\n" in capfd.readouterr().out


def test_a_part_that_is_no_number_is_named_in_training_and_evaluation(tmp_path):
    with configured("train.env = 'tests.agents.environments:Breaks-v0'"), EmbeddedRun(tmp_path) as run:
        for play in (lambda: run.collector.run(5), lambda: run.evaluations.run(0, 1, lambda: False)):
            with pytest.raises(
                EnvironmentFault,
                match=r"step 3: tests.agents.environments:Breaks-v0, environment 0: observation 'of/body' nan",
            ):
                play()
    torso = "RecurrentQNetwork.torso = @networks.MlpTorso"
    with (
        configured(*SHOWN, torso),
        pytest.raises(
            ValueError, match="MlpTorso, which takes one array.*of/body, of/phase, picture. Leave it out"
        ),
    ):
        EmbeddedRun(tmp_path)
