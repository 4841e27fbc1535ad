"""The meaning of a stream of time steps, on environments whose rules are known exactly."""

import gymnasium
import numpy as np
import pytest
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from rbs_tf import environments
from rbs_tf.environments.batched import GymnasiumVectorEnvironment

FIRST, MID, LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))
EVERY_FAMILY = ("CartPole-v1", "minatar/space_invaders", "pong")


class Countdown(gymnasium.Env):
    """Ends after `length` steps; rewards the action itself; actions are 5, 6, 7."""

    action_space = gymnasium.spaces.Discrete(3, start=5)
    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.int64)

    def __init__(self, length: int = 3):
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.array([0]), {}

    def step(self, action):
        self._steps += 1
        return np.array([self._steps]), float(action), self._steps == self._length, False, {}


class Switches(Countdown):
    action_space = gymnasium.spaces.MultiBinary(2)


class Sentences(Countdown):
    observation_space = gymnasium.spaces.Text(9)


gymnasium.register("test/Switches-v0", Switches)
gymnasium.register("test/Sentences-v0", Sentences)


def countdown(lengths=(3,), **kwargs) -> GymnasiumVectorEnvironment:
    vector_env = gymnasium.vector.SyncVectorEnv(
        [lambda length=length: Countdown(length) for length in lengths]
    )
    return GymnasiumVectorEnvironment(vector_env, "countdown", **kwargs)


def actions(env, steps, seed=0):
    return np.random.default_rng(seed).integers(env.num_actions, size=(steps, env.batch_size), dtype=np.int32)


def stream(env, steps=40, reset=True):
    """All leaves of `steps` random steps, stacked: [1 + steps, N, ...]."""
    rows = [env.reset() if reset else env.current_time_step(), *map(env.step, actions(env, steps))]
    return ts.TimeStep(*(np.stack(leaf) for leaf in zip(*rows, strict=True)))


