"""The meaning of a stream of time steps, on environments whose rules are known exactly."""

import gymnasium
import numpy as np
import pytest
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from rbs_tf import environments
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.environments.copies import Copies
from rbs_tf.errors import EnvironmentFault

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


def countdown(lengths=(3,)) -> GymnasiumVectorEnvironment:
    vector_env = gymnasium.vector.SyncVectorEnv(
        [lambda length=length: Countdown(length) for length in lengths]
    )
    return GymnasiumVectorEnvironment(vector_env, "countdown")


def actions(env, steps, seed=0):
    return np.random.default_rng(seed).integers(env.num_actions, size=(steps, env.batch_size), dtype=np.int32)


def stream(env, steps=40, reset=True):
    """All leaves of `steps` random steps, stacked: [1 + steps, N, ...]."""
    rows = [env.reset() if reset else env.current_time_step(), *map(env.step, actions(env, steps))]
    return ts.TimeStep(*(np.stack(leaf) for leaf in zip(*rows, strict=True)))


def equal(a: ts.TimeStep, b: ts.TimeStep) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_episodes_run_first_mid_last_and_start_again_by_themselves():
    """Actions count from 0 where the environment's own do not; the one given after LAST is ignored."""
    env = countdown(lengths=(3, 2))
    assert env.action_spec() == array_spec.BoundedArraySpec((), np.int32, 0, 2, "action")
    assert env.action_spec().name == "action"  # which == leaves out
    sent, step = [], env.vector_env.step
    env.vector_env.step = lambda actions: sent.append(actions) or step(actions)
    rows = [env.reset(), *map(env.step, np.transpose([[0, 1, 2, -1, 0, 1], [2, 2, 9, 1, 1, -1]]))]
    np.testing.assert_array_equal(sent, np.transpose([[5, 6, 7, 5, 5, 6], [7, 7, 5, 6, 6, 5]]))
    np.testing.assert_array_equal(
        [row.step_type for row in rows],
        np.transpose([[FIRST, MID, MID, LAST, FIRST, MID, MID], [FIRST, MID, LAST, FIRST, MID, LAST, FIRST]]),
    )
    np.testing.assert_array_equal([row.observation[0, 0] for row in rows], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal([row.reward[0] for row in rows], [0, 5, 6, 7, 0, 5, 6])
    np.testing.assert_array_equal([row.discount[0] for row in rows], [1, 1, 1, 0, 1, 1, 1])
    env.step(np.zeros(2, int))
    assert env.reset().is_first().all() and (env.step(np.zeros(2, int)).step_type == MID).all()


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
    # Another reset starts new episodes and does not play the first ones again.
    assert not np.array_equal(env.reset().observation, batch.observation[0])


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_streams_follow_their_seeds_and_specs(name):
    # Episodes of at most 6 steps: what is random in later resets counts too.
    env, twin, other = (environments.make(name, 2, seed, max_episode_steps=6) for seed in (5, 5, 6))
    spec = array_spec.add_outer_dims_nest(env.time_step_spec(), (2,))
    kept = env.reset()
    copied = ts.TimeStep(*(leaf.copy() for leaf in kept))
    one = stream(env, 14, reset=False)
    assert equal(kept, copied), "a time step that was handed out has changed"
    assert array_spec.check_arrays_nest(env.current_time_step(), spec)
    assert (one.step_type == LAST).sum() >= 3
    assert equal(one, stream(twin, 14)) and not equal(one, stream(other, 14))
    assert env.reset().is_first().all()


def test_environments_of_a_batch_are_no_copies_of_each_other():
    env = environments.make("minatar/space_invaders", 4, seed=0)
    rows = [env.reset(), *(env.step(np.full(4, step % env.num_actions)) for step in range(40))]
    assert len({b"".join(row.observation[i].tobytes() for row in rows) for i in range(4)}) == 4


def test_continuous_actions_reach_the_environments_in_order():
    env, twin = environments.make("Pendulum-v1", 2, seed=3), environments.make("Pendulum-v1", 2, seed=3)
    assert env.action_spec() == array_spec.BoundedArraySpec((1,), np.float32, -2.0, 2.0, "action")
    env.reset(), twin.reset()
    torques = np.array([[-2.0], [2.0]], np.float32)
    assert not np.isclose(*env.step(torques).observation[:, 2])  # angular velocities
    # Rounded past the limit: what arrives is the limit.
    assert equal(env.current_time_step(), twin.step(np.nextafter(torques, np.sign(torques) * 9)))


def test_what_does_not_fit_is_refused():
    class Switches(Countdown):
        action_space = gymnasium.spaces.MultiBinary(2)

    class Numbers(Countdown):
        observation_space = gymnasium.spaces.Discrete(9)

    for make, mode, complaint in (
        (Switches, "NextStep", "expected a Discrete action space, or a Box for agents that"),
        (Numbers, "NextStep", "expected an array"),
        (Countdown, "SameStep", "NEXT_STEP"),
    ):
        vector_env = gymnasium.vector.SyncVectorEnv([make], autoreset_mode=mode)
        with pytest.raises(ValueError, match=f"countdown: .*{complaint}"):
            GymnasiumVectorEnvironment(vector_env, "countdown")
    for name, wrong in (
        ("CartPole-v1", ([0, 2], [-1, 0], [0], [0.0, 1.0], [[0, 1]])),
        ("Pendulum-v1", ([[0.0], [2.1]], [[np.nan], [0.0]], [0.0, 0.0], [[0], [0]])),
    ):
        env = environments.make(name, 2, seed=0)
        env.reset()
        for action in wrong:
            with pytest.raises(ValueError, match=f"{name}: .*expected"):
                env.step(np.array(action))
    with pytest.raises(ValueError, match="Pendulum-v1: expected a Discrete action space"):
        _ = env.num_actions
    env.close()
    with pytest.raises(ValueError, match="Pendulum-v1 is closed"):
        env.reset()


class Gives(gymnasium.Env):
    """Its observation is always `shown`, but for its tenth step."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, shown, *tenth):
        self._shown, self._tenth = shown, tenth or (0.0, shown)
        number = gymnasium.spaces.Box(-np.inf, np.inf, (), np.float32)
        self.observation_space = gymnasium.spaces.Dict(a=number) if isinstance(shown, dict) else number

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return self._shown, {}

    def step(self, action):
        self._steps += 1
        reward, observation = self._tenth if self._steps == 10 else (0.0, self._shown)
        return observation, reward, False, False, {}


def giving(*of_each):
    turn = iter(of_each)
    return GymnasiumVectorEnvironment(Copies(lambda: Gives(*next(turn)), len(of_each), "gives"), "gives")


ZERO, NAN = np.float32([0.0, np.nan])


@pytest.mark.parametrize(
    "shown, reward, observation, complaint",
    [
        (ZERO, np.nan, ZERO, "reward nan"),
        (ZERO, 1e39, ZERO, "reward inf"),  # in float32
        (ZERO, 0.0, -np.float32(np.inf), "observation -inf"),
        ({"a": ZERO}, 0.0, {"a": NAN}, "observation 'a' nan"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_not_finite_is_refused(shown, reward, observation, complaint):
    env = giving((shown,), (shown, reward, observation))
    env.reset()
    for _ in range(9):
        env.step(np.zeros(2, int))
    with pytest.raises(EnvironmentFault, match=f"^gives, environment 1: {complaint}; it must be finite"):
        env.step(np.zeros(2, int))
    with pytest.raises(EnvironmentFault, match="^gives, environment 0: observation nan"):
        giving((NAN,)).reset()
