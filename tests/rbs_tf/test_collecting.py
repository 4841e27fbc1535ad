"""`collect_returns` feeds exactly what the episodes were, in portions."""

import contextlib
import functools
import itertools
import pickle
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rbs_tf import ReturnMoments, collect_returns
from rbs_tf.numpy import ReturnScaling as NumpyScaling
from tests.scripted import A, B, C, D, Script, assert_equal, expected, shown, stepped, vector


class Sum:
    """What `merge_state` was given, all of it."""

    def __init__(self, num_heads=1):
        self.num_heads = num_heads
        self.moments, self.portions = ReturnMoments.empty(num_heads), []

    def merge_state(self, moments):
        self.moments = ReturnMoments.merge(self.moments, moments)
        self.portions.append(moments)


def play(env, steps=None):
    """Whole episodes until the script ends, or so many steps."""
    try:
        env.reset()
        while steps != 0:
            _, _, terminated, truncated, _ = env.step(0)
            steps = steps and steps - 1
            if terminated or truncated:
                env.reset()
    except StopIteration:
        pass


@contextlib.contextmanager
def refused(kind, words):
    with pytest.raises(kind, match=words) as raised:
        yield
    assert "\n" not in str(raised.value)


# One environment.


def test_portions_add_up():
    for gammas, report_steps in itertools.product((0.9, [0.0, 0.9, 1.0]), (1, 3, 100)):
        seen = Sum(np.size(gammas))
        play(collect_returns(Script(A, B, C, A), seen, gammas, report_steps=report_steps))
        assert_equal(seen.moments, expected(gammas, A, B, C, A))


def test_cuts():
    """A reset in mid-episode, and the longest report, are like a time-out."""
    seen, endless = Sum(), Sum()
    env = collect_returns(Script(C, A), seen, 0.9)
    play(env, steps=4)
    play(env)
    assert_equal(seen.moments, expected(0.9, (C[0][:4], False), A))
    play(collect_returns(Script(C), endless, 0.9, max_report_steps=3), steps=6)
    assert_equal(endless.moments, expected(0.9, (C[0][:3], False), (C[0][3:6], False)))


def test_threads_share_a_scaling(at_once):
    """One gamma serves all heads."""
    scaling = NumpyScaling(num_heads=2)

    def collect():
        play(collect_returns(Script(C, A, forever=True), scaling, 0.9, report_steps=1000), steps=100)

    at_once(collect)
    whole = 100 // 10  # episodes of each kind: C has 7 steps, A has 3
    assert_equal(scaling.moments, expected([0.9] * 2, *[C, A] * whole * 4))


def test_wrong_arguments():
    class Unknown(gymnasium.vector.VectorEnv):
        num_envs = 2
        metadata = {"autoreset_mode": "perhaps"}

    env = Script(A)
    cases = [((env, Sum(), gamma), {}, "gamma") for gamma in (1.5, True, "0.9", None, [], [0.9] * 2)]
    cases += [((env, Sum(), 0.9), {"report_steps": steps}, "report_steps") for steps in (0, 2.5)]
    cases += [
        ((env, Sum(), 0.9), {"max_report_steps": 0}, "max_report_steps"),
        ((3, Sum(), 0.9), {}, "gymnasium.Env, a gymnasium.vector.VectorEnv or a .* VecEnv; got 3"),
        ((Unknown(), Sum(), 0.9), {}, "autoreset_mode.*perhaps"),
        ((Script(), Sum, 0.9), {}, "scaling must be a ReturnScaling, or have its merge_state"),
    ]
    for arguments, settings, complaint in cases:
        with refused((TypeError, ValueError), complaint):
            collect_returns(*arguments, **settings)


class Several(gymnasium.Env):
    """Holds 4 environments, and is no `VectorEnv`."""

    num_envs = 4


class Pool(gymnasium.Env):
    """As EnvPool's before 1.0."""

    all_env_ids = np.arange(4)


