"""Copies of an environment as people write them: what differs, what fails, and what nobody reads."""

import io
import os
import signal
import sys

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
    info, shown = {}, np.zeros(3)

    def __init__(self, low=-1.0, high=1.0):
        self.observation_space = spaces.Box(low, high, (3,), np.float32)
        self.closed = False

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.shown, self.info

    def step(self, action):
        self.t += 1
        return self.shown, 1, self.t == 3, False, self.info

    def close(self):
        self.closed = True


def with_spaces(**of_class):
    return lambda: type("Plain", (Plain,), {"__init__": lambda self: None, **of_class})()


def copies(*makes, name="Mine-v0"):
    turn = iter(makes)
    return Copies(lambda: next(turn)(), len(makes), name)


def wrapped(*makes):
    return GymnasiumVectorEnvironment(copies(*makes), "Mine-v0", seed=0)


def played(*makes, steps=8):
    env = wrapped(*makes)
    env.reset()
    return [env.step(np.zeros(len(makes), int)) for _ in range(steps)]


def refused(*makes):
    with pytest.raises((ValueError, EnvironmentFault)) as error:
        played(*makes)
    (said,) = str(error.value).splitlines()
    assert said.startswith("Mine-v0"), said
    return said


def test_bounds_may_differ_and_nothing_else():
    env = wrapped(
        Plain, lambda: Plain(-3.0, 0.5), lambda: Plain(np.float32([-1, -9, 0]), np.float32([1, 1, 7]))
    )
    spec = env.observation_spec()
    np.testing.assert_array_equal((spec.minimum, spec.maximum), ([-3, -9, -3], [1, 1, 7]))
    assert env.reset().observation.shape == (3, 3)
    flags, pixels = (with_spaces(observation_space=spaces.Box(0, top, (3,), np.uint8)) for top in (1, 255))
    assert wrapped(flags, pixels).observation_spec().maximum == 255, "pixels of one copy are no flags"

    def moves(low, high):
        return with_spaces(action_space=spaces.Box(np.float32(low), np.float32(high)))

    spec = wrapped(moves([-1, 0], [1, 5]), moves([-2, 1], [0.5, 9])).action_spec()
    np.testing.assert_array_equal((spec.minimum, spec.maximum), ([-1, 1], [0.5, 5]))
    for makes, words in (
        ((moves([0], [1]), moves([2], [3])), "no action that all copies take"),
        ((Plain, Plain, with_spaces(observation_space=spaces.Box(-1, 1, (4,), np.float32))), "copy 3 Box"),
        ((Plain, with_spaces(observation_space=spaces.Box(-1, 1, (3,), np.float64))), "copy 2 Box"),
        ((Plain, with_spaces(action_space=spaces.Discrete(3))), r"copy 2 Discrete(3)"),
        ((Plain, with_spaces(action_space=spaces.Discrete(2, start=1))), "copy 2 Discrete(2, start=1)"),
    ):
        assert words in refused(*makes)


class Speechless(Exception):
    def __str__(self):
        raise TypeError("no words")


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    "error, words",
    [
        (SystemExit("no licence\nask your administrator"), "SystemExit: no licence ask your administrator"),
        (ImportError("libGL.so"), "ImportError: libGL.so"),
        (Speechless(), "Speechless: it cannot be shown"),
        (gymnasium.error.DependencyNotInstalled("mujoco"), "DependencyNotInstalled: mujoco"),
        (KeyError("line\n" * 200 + "last"), "last'"),
    ],
)
def test_whatever_a_copy_does_is_named_with_it_and_the_others_are_closed(error, words):
    first = Plain()
    said = refused(lambda: first, raising(error))
    assert said.startswith("Mine-v0, copy 2 of 2 cannot be made: ") and said.endswith(words)
    assert len(said) < 400 and first.closed
    for method in ("reset", "step"):
        assert words in refused(Plain, Plain, with_spaces(**{method: raising(error)}))
    for described in ("observation_space", "action_space", "metadata"):
        assert words in refused(with_spaces(**{described: property(raising(error))}))


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, also where the tests have inherited it as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_a_persons_interrupt_goes_through():
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

    for method in ("reset", "step"):
        with pytest.raises(KeyboardInterrupt):
            played(with_spaces(**{method: interrupted}))


def test_one_that_closes_the_output_is_named(monkeypatch):
    def closing(self, *_, **__):
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        sys.stdout.close()
        return self.shown, 0.0, False, False, {}

    made = "Mine-v0 cannot be made: ", lambda: closing(Plain()) and Plain()
    for where, make in (made, ("Mine-v0, copy 1 of 1: ", with_spaces(step=closing))):
        said = refused(make)
        assert said.startswith(where) and "it has closed sys.stdout" in said and sys.stdout is None


def test_metadata_may_be_missing_and_stay_the_classs_own():
    for metadata in ({"render_fps": 7}, None):
        env = wrapped(make := with_spaces(metadata=metadata))
        assert env.vector_env.metadata.get("render_fps") == (metadata and 7)
        assert "autoreset_mode" not in (make().metadata or {})