def equal(a: ts.TimeStep, b: ts.TimeStep) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_episodes_run_first_mid_last_and_start_again_by_themselves():
    env = countdown(lengths=(3, 2))
    rows = [env.reset()] + [env.step(np.zeros(2, np.int32)) for _ in range(6)]
    np.testing.assert_array_equal(
        [row.step_type for row in rows],
        np.transpose([[FIRST, MID, MID, LAST, FIRST, MID, MID], [FIRST, MID, LAST, FIRST, MID, LAST, FIRST]]),
    )
    np.testing.assert_array_equal([row.observation[0, 0] for row in rows], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal([row.reward[0] for row in rows], [0, 5, 5, 5, 0, 5, 5])
    np.testing.assert_array_equal([row.discount[0] for row in rows], [1, 1, 1, 0, 1, 1, 1])


def test_the_action_given_after_last_is_ignored_whatever_it_is():
    env = countdown(lengths=(1, 2))
    env.reset()
    env.step(np.array([0, 0]))
    after = env.step(np.array([-1, 2]))
    np.testing.assert_array_equal(after.step_type, [FIRST, LAST])
    np.testing.assert_array_equal(after.reward, [0, 7])


def test_actions_count_from_zero_where_the_environments_own_do_not():
    env = countdown(lengths=(9,))
    assert env.action_spec() == array_spec.BoundedArraySpec((), np.int32, 0, 2, "action")
    env.reset()
    assert [float(env.step(np.array([action])).reward[0]) for action in range(3)] == [5, 6, 7]


def test_a_terminal_step_has_discount_0_and_a_time_out_1():
    def last(max_episode_steps):
        env = environments.make("CartPole-v1", seed=3, max_episode_steps=max_episode_steps)
        rows = [env.reset()]
        while not rows[-1].is_last().all():
            rows.append(env.step(np.zeros(1, np.int32)))  # always to the left: the pole falls
        return len(rows) - 1, float(rows[-1].discount[0])

    steps, discount = last(None)
    assert 5 < steps < 15 and discount == 0
    assert last(steps - 1) == (steps - 1, 1)
    assert last(steps) == (steps, 0), "a pole that falls on the very step of the time-out has fallen"


def test_the_stream_is_that_of_plain_gymnasium_loops():
    seed, count, steps = 11, 3, 200
    env = environments.make("CartPole-v1", count, seed)
    batch = stream(env, steps)
    for i, state in enumerate(np.random.SeedSequence(seed).generate_state(count)):
        plain = gymnasium.make("CartPole-v1")
        observation, _ = plain.reset(seed=int(state) >> 1)
        rows, over = [(FIRST, 0.0, 1.0, observation)], False
        for action in actions(env, steps)[:, i]:
            if over:
                observation, _ = plain.reset()
                rows.append((FIRST, 0.0, 1.0, observation))
                over = False
            else:
                observation, reward, terminated, truncated, _ = plain.step(action)
                over = terminated or truncated
                rows.append((LAST if over else MID, reward, 1.0 - terminated, observation))
        expected = ts.TimeStep(*(np.stack(leaf) for leaf in zip(*rows, strict=True)))
        assert (expected.step_type == LAST).sum() >= 2
        for got, want in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(got[:, i], want)


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_equal_seeds_and_actions_give_equal_streams(name):
    # Episodes of at most 12 steps: what is random in later resets counts too.
    one, same, other = (stream(environments.make(name, 3, seed, max_episode_steps=12)) for seed in (5, 5, 6))
    assert (one.step_type == LAST).sum() >= 3
    assert equal(one, same)
    assert not equal(one, other)


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_environments_of_a_batch_are_no_copies_of_each_other(name):
    env = environments.make(name, 4, seed=0)
    env.reset()
    rows = [env.step(np.full(4, step % env.num_actions)) for step in range(40)]
    histories = {b"".join(row.observation[i].tobytes() for row in rows) for i in range(4)}
    assert len(histories) == 4


def test_seeds_of_neighbouring_runs_share_no_environment():
    episodes = [environments.make("CartPole-v1", 8, seed).reset().observation for seed in range(8)]
    assert len(np.unique(np.concatenate(episodes), axis=0)) == 64


def test_reset_starts_a_new_episode_instead_of_playing_the_first_one_again():
    env = environments.make("CartPole-v1", 2, seed=0)
    first = env.reset()
    env.step(np.zeros(2, np.int32))
    again = env.reset()
    assert again.is_first().all() and not np.array_equal(first.observation, again.observation)


def test_reset_forgets_that_episodes_had_ended():
    env = countdown(lengths=(1,))
    env.reset()
    assert env.step(np.array([0])).is_last().all()
    env.reset()
    assert env.step(np.array([0])).is_last().all(), "the first step after a reset is a real one"


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_time_steps_are_what_the_specs_say(name):
    env = environments.make(name, 2, seed=0, max_episode_steps=8)
    spec = array_spec.add_outer_dims_nest(env.time_step_spec(), (2,))
    env.reset()
    for action in actions(env, 20):
        assert array_spec.check_arrays_nest(env.step(action), spec)


def test_time_steps_handed_out_do_not_change_afterwards():
    for name in EVERY_FAMILY:
        env = environments.make(name, 2, seed=0)
        kept = env.reset()
        copies = [leaf.copy() for leaf in kept]
        for action in actions(env, 20):
            env.step(action)
        assert equal(kept, ts.TimeStep(*copies))


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("CartPole-v1", ([0, 2], [-1, 0], [0], [0.0, 1.0], [[0, 1]])),
        ("Pendulum-v1", ([[0.0], [2.1]], [[np.nan], [0.0]], [0.0, 0.0], [[0], [0]])),
    ],
)
def test_wrong_actions_are_refused(name, actions):
    env = environments.make(name, 2, seed=0)
    env.reset()
    for action in actions:
        with pytest.raises(ValueError, match=f"{name}: .*expected"):
            env.step(np.array(action))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("test/Sentences-v0", "observations of arrays and numbers"),
        ("test/Switches-v0", "Discrete or Box action space"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_before_any_work(name, complaint):
    with pytest.raises(ValueError, match=f"{name}: expected .*{complaint}"):
        environments.make(name)


def test_continuous_actions_cannot_be_counted():
    env = environments.make("Pendulum-v1")
    with pytest.raises(ValueError, match="Pendulum-v1: expected a Discrete action space"):
        _ = env.num_actions


def test_continuous_actions_reach_the_environments_in_order():
    env, twin = environments.make("Pendulum-v1", 2, seed=3), environments.make("Pendulum-v1", 2, seed=3)
    assert env.action_spec() == array_spec.BoundedArraySpec((1,), np.float32, -2.0, 2.0, "action")
    env.reset(), twin.reset()
    torques = np.array([[-2.0], [2.0]], np.float32)
    assert not np.isclose(*env.step(torques).observation[:, 2])  # angular velocities
    # Rounded past the limit: what arrives is the limit.
    assert equal(env.current_time_step(), twin.step(np.nextafter(torques, np.sign(torques) * 9)))


def test_other_autoreset_modes_are_refused():
    same_step = gymnasium.vector.SyncVectorEnv([Countdown], autoreset_mode="SameStep")
    with pytest.raises(ValueError, match="NEXT_STEP"):
        GymnasiumVectorEnvironment(same_step, "countdown")


def restored(state: bytes, name: str) -> GymnasiumVectorEnvironment:
    env = environments.make(name, 3, seed=5)
    env.restore(state)
    return env


@pytest.mark.parametrize("name", ["CartPole-v1", "minatar/space_invaders", "minatar/seaquest"])
@pytest.mark.parametrize("steps", [0, 60])
def test_a_restored_environment_goes_on_bit_for_bit_in_the_middle_of_its_episodes(name, steps):
    env = environments.make(name, 3, seed=4)
    stream(env, steps)
    again = restored(env.state(), name)
    assert equal(again.current_time_step(), env.current_time_step())
    for _ in range(2):
        a, b = stream(env, 300, reset=False), stream(again, 300, reset=False)
        assert equal(a, b) and (a.step_type == LAST).any()


def test_an_environment_restored_before_its_first_step_begins_with_the_seeds_of_the_other():
    env = environments.make("CartPole-v1", 3, seed=4)
    again = restored(env.state(), "CartPole-v1")
    assert equal(stream(env), stream(again))


def test_an_environment_restored_on_a_last_step_begins_an_episode():
    env = environments.make("CartPole-v1", 3, seed=4)
    env.reset()
    while not env.current_time_step().is_last().any():
        env.step(np.zeros(3, np.int32))
    again = restored(env.state(), "CartPole-v1")
    a, b = stream(env, reset=False), stream(again, reset=False)
    assert equal(a, b) and (a.step_type[1] == FIRST).any()


class Remade(Countdown, gymnasium.utils.EzPickle):
    def __init__(self):
        gymnasium.utils.EzPickle.__init__(self)
        super().__init__()


class Holder(gymnasium.Wrapper):
    """Keeps an environment outside of the chain of wrappers."""

    def __init__(self):
        super().__init__(Countdown())
        self.other = Remade()


class Unpicklable(Countdown):
    def __init__(self):
        super().__init__()
        self.rule = lambda: None


def make_wrapped():
    return gymnasium.wrappers.TimeLimit(Remade(), 9)


@pytest.mark.parametrize("make", [Remade, make_wrapped, Holder, Unpicklable])
def test_what_a_pickle_would_not_restore_has_no_state(make):
    assert GymnasiumVectorEnvironment(gymnasium.vector.SyncVectorEnv([Countdown]), "countdown").state()
    env = GymnasiumVectorEnvironment(gymnasium.vector.SyncVectorEnv([make]), "countdown")
    env.reset()
    assert env.state() is None


def test_a_closed_environment_says_so():
    env = countdown()
    env.close()
    assert env.state() is None
    with pytest.raises(ValueError, match="countdown is closed"):
        env.reset()


def test_ales_environments_have_no_state():
    env = environments.make("pong", 1, seed=0)
    env.reset()
    assert env.state() is None
    env.close()


def another_version(state: bytes) -> bytes:
    return state.replace(gymnasium.__version__.encode(), b"0" * len(gymnasium.__version__))


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda state: state[:-20], "does not load"),
        (lambda state: state.replace(b"gymnasium.vector", b"gymnasium.wector"), "ModuleNotFoundError"),
        (another_version, "with Gymnasium 0000"),
        (lambda state: environments.make("CartPole-v1", 2, 0).state(), "no longer the environment"),
        (lambda state: environments.make("Acrobot-v1", 3, 0).state(), "no longer the environment"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_is_changed(spoil, message):
    env, same = (environments.make("CartPole-v1", 3, seed=4) for _ in range(2))
    stream(env), stream(same)
    with pytest.raises(ValueError, match=message):
        env.restore(spoil(env.state()))
    assert equal(stream(env, reset=False), stream(same, reset=False))
