"""The layer survives Keras files, SavedModels, checkpoints and configurations, statistics included."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from rbs_tf import ReturnScaling
from tests.source_tree import ROOT

SIGMA_V = [0.1, 0.2, 30.0]
ERRORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
KERAS_3 = hasattr(tf.keras, "ops")


@pytest.fixture
def layer():
    """It has seen steps and returns, and its sigma_v has been measured since it was made."""
    layer = ReturnScaling(3, sigma_v=0.5, name="scaling")
    rng = np.random.default_rng(1)
    layer.update_state(rng.normal(1e4, 2.0, (20, 3)), rng.uniform(size=(20, 3)))
    layer.update_returns(rng.normal(size=(20, 3)))
    layer.sigma_v.assign(SIGMA_V)
    return layer


@pytest.fixture
def model(layer):
    inputs = tf.keras.Input((3,))
    return tf.keras.Model(inputs, layer(inputs))


@pytest.mark.parametrize("file", ["model.keras", "model.h5", *([] if KERAS_3 else ["saved_model"])])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_keras_models(model, layer, tmp_path, file):
    model.save(tmp_path / file)
    restored = tf.keras.models.load_model(tmp_path / file)
    np.testing.assert_array_equal(restored(ERRORS), model(ERRORS))
    (scaling,) = (each for each in restored.layers if isinstance(each, ReturnScaling))
    np.testing.assert_array_equal(scaling.statistics, layer.statistics)
    scaling.update_state(np.eye(3), np.zeros((3, 3)))
    np.testing.assert_array_equal(scaling.moments.count, [23.0] * 3)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_a_new_process_loads_models(model, layer, tmp_path):
    """HDF5 because Keras 2.15 imports by itself what a `.keras` file names."""
    file = str(tmp_path / "model.h5")
    model.save(file)
    program = (
        "import sys; sys.modules['gin'] = None\n"  # which the library does without
        "import rbs_tf, tensorflow as tf, numpy as np\n"
        "print(np.array2string(tf.keras.models.load_model(sys.argv[1]).layers[-1].sigma.numpy(), precision=17))"
    )
    done = subprocess.run([sys.executable, "-c", program, file], cwd=ROOT, capture_output=True, text=True)
    sigma = np.array2string(layer.sigma.numpy(), precision=17)
    assert done.stdout.splitlines()[-1:] == [sigma], done.stderr


def test_statistics_of_other_heads_are_refused(layer, tmp_path):
    path = tf.train.Checkpoint(scaling=layer).save(str(tmp_path / "checkpoint"))
    other = ReturnScaling(4)
    with pytest.raises(ValueError, match=r"shape \(3,\).*shape \(4,\).*sigma_v"):
        tf.train.Checkpoint(scaling=other).restore(path)
    np.testing.assert_array_equal(other.statistics, np.zeros((8, 4)))


def test_saved_models_go_on_counting(layer, tmp_path):
    module = tf.Module()
    module.layer = layer
    columns = tf.TensorSpec([None, 3])
    module.update = tf.function(layer.update_state, input_signature=[columns, columns])
    module.scale = tf.function(layer, input_signature=[columns])
    tf.saved_model.save(module, str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(restored.scale(ERRORS), layer(ERRORS))
    for update in (restored.update, layer.update_state):
        update(1e6 * ERRORS, np.ones_like(ERRORS))
    # Sums in a graph and without one.
    np.testing.assert_allclose(restored.scale(ERRORS), layer(ERRORS), rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="rewards must be finite"):
        restored.update(np.nan * ERRORS, np.ones_like(ERRORS))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies(layer, copied):
    """Each has its lock."""
    other = copied(layer)
    np.testing.assert_array_equal(other(ERRORS), layer(ERRORS))
    other.update_state(ERRORS, np.ones_like(ERRORS))
    np.testing.assert_array_equal(other.moments.count - layer.moments.count, [float(len(ERRORS))] * 3)


def test_checkpoints(layer, tmp_path):
    path = tf.train.Checkpoint(scaling=layer).save(str(tmp_path / "checkpoint"))
    restored = ReturnScaling(3)
    tf.train.Checkpoint(scaling=restored).restore(path).assert_consumed()
    np.testing.assert_array_equal(restored.statistics, layer.statistics)
    np.testing.assert_array_equal(restored.sigma_v, SIGMA_V)


def test_configurations():
    layer = ReturnScaling(3, sigma_v=SIGMA_V, name="scaling", dtype="mixed_bfloat16")
    layer.sigma_v.assign([7.0] * 3)  # as measured: a copy starts afresh
    config = layer.get_config()
    made = ReturnScaling.from_config(json.loads(json.dumps(config)))
    assert made.get_config() == config
    assert (config["num_heads"], config["sigma_v"], made.name) == (3, SIGMA_V, "scaling")
    np.testing.assert_array_equal(made.sigma_v, SIGMA_V)