def test_rewards_and_ends_of_the_wrong_kind_are_named():
    def gives(*answer):
        return with_spaces(step=lambda self, action: (self.shown, *answer, {}))

    for reward, words in (
        (None, "the reward is None, of type NoneType"),
        ("12", "the reward is '12', of type str"),
        (np.ones(2), "the reward is array([1., 1.]), of type ndarray"),
        (10**400, "of type int: expected a number that float64 holds"),
        (np.ma.masked_array([1.0], [True]), "of type MaskedArray"),
    ):
        said = refused(gives(reward, False, False))
        assert words in said and "copy 1 of 1" in said, said
    for end in (None, "yes", 0.5, [True, False]):
        for ends, name in (((end, False), "terminated"), ((False, end), "truncated")):
            said = refused(gives(1.0, *ends))
            assert f"{name} is {end!r}" in said and "expected True or False" in said, said
    for reward, end in ((True, np.True_), (np.float32(1), np.ones(1)), (np.ones((1, 1)), 0), ([1.0], 0.0)):
        assert played(gives(reward, end, False), steps=1)[0].reward == 1


def test_observations_of_the_wrong_kind_are_named():
    of_dict = spaces.Dict(image=spaces.Box(0, 255, (6, 5, 2), np.uint8), number=spaces.Discrete(3, start=1))

    def make(space, shown):
        env = with_spaces(observation_space=space, shown=shown)()
        return PartsObservation(env) if isinstance(space, spaces.Dict) else FlatObservation(env)

    image = np.zeros((6, 5, 2), np.uint8)
    for space, shown, words in (
        (
            spaces.Discrete(3, start=2),
            1,
            "an observation is 1, of type int, and its space says Discrete(3, start=2)",
        ),
        (spaces.Discrete(3), 3, "and its space says Discrete(3)"),
        (spaces.Discrete(3), 1.0, "an observation is 1.0, of type float"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "an observation is array([1, 3])"),
        (spaces.MultiBinary(3), [1, 0], "an observation is [1, 0]"),
        (spaces.Tuple([spaces.Discrete(2)] * 2), (1,), "an observation is (1,)"),
        (of_dict, {"image": image}, "an observation has no 'number'"),
        (of_dict, {"image": image, "number": 0}, "an observation is 0"),
        (of_dict, {"image": image[:1], "number": 1}, "an observation 'image' is uint8 (1, 5, 2)"),
        (of_dict, [image, 1], "expected a dictionary with 'image'"),
    ):
        said = refused(lambda space=space, shown=shown: make(space, shown))
        assert words in said, (space, said)
    for space, shown in (
        (spaces.Discrete(2), True),
        (spaces.Discrete(3, start=-1), -1),
        (spaces.MultiBinary(2), [1, 0]),
    ):
        assert played(lambda space=space, shown=shown: make(space, shown), steps=1)[0].observation.sum() == 1
    assert "is a masked array" in refused(with_spaces(shown=np.ma.masked_array(np.zeros(3), [0, 1, 0])))


def test_one_that_cannot_be_closed_keeps_neither_the_others_nor_a_run_from_its_end(caplog):
    last = Plain()
    env = wrapped(
        with_spaces(close=raising(OSError("gone"))), with_spaces(close=raising(SystemExit(3))), lambda: last
    )
    env.close()
    assert last.closed
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Mine-v0, copy 1 of 3 cannot be closed: OSError: gone",
        "Mine-v0, copy 2 of 3 cannot be closed: SystemExit: 3",
    ]