def test_several_environments_that_are_no_vector_are_refused():
    for env in (Several(), Pool(), gymnasium.wrappers.TransformReward(Several(), abs)):
        with refused(TypeError, "holds 4 environments and is no gymnasium.vector.VectorEnv"):
            collect_returns(env, Sum(), 0.9)
    Several.num_envs = 1
    collect_returns(Several(), Sum(), 0.9)


def test_what_is_both_an_env_and_a_vector_is_a_vector():
    """As EnvPool's environments are today."""

    class Both(VectorAnswers, gymnasium.Env):
        pass

    seen = Sum()
    collect_returns(Both(rewards=np.arange(3.0)), seen, 0.9).step(None)
    assert seen.moments.count == 3 and seen.moments.reward_mean == 1.0


def test_a_scaling_is_fed_once():
    seen, other = Sum(), Sum()
    one = gymnasium.wrappers.TransformReward(collect_returns(Script(A), seen, 0.9), float)
    vector_of = SyncVectorEnv([lambda: collect_returns(Script(A), seen, 0.9)])
    wrapped = gymnasium.wrappers.vector.TransformReward(
        collect_returns(vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, (A,)), seen, 0.9), abs
    )
    for envs in (one, vector_of, wrapped):
        words = f"^{type(envs.unwrapped).__name__} feeds.*would count twice: leave out one of the two collect_returns"
        with refused(ValueError, words):
            collect_returns(envs, seen, 0.9)
    play(collect_returns(one, other, 0.5))
    assert_equal(seen.moments, expected(0.9, A))
    assert_equal(other.moments, expected(0.5, A))


def test_a_scaling_is_fed_once_per_head():
    """As where one head learns from clipped rewards, and another one from all of them."""
    scale = NumpyScaling(num_heads=3)
    env = collect_returns(Script(A), scale, 0.9, head=0)
    env = collect_returns(gymnasium.wrappers.TransformReward(env, lambda r: 2.0 * r), scale, 0.5, head=1)
    play(env)
    once, twice = (expected(gamma, A).to_array()[:, 0] for gamma in (0.9, 0.5))
    np.testing.assert_allclose(scale.moments.to_array()[:, 0], once)
    np.testing.assert_allclose(scale.moments.return_count, [once[5], twice[5], 0.0])
    np.testing.assert_allclose(scale.moments.reward_mean, [once[1], 2.0 * twice[1], 0.0])
    of_all = collect_returns(Script(A), scale, 0.9)
    for envs, head in ((env, 0), (env, 1), (env, None), (of_all, 2)):
        with refused(ValueError, "give each a `head` of its own"):
            collect_returns(envs, scale, 0.9, head=head)


Autoreset = gymnasium.wrappers.Autoreset


def limited(env):
    """With an autoreset beneath another wrapper."""
    return gymnasium.wrappers.TransformReward(Autoreset(gymnasium.wrappers.TimeLimit(env, 5)), lambda r: r)


@pytest.mark.parametrize("wrap", [Autoreset, limited])
def test_autoresets_steps_do_not_count(wrap):
    seen = Sum()
    env = collect_returns(wrap(Script(A, B, A[:1] + (False,), forever=True)), seen, 0.9)
    env.reset()
    for _ in range(2 * (4 + 2 + 4)):
        env.step(0)
    assert_equal(seen.moments, expected(0.9, *2 * [A, B, (A[0], False)]))
    env.reset()  # where the next step would only reset: now it does not
    env.step(0)
    env.reset()
    assert seen.moments.count == 2 * 7 + 1


class GoesOn(Script):
    """Steps on after its end, as CartPole does."""

    def step(self, action):
        return super().step(action) if self._rewards else (np.zeros(1, np.float32), 7.0, True, False, {})


class ResetsItself(gymnasium.Wrapper):
    """In the step that ends an episode, as Gymnasium did before 1.0."""

    def step(self, action):
        observation, *others = super().step(action)
        if others[1] or others[2]:
            observation, _ = self.env.reset()
        return observation, *others


