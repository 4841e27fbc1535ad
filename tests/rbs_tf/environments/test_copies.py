"""Copies of an environment as people write them: what is made of their observations, and how their faults are named."""

import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rbs_tf import environments
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.environments.copies import Copies
from rbs_tf.environments.wrappers import FlatObservation, PartsObservation, channels_last
from rbs_tf.errors import EnvironmentFault


class Plain(gymnasium.Env):
    """Episodes of three steps."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    shown, closed = np.zeros(3), False

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.shown, {}

    def step(self, action):
        self.t += 1
        return self.shown, 1, self.t == 3, False, {}

    def close(self):
        self.closed = True


def changed(**of_class):
    return type("Plain", (Plain,), of_class)


def wrapped(*makes):
    turn = iter(makes)
    return GymnasiumVectorEnvironment(Copies(lambda: next(turn)(), len(makes), "Mine-v0"), "Mine-v0", seed=0)


def played(*makes, steps=5):
    env = wrapped(*makes)
    env.reset()
    return [env.step(np.zeros(len(makes), int)) for _ in range(steps)]


def refused(*makes):
    with pytest.raises((ValueError, EnvironmentFault)) as error:
        played(*makes)
    (said,) = str(error.value).splitlines()
    assert said.startswith("Mine-v0"), said
    return said


def test_spaces_must_be_the_same():
    for of_class, words in (
        ({"observation_space": spaces.Box(-1, 1, (4,), np.float32)}, "copy 2 Box"),
        ({"action_space": spaces.Discrete(3)}, "and Discrete(2), copy 2 Box"),
    ):
        assert words in refused(Plain, changed(**of_class))


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    "error, words",
    [
        (SystemExit("no licence\nask your administrator"), "SystemExit: no licence ask your administrator"),
        (KeyError("line\n" * 200 + "last"), "last'"),
    ],
)
def test_faults_are_named_with_their_copy(error, words):
    first = Plain()
    said = refused(lambda: first, raising(error))
    assert said.startswith("Mine-v0, copy 2 of 2 cannot be made: ") and said.endswith(words)
    assert len(said) < 400 and first.closed
    for method in ("reset", "step"):
        said = refused(Plain, changed(**{method: raising(error)}))
        assert said.startswith("Mine-v0, copy 2 of 2: ") and words in said
    assert words in refused(changed(observation_space=property(raising(error))))


def test_a_persons_interrupt_goes_through():
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            played(changed(step=interrupted))
    finally:
        signal.signal(signal.SIGINT, before)


def test_rewards_and_ends():
    def gives(*answer):
        return changed(step=lambda self, action: (self.shown, *answer, {}))

    for reward, words in (
        (None, "the reward is None, of type NoneType: expected a number"),
        ("12", "the reward is '12', of type str"),
        (np.ones(2), "the reward is array([1., 1.]), of type ndarray"),
    ):
        assert words in refused(gives(reward, False, False))
    for end in (None, "yes", 0.5):
        for ends, name in (((end, False), "terminated"), ((False, end), "truncated")):
            assert f"{name} is {end!r}" in refused(gives(1.0, *ends))
    for reward, end in ((True, np.True_), (np.float32(1), np.ones(1)), (np.ones((1, 1)), 0)):
        assert played(gives(reward, end, False), steps=1)[0].reward == 1


def test_observations_of_the_wrong_kind():
    of_dict = spaces.Dict(image=spaces.Box(0, 255, (6, 5, 2), np.uint8), number=spaces.Discrete(3, start=1))

    def make(space, shown):
        env = changed(observation_space=space, shown=shown)()
        return PartsObservation(env) if isinstance(space, spaces.Dict) else FlatObservation(env)

    image = np.zeros((6, 5, 2), np.uint8)
    for space, shown, words in (
        (spaces.Discrete(3, start=2), 1, "is 1, of type int, and its space says Discrete(3, start=2)"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "an observation is array([1, 3])"),
        (spaces.Tuple([spaces.Discrete(2)] * 2), (0, 2), "an observation is 2"),
        (of_dict, {"image": image}, "expected a dictionary with 'number'"),
        (of_dict, {"image": image[:1], "number": 1}, "an observation 'image' is uint8 (1, 5, 2)"),
    ):
        assert words in refused(lambda space=space, shown=shown: make(space, shown))
    for shown in (np.zeros(1), 0.5, None, np.zeros(3, complex)):  # none is stretched
        assert "and its space says float32 (3,)" in refused(changed(shown=shown))
    for shown in ([0, 1, 0], np.ones(3, np.float64), np.ones(3, bool)):
        assert played(changed(shown=shown))[0].observation.dtype == np.float32


def test_one_that_cannot_be_closed(caplog):
    last = Plain()
    wrapped(changed(close=raising(OSError("gone"))), lambda: last).close()
    assert last.closed and caplog.messages == ["Mine-v0, copy 1 of 2 cannot be closed: OSError: gone"]


def test_the_old_api_is_named():
    for method, gives in (("step", (np.zeros(3), 1.0, False, {})), ("reset", np.zeros(3))):
        old = changed(**{method: lambda self, *_, gives=gives, **__: gives})
        assert "step(action), which gives (observation, reward, terminated" in refused(old)
    assert "reset(seed=..., options=...)" in refused(changed(reset=lambda self: np.zeros(3)))


def test_images_with_their_channels_first_are_transposed():
    def make(*shape):
        image = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
        return changed(observation_space=spaces.Box(0, 255, shape, np.uint8), shown=image)()

    for shape in ((4, 84, 84), (1, 28, 20)):
        env = channels_last(make(*shape))
        assert env.observation_space.shape == (*shape[1:], shape[0])
        np.testing.assert_array_equal(env.reset()[0], np.transpose(env.unwrapped.shown, (1, 2, 0)))
    for shape in ((84, 84, 4), (10, 10, 12), (5, 8), (9,)):
        assert channels_last(make(*shape)).observation_space.shape == shape


def test_a_dict_with_images_becomes_arrays_by_name():
    image = np.arange(60, dtype=np.uint8).reshape(2, 6, 5)
    inner = spaces.Dict({"number": spaces.Discrete(3), "a/b": spaces.Box(-1, 1, (2,), np.float64)})
    space = spaces.Dict(image=spaces.Box(0, 255, image.shape, np.uint8), inner=inner)
    shown = {"image": image, "inner": {"number": 2, "a/b": np.ones(2)}}
    env = wrapped(*[lambda: PartsObservation(changed(observation_space=space, shown=shown)())] * 2)
    specs, seen = env.observation_spec(), env.reset().observation
    assert {name: (spec.shape, spec.dtype.name) for name, spec in specs.items()} == {
        "image": ((6, 5, 2), "uint8"),
        "inner/number": ((3,), "float32"),
        "inner/a/b": ((2,), "float64"),
    }
    np.testing.assert_array_equal(seen["image"][1], np.moveaxis(image, 0, -1))
    np.testing.assert_array_equal(seen["inner/number"], [[0, 0, 1]] * 2)


def test_arguments_of_gymnasiums_environments():
    def make(name="FrozenLake-v1", **arguments):
        return environments.make(name, 2, seed=0, env_kwargs=arguments)

    env = make(is_slippery=False, map_name="8x8")
    assert env.observation_spec().shape == (64,)
    env.reset()
    for row in range(1, 8):
        assert env.step(np.ones(2, int)).observation.argmax(axis=-1).tolist() == [8 * row] * 2, "no slipping"
    assert make("minatar/breakout", sticky_action_prob=0.5).num_actions == 6
    for name, arguments, words in (
        ("FrozenLake-v1", {"is_slipery": False}, "argument 'is_slipery'; it takes .*is_slippery"),
        ("pong", {"frameskip": 2}, "env_kwargs: for Gymnasium's ids, not for 'pong'"),
    ):
        with pytest.raises(ValueError, match=words):
            make(name, **arguments)
    with pytest.raises(EnvironmentFault, match="FrozenLake-v1, copy 1 of 2 cannot be made: KeyError: '9x9'"):
        make(map_name="9x9")
    with pytest.raises(ValueError, match="env_kwargs.*keywords must be strings"):
        environments.make("FrozenLake-v1", env_kwargs={1: 2})