def test_what_stands_in_info_changes_nothing():
    plain = played(Plain, Plain)
    own = [
        with_spaces(info=info) for info in ({"life_lost": np.ones(2, bool)}, {"life_lost": "yes"}, None, 3)
    ]
    for makes in (own[:2], own[2:]):
        for a, b in zip(played(*makes), plain, strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    env = GymnasiumVectorEnvironment(gymnasium.vector.SyncVectorEnv([own[0]]), "Mine-v0")
    env.reset()
    assert env.step(np.zeros(1, int)).discount == 1, "nor of vector environments"


def test_the_old_api_is_named_before_anything_is_stepped_where_that_can_be():
    class OldWrapper(gymnasium.Wrapper):
        def reset(self, **kwargs):
            return self.env.reset(**kwargs)

    assert played(lambda: OldWrapper(Plain()))
    for make in (
        with_spaces(reset=lambda self, seed=None: (np.zeros(3), {})),
        lambda: gymnasium.wrappers.TimeLimit(with_spaces(reset=lambda self: np.zeros(3))(), 3),
    ):
        said = refused(make)
        assert "cannot be made" in said and "reset(seed=..., options=...)" in said
    for method, gives in (("step", (np.zeros(3), 1.0, False, {})), ("reset", np.zeros(3)), ("reset", 1)):
        make = with_spaces(**{method: lambda self, *_, gives=gives, **__: gives})
        for old in (make, lambda make=make: gymnasium.wrappers.TimeLimit(make(), 3)):
            assert "step(action), which gives (observation, reward, terminated" in refused(old)


def test_the_old_gyms_spaces_are_named():
    gym = pytest.importorskip("gym")
    assert "got the old Gym's Discrete(2), not" in refused(with_spaces(action_space=gym.spaces.Discrete(2)))
    with pytest.raises(ValueError, match="got the old Gym's Box.*, not Gymnasium's"):
        FlatObservation(with_spaces(observation_space=gym.spaces.Box(-1, 1, (3,)))())


def test_an_observation_that_does_not_fit_is_never_stretched():
    for shown in (np.zeros(1), 0.5, np.zeros((1, 3)), None, np.zeros(3, complex), ["a"] * 3):
        assert "and its space says float32 (3,)" in refused(with_spaces(shown=shown))
    for shown in ([0, 1, 0], np.ones(3, np.float64), np.ones(3, bool)):
        assert played(with_spaces(shown=shown))[0].observation.dtype == np.float32


def test_images_with_their_channels_first_are_transposed():
    def make(*shape):
        image = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
        return with_spaces(observation_space=spaces.Box(0, 255, shape, np.uint8), shown=image)()

    for shape in ((4, 84, 84), (1, 28, 20)):
        env = channels_last(make(*shape))
        assert env.observation_space.shape == (*shape[1:], shape[0])
        np.testing.assert_array_equal(env.reset()[0], np.transpose(env.unwrapped.shown, (1, 2, 0)))
    for shape in ((84, 84, 4), (10, 10, 12), (5, 8), (9,)):
        assert channels_last(make(*shape)).observation_space.shape == shape


def test_a_dict_with_images_becomes_arrays_by_name_each_within_its_own_bounds():
    image = spaces.Box(0, 255, (2, 6, 5), np.uint8)
    inner = spaces.Dict({"number": spaces.Discrete(3), "a/b": spaces.Box(-1, 1, (2,), np.float64)})
    shown = {"image": np.arange(60).reshape(2, 6, 5), "inner": {"number": 2, "a/b": np.ones(2)}, "other": 1}
    shown["image"] = shown["image"].astype(np.uint8)

    def make(top=1.0):
        low, high = np.float32([0]), np.float32([top])
        space = spaces.Dict(image=image, inner=inner, other=spaces.Box(low, high))
        seen = shown | {"other": np.float32([top])}
        return PartsObservation(with_spaces(observation_space=space, shown=seen)())

    env = wrapped(make, lambda: make(7.0))
    specs, seen = env.observation_spec(), env.reset().observation
    assert {name: (spec.shape, spec.dtype.name) for name, spec in specs.items()} == {
        "image": ((6, 5, 2), "uint8"),
        "inner/number": ((3,), "float32"),
        "inner/a/b": ((2,), "float64"),
        "other": ((1,), "float32"),
    }
    assert (specs["other"].maximum, seen["other"].tolist()) == (7.0, [[1.0], [7.0]])
    np.testing.assert_array_equal(seen["image"][1], np.moveaxis(shown["image"], 0, -1))
    np.testing.assert_array_equal(seen["inner/number"], [[0, 0, 1]] * 2)
    fewer = with_spaces(observation_space=spaces.Dict(image=image), shown=shown)
    assert "copy 2 Dict" in refused(make, lambda: PartsObservation(fewer()))


def test_arguments_reach_gymnasiums_environments_and_wrong_ones_are_named():
    def make(name="FrozenLake-v1", **arguments):
        return environments.make(name, 2, seed=0, env_kwargs=arguments)

    env = make(is_slippery=False, map_name="8x8")
    assert env.observation_spec().shape == (64,)
    env.reset()
    for row in range(1, 8):
        assert env.step(np.ones(2, int)).observation.argmax(axis=-1).tolist() == [8 * row] * 2, "no slipping"
    assert make("Pendulum-v1", g=0.0).vector_env.envs[0].unwrapped.g == 0.0
    assert make("minatar/breakout", sticky_action_prob=0.5).num_actions == 6
    for name, arguments, words in (
        ("FrozenLake-v1", {"is_slipery": False}, "no argument 'is_slipery'; it takes .*is_slippery"),
        ("CartPole-v1", {"max_episode_steps": 3}, "no argument 'max_episode_steps'"),
        ("pong", {"frameskip": 2}, "env_kwargs: for Gymnasium's ids, which 'pong' is not"),
        ("bsuite/catch/0", {"rows": 3}, "bsuite"),
    ):
        with pytest.raises((ValueError, ImportError), match=words):
            make(name, **arguments)
    with pytest.raises(EnvironmentFault, match="FrozenLake-v1, copy 1 of 2 cannot be made: KeyError: '9x9'"):
        make(map_name="9x9")
    with pytest.raises(ValueError, match="env_kwargs.*a dictionary of arguments"):
        environments.make("FrozenLake-v1", env_kwargs={1: 2})