def test_steps_after_an_end_are_refused():
    """Of environments that reset themselves in an unknown way; these count beneath what resets them."""
    for env in (ResetsItself(Script(A, A)), GoesOn(A)):
        seen = Sum()
        env = collect_returns(env, seen, 0.9)
        env.reset()
        for _ in A[0]:
            env.step(0)
        with refused(ValueError, "stepped after its episode had ended.*Call reset"):
            env.step(0)
        assert_equal(seen.moments, expected(0.9, A))
    seen = Sum()
    env = Autoreset(collect_returns(Script(A, B, A), seen, 0.9))
    env.reset()
    for _ in range(4 + 2 + 3):
        env.step(0)
    assert_equal(seen.moments, expected(0.9, A, B, A))


class Answers(gymnasium.Env):
    """Hands out what it is given."""

    def __init__(self, *answer):
        self._answer = answer

    def step(self, action):
        return np.zeros(1, np.float32), *self._answer, {}


def test_values_of_one_environment():
    for reward, terminated in (
        (1.0, False),
        (np.float32(1), np.False_),
        (np.ones(1), np.zeros((1, 1), bool)),
    ):
        seen = Sum()
        collect_returns(Answers(reward, terminated, False), seen, 0.9).step(0)
        assert seen.moments.count == 1 and seen.moments.reward_mean == 1.0
    for words, answer in (
        ("reward must have one value", (np.ones(3), False, False)),
        ("reward must be real numbers", ("much", False, False)),
        ("reward must be real numbers; got complex128", (1.0 + 2.0j, False, False)),
        ("terminated must have one value", (1.0, np.zeros(2, bool), False)),
    ):
        seen = Sum()
        with refused(ValueError, words):
            collect_returns(Answers(*answer), seen, 0.9).step(0)
        assert not seen.portions


# Environments that step together.


@pytest.mark.parametrize(
    ("kind", "mode", "gammas", "report_steps"),
    [
        (SyncVectorEnv, AutoresetMode.NEXT_STEP, 0.9, 1000),
        (SyncVectorEnv, AutoresetMode.SAME_STEP, [0.0, 0.9, 1.0], 7),
        (SyncVectorEnv, AutoresetMode.DISABLED, [0.0, 0.9, 1.0], 7),
        (AsyncVectorEnv, AutoresetMode.NEXT_STEP, [0.0, 0.9], 7),
    ],
)
def test_vectors_add_up(kind, mode, gammas, report_steps):
    scripts = [(A, B, C), (C, A), (B,), (D,)]
    seen, envs = Sum(np.size(gammas)), vector(kind, mode, *scripts)
    # Gymnasium 1.3 writes the mode of another vector environment into the metadata of the first.
    vector(SyncVectorEnv, next(other for other in AutoresetMode if other != mode), *scripts).close()
    envs = collect_returns(envs, seen, gammas, report_steps=report_steps)
    envs.reset(seed=0)
    for _ in range(300):
        *_, terminated, truncated, _ = envs.step(np.zeros(envs.num_envs, int))
        over = terminated | truncated
        if mode == AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})
    envs.reset()
    assert_equal(seen.moments, expected(gammas, *shown(mode, scripts, 300)))
    assert len(seen.portions) <= 301  # one merge a vector step at most
    envs.close()


def test_portions_of_a_vector():
    """The first steps at once, later ones in portions, and all of them with returns."""
    seen = Sum()
    envs = collect_returns(
        vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, (C,), (D,)), seen, 0.9, report_steps=4
    )
    envs.reset()
    for steps, *counts in ((1, 2, 0, 1), (3, 8, 0, 4), (2, 8, 0, 4), (1, 14, 7, 5), (4, 21, 7, 6)):
        stepped(envs, steps)
        assert [seen.moments.count, seen.moments.return_count, len(seen.portions)] == counts


