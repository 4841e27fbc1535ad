"""Observations of several arrays, on their way from the environment to the update."""

import re

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from agents.errors import EnvironmentFault
from agents.replay.blocks import Layout
from agents.replay.rows import Rows
from agents.running.embedded import EmbeddedRun
from agents.sequences import SequenceShape, side_by_side, stored_spec, unpacked
from agents.workers import build
from agents.workers.settings import Settings
from tests.agents.running.test_embedded import configured

SHAPE = SequenceShape(burn_in=2, length=4, period=2, n_step=2)
STATE = (tf.TensorSpec((2,), tf.float32),) * 2
SMALL = {
    "image": tf.TensorSpec((5, 4, 3), tf.uint8),
    "a/vector": tf.TensorSpec((3,), tf.float32),
    "number": tf.TensorSpec((), tf.int64),
    "double": tf.TensorSpec((2, 2), tf.float64),
    "signed": tf.TensorSpec((7,), tf.int8),
}
LARGE = SMALL | {"image": tf.TensorSpec((84, 84, 3), tf.uint8)}


def random_parts(specs, *outer, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(-9 if spec.dtype != tf.uint8 else 0, 99, (*outer, *spec.shape)).astype(
            spec.dtype.as_numpy_dtype
        )
        for name, spec in specs.items()
    }


@pytest.mark.parametrize("specs", [SMALL, LARGE, {"only": SMALL["image"]}])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_is_stored_side_by_side_comes_back_by_name(specs, level, on_gpu):
    """Compressed or not, put together before the copy to a GPU or behind it."""
    stored, windows = stored_spec(specs), 3
    layout = Layout(SHAPE, stored, STATE, level)
    parts = random_parts(specs, windows * SHAPE.rows)
    rows = side_by_side({name: parts[name] for name in sorted(parts, reverse=True)})
    assert rows.dtype == np.uint8 and rows.shape[1:] == stored.shape
    assert stored.shape[0] % 4096 == 0 or stored.shape[0] < 20_000
    count = len(rows)
    columns = {
        name: np.zeros(count, np.float32) for name in ("step_type", "previous_action", "reward", "discount")
    }
    of_policy = {name: np.zeros((count, 2)) for name in ("taken_values", "greedy_values", "core_state")}
    ends = {name: np.zeros(count) for name in ("head", "epsilon")}
    stream = Rows(observation=rows, **columns, **of_policy, **ends)
    blocks = [layout.block(stream[at : at + SHAPE.block], True) for at in range(0, count, SHAPE.block)]
    observations = np.array([block.observation for block in blocks], object if level else np.uint8)
    batch = {
        layout.observations: tf.constant(
            observations.reshape(windows, SHAPE.blocks, *observations.shape[1:]),
            tf.string if level else tf.uint8,
        ),
        "scalars": tf.zeros((windows, SHAPE.blocks, SHAPE.block, 4)),
        "core_state": tf.zeros((windows, 4)),
    }

    @tf.function(autograph=False)
    def separated():
        sequence = layout.sequence(batch, tf.ones(windows), tf.ones(windows, tf.int64))
        return unpacked(sequence if on_gpu else unpacked(sequence, stored), specs).steps.observation

    found = separated()
    assert sorted(found) == sorted(specs)
    for name, part in parts.items():
        expected = part.reshape(windows, SHAPE.rows, *part.shape[1:])
        assert found[name].shape == expected.shape and found[name].dtype == part.dtype
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


class Counts(gymnasium.Env):
    """Shows its step in each part in another way."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        picture=spaces.Box(0, 255, (9, 8, 2), np.uint8),
        of=spaces.Dict(body=spaces.Box(-np.inf, np.inf, (3,), np.float64), phase=spaces.Discrete(4)),
    )
    bad = np.inf

    def shown(self):
        t = self.t
        body = np.array([t, -t, np.nan if t == self.bad else 0.5])
        return {"picture": np.full((9, 8, 2), t, np.uint8), "of": {"body": body, "phase": t % 4}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.shown(), {}

    def step(self, action):
        self.t += 1
        return self.shown(), 1.0, self.t == 30, False, {}


class Breaks(Counts):
    bad = 3


gymnasium.register("Counts-v0", Counts)
gymnasium.register("Breaks-v0", Breaks)
COLLECTS = ("train.env = 'Counts-v0'", "train.updates = 0")
LEARNS = (
    "train.env = 'Counts-v0'",
    "train.updates = 2",
    "RecurrentQNetwork.normalise_torso = 'centre'",
    "train.summary_interval = 2",
)


@pytest.mark.parametrize("options", [COLLECTS, pytest.param(LEARNS, marks=pytest.mark.slow)])
def test_a_run_learns_from_several_arrays_keeps_them_together_and_goes_on(tmp_path, capfd, options):
    with configured(*options), EmbeddedRun(tmp_path) as run:
        run.collector.run(70)
        run.run()
        network = run.agent.network
        assert network.torso_layers == [
            *("of/body/linear_1", "of/body/linear_2", "of/phase/linear_1", "of/phase/linear_2"),
            *("picture/conv_0", "picture/linear_2"),
        ]
        sequence, _ = next(iter(run.replay.dataset(8)))
        observation = unpacked(sequence, run.agent.time_step_spec.observation).steps.observation
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
    with configured(*options), EmbeddedRun(tmp_path) as run:
        run.run()
        run.collector.run(5)
    assert re.search(r"Resumed at update [02]\.\n", capfd.readouterr().out), "in the middle of its episodes"


def test_a_part_that_is_no_number_is_named_in_training_and_evaluation(tmp_path):
    with configured("train.env = 'Breaks-v0'"), EmbeddedRun(tmp_path) as run:
        for play in (lambda: run.collector.run(5), lambda: run.evaluations.run(0, 1, lambda: False)):
            with pytest.raises(
                EnvironmentFault, match=r"environment 0: observation 'of/body' nan at its step 3"
            ):
                play()
    with (
        configured("train.env = 'Counts-v0'", "RecurrentQNetwork.torso = @networks.MlpTorso"),
        build.build_environment(Settings.configured(), 1, 0) as environment,
        pytest.raises(
            ValueError, match="MlpTorso, which takes one array.*of/body, of/phase, picture. Leave it out"
        ),
    ):
        build.build_agent(Settings.configured(), environment)