def test_cuts_of_a_vector():
    seen, (d, _), (c, _) = Sum(), D, C
    envs = vector(SyncVectorEnv, AutoresetMode.SAME_STEP, (D,), (C,))
    envs = collect_returns(envs, seen, 0.9, max_report_steps=5)
    envs.reset()
    stepped(envs, 7)
    envs.reset(options={"reset_mask": np.array([True, False])})
    stepped(envs, 1)
    ended = (d[:5], False), (d[5:7], False), (c[:5], False), (c[5:], False)
    envs.reset()
    assert_equal(seen.moments, expected(0.9, *ended, (d[:1], False), (c[:1], False)))


@pytest.mark.parametrize("mode, reward", zip(AutoresetMode, [np.nan, -np.inf, 1e200], strict=True))
def test_what_cannot_be_counted_is_left_out(mode, reward):
    seen = Sum()
    scripts = (C,), (([1.0, reward, 2.0], True),), (([5.0, reward], True),)
    envs = collect_returns(vector(SyncVectorEnv, mode, *scripts), seen, 0.9)
    envs.reset()
    stepped(envs, 1)
    with refused(ValueError, f"reward of environment 1 is {re.escape(str(reward))} at step 1"):
        stepped(envs, 1)
    if mode == AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": np.array([False, False, True])})
    stepped(envs, 1)
    envs.reset()
    third = () if mode == AutoresetMode.NEXT_STEP else (([5.0], False),)
    seen_of = (C[0][:3], False), ([1.0, 2.0], True), ([5.0], False)
    assert_equal(seen.moments, expected(0.9, *seen_of, *third))


class VectorAnswers(gymnasium.vector.VectorEnv):
    """Hands out what it is given, of 3 environments."""

    num_envs = 3
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, **given):
        self._answer = {"rewards": np.ones(3), "terminated": (False,) * 3, "truncated": (False,) * 3} | given

    def step(self, actions):
        return np.zeros((3, 1)), *self._answer.values(), {}


def test_values_of_a_vector():
    for name, wrong in (("rewards", np.ones((3, 1))), ("terminated", False), ("truncated", np.zeros((3, 1)))):
        seen = Sum()
        envs = collect_returns(VectorAnswers(**{name: wrong}), seen, 0.9)
        with refused(ValueError, f"^{name} must have shape"):
            envs.step(None)
        assert not seen.portions
    with refused(ValueError, r"reset_mask must have shape \(3,\)"):
        envs.reset(options={"reset_mask": np.ones(1, bool)})


@pytest.mark.parametrize("name, unit", [("CartPole-v1", 16.0), ("Pendulum-v1", 390.0)])
def test_the_units_that_the_pages_name(name, unit):
    """docs/adopting.md and docs/pytorch.md: played at random."""
    scale = NumpyScaling(sigma_v=1.0)
    env = collect_returns(gymnasium.make(name), scale, 0.99)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(20_000):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    assert scale.unit == pytest.approx(unit, rel=0.05)


# Processes.


def step_once(envs):
    with contextlib.closing(envs):
        envs.reset()
        stepped(envs, 1)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_copy_in_another_process_is_refused(context):
    scale = NumpyScaling()
    with refused(RuntimeError, r"copy of a scaling.*collect_returns\(AsyncVectorEnv"):
        step_once(AsyncVectorEnv([lambda: collect_returns(Script(A), scale, 0.9)], context=context))


def test_a_scale_that_was_made_or_read_in_another_process_is_its_own():
    stored, cartpole = pickle.dumps(scale := NumpyScaling()), functools.partial(gymnasium.make, "CartPole-v1")
    for own in (NumpyScaling, functools.partial(pickle.loads, stored)):
        step_once(AsyncVectorEnv([lambda own=own: collect_returns(Script(A), own(), 0.9)], context="fork"))
    step_once(collect_returns(AsyncVectorEnv([cartpole] * 2, context="fork"), scale, 0.9))
    assert scale.moments.count == 2
