"""`CollectReturns` feeds exactly what the episodes were, in portions."""

import copy
import functools
import itertools
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rbs_tf import CollectReturns, ReturnMoments


def layer(**settings):
    """TensorFlow's part; everything else here does without."""
    pytest.importorskip("tensorflow")
    from rbs_tf import ReturnScaling

    return ReturnScaling(**settings)


class Script(gymnasium.Env):
    """Plays the given episodes in turn: rewards, and whether the last step is terminal or a time-out."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *episodes, forever=False):
        self._episodes = itertools.cycle(episodes) if forever else iter(episodes)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rewards, self._terminal = next(self._episodes)
        self._rewards = list(rewards)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward, over = self._rewards.pop(0), not self._rewards
        return np.zeros(1, np.float32), reward, over and self._terminal, over and not self._terminal, {}


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


def expected(gammas, *episodes):
    gammas, moments = np.atleast_1d(gammas), ReturnMoments.empty(np.size(gammas))
    for rewards, terminal in episodes:
        rewards = np.repeat(np.array(rewards)[:, None], len(gammas), axis=1)
        discounts = np.broadcast_to(gammas, rewards.shape).copy()
        discounts[-1] *= not terminal
        moments = moments.merge(moments, ReturnMoments.from_episode(rewards, discounts))
    return moments


def assert_equal(a, b):
    np.testing.assert_allclose(a.to_array(), b.to_array(), rtol=1e-12, atol=1e-12)


A, B, C = ([1.0, 5.0, -2.0], True), ([3.0], True), (np.arange(7.0), False)


@pytest.mark.parametrize("gammas", [0.9, [0.0, 0.9, 1.0]])
@pytest.mark.parametrize("report_steps", [1, 3, 100])
def test_portions_add_up_to_the_episodes(gammas, report_steps):
    seen = Sum(np.size(gammas))
    play(CollectReturns(Script(A, B, C, A), seen, gammas, report_steps=report_steps))
    assert_equal(seen.moments, expected(gammas, A, B, C, A))


def test_rewards_arrive_before_the_episode_has_ended_and_returns_after():
    seen = Sum()
    play(CollectReturns(Script(C), seen, 0.9, report_steps=3), steps=6)
    assert seen.moments.count == 6 and seen.moments.return_count == 0
    np.testing.assert_allclose(seen.moments.reward_mean, np.mean(C[0][:6]))


def test_a_reset_in_mid_episode_cuts_it_like_a_time_out():
    seen = Sum()
    env = CollectReturns(Script(C, A), seen, 0.9)
    play(env, steps=4)
    play(env)
    assert_equal(seen.moments, expected(0.9, (C[0][:4], False), A))


def test_an_episode_without_end_reports_all_the_same():
    seen = Sum()
    play(CollectReturns(Script(C), seen, 0.9, max_report_steps=3), steps=6)
    assert_equal(seen.moments, expected(0.9, (C[0][:3], False), (C[0][3:6], False)))


def test_environments_of_one_process_share_a_layer():
    scaling = layer()
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda script=script: CollectReturns(Script(*script), scaling, 0.9) for script in ([C, C], [C, C])]
    )
    envs.reset(seed=0)
    for _ in range(len(C[0])):
        envs.step(np.zeros(2, int))
    np.testing.assert_allclose(scaling.sigma, expected(0.9, C, C).sigma)
    np.testing.assert_allclose(scaling.mean_return, expected(0.9, C, C).mean_return)


@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e200])
def test_a_reward_that_cannot_be_counted_is_refused_and_leaves_no_trace(reward):
    seen = Sum()
    env = CollectReturns(Script(([1.0, reward, 2.0], True), A), seen, 0.9)
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match=f"reward is {re.escape(str(reward))} at step 1"):
        env.step(0)
    env.step(0)
    play(env)
    assert_equal(seen.moments, expected(0.9, ([1.0, 2.0], True), A))


def test_one_gamma_serves_all_heads_of_a_layer():
    scaling = layer(num_heads=3)
    play(CollectReturns(Script(A, B), scaling, 0.9))
    np.testing.assert_allclose(scaling.sigma, expected([0.9] * 3, A, B).sigma)


@pytest.mark.parametrize("gamma", [[0.9], [0.9, 0.9, 0.9], []])
def test_gammas_of_another_number_of_heads_are_refused_at_once(gamma):
    with pytest.raises(ValueError, match="gamma must be"):
        CollectReturns(Script(A), layer(num_heads=2), gamma)


@pytest.mark.parametrize("scaling", [None, 3, ReturnMoments.empty(1)])
def test_a_scaling_that_takes_no_moments_is_refused_at_once(scaling):
    with pytest.raises(TypeError, match="scaling must be a ReturnScaling"):
        CollectReturns(Script(A), scaling, 0.9)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"gamma": 1.5}, "gamma must be"),
        ({"gamma": [[0.9]]}, "gamma must be"),
        ({"gamma": 0.9, "report_steps": 0}, "at least 1"),
        ({"gamma": 0.9, "max_report_steps": 0}, "at least 1"),
    ],
)
def test_wrong_settings_are_named(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        CollectReturns(Script(A), Sum(), **settings)


def test_it_takes_only_gymnasiums_environments():
    with pytest.raises(
        TypeError, match=r"env must be a gymnasium\.Env or a gymnasium\.vector\.VectorEnv; got 3"
    ):
        CollectReturns(3, Sum(), 0.9)


D = (-np.ones(130), True)  # longer than the first buffer
SCRIPTS = [(A, B, C), (C, A), (B,), (D,)]


def vector(kind, mode, scripts=SCRIPTS):
    """Scripts that start again when they are through, an environment each."""
    return kind(
        [functools.partial(Script, *script, forever=True) for script in scripts],
        autoreset_mode=mode,
    )


def shown(mode, scripts, steps):
    """The episodes that so many vector steps show, the last ones cut by the reset that follows."""
    for script in scripts:
        left = steps
        for rewards, terminal in itertools.cycle(script):
            seen = rewards[: max(left, 0)]
            if len(seen):
                yield seen, terminal and len(seen) == len(rewards)
            left -= len(rewards) + (mode == AutoresetMode.NEXT_STEP)
            if left <= 0:
                break


def step(envs, count=1):
    """Vector steps; under `DISABLED`, with the resets that are the caller's there."""
    for _ in range(count):
        *_, terminated, truncated, _ = envs.step(np.zeros(envs.num_envs, int))
        over = terminated | truncated
        if envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("kind", "gammas", "report_steps"),
    [
        (SyncVectorEnv, 0.9, 1),
        (SyncVectorEnv, [0.0, 0.9, 1.0], 7),
        (SyncVectorEnv, [0.5, 0.99], 1000),
        (AsyncVectorEnv, [0.0, 0.9], 7),
    ],
)
def test_environments_that_step_together_add_up_to_their_episodes(kind, mode, gammas, report_steps):
    seen = Sum(np.size(gammas))
    envs = CollectReturns(vector(kind, mode), seen, gammas, report_steps=report_steps)
    envs.reset(seed=0)
    step(envs, 300)
    envs.reset()
    assert_equal(seen.moments, expected(gammas, *shown(mode, SCRIPTS, 300)))
    assert len(seen.portions) <= 301  # one merge a vector step at most
    envs.close()


def test_wrappers_are_those_of_what_they_wrap():
    one = CollectReturns(gymnasium.make("CartPole-v1"), Sum(), 0.9)
    many = CollectReturns(gymnasium.make_vec("CartPole-v1", num_envs=4), Sum(), 0.9)
    assert isinstance(one, gymnasium.Wrapper) and not isinstance(one, gymnasium.vector.VectorWrapper)
    assert isinstance(many, gymnasium.vector.VectorWrapper) and not isinstance(many, gymnasium.Wrapper)
    assert one.unwrapped.spec.id == "CartPole-v1" and one.action_space.n == 2
    assert many.num_envs == 4 and many.single_action_space.n == 2
    assert copy.deepcopy(one).action_space == one.action_space


def test_cartpoles_own_vector_environment_counts_every_step_but_resets():
    seen = Sum()
    envs = CollectReturns(gymnasium.make_vec("CartPole-v1", num_envs=3), seen, 0.99, report_steps=1)
    envs.reset(seed=0)
    envs.action_space.seed(0)
    counted, ends, before = 0, 0, np.zeros(3, bool)
    for _ in range(200):
        _, _, terminated, truncated, _ = envs.step(envs.action_space.sample())
        counted, ends, before = counted + np.sum(~before), ends + np.sum(terminated), terminated | truncated
    assert ends > 10
    assert seen.moments.count == counted and seen.moments.reward_mean == 1.0 and seen.moments.reward_m2 == 0.0
    np.testing.assert_allclose(seen.moments.discount_mean, 0.99 * (1 - ends / counted))


def test_rewards_of_many_arrive_in_portions_and_returns_at_an_episodes_end():
    seen = Sum()
    envs = CollectReturns(
        vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, [(C,), (D,)]), seen, 0.9, report_steps=4
    )
    envs.reset()
    step(envs, 4)
    assert seen.moments.count == 8 and seen.moments.return_count == 0
    step(envs, 3)
    assert seen.moments.count == 14 and seen.moments.return_count == 7
    assert len(seen.portions) == 2


def test_many_episodes_without_end_report_all_the_same():
    seen = Sum()
    envs = CollectReturns(
        vector(SyncVectorEnv, AutoresetMode.SAME_STEP, [(D,), (C,)]), seen, 0.9, max_report_steps=5
    )
    envs.reset()
    step(envs, 7)
    envs.reset()
    d, c = D[0], C[0]
    assert_equal(seen.moments, expected(0.9, (d[:5], False), (d[5:7], False), (c[:5], False), (c[5:], False)))


def test_a_masked_reset_cuts_the_episodes_that_it_names():
    seen = Sum()
    envs = CollectReturns(vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, [(C, A), (C, A)]), seen, 0.9)
    envs.reset()
    step(envs, 4)
    envs.reset(options={"reset_mask": np.array([True, False])})
    step(envs, 3)  # A whole, and the rest of C
    assert_equal(seen.moments, expected(0.9, (C[0][:4], False), A, C))


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e200])
def test_a_reward_of_one_that_cannot_be_counted_leaves_the_others(mode, reward):
    seen = Sum()
    envs = CollectReturns(
        vector(SyncVectorEnv, mode, [(C,), (([1.0, reward, 2.0], True),), (([5.0, reward], True),)]),
        seen,
        0.9,
    )
    envs.reset()
    step(envs)
    with pytest.raises(ValueError, match=f"reward of environment 1 is {re.escape(str(reward))} at step 1"):
        envs.step(np.zeros(3, int))
    if mode == AutoresetMode.DISABLED:
        envs.reset(options={"reset_mask": np.array([False, False, True])})
    envs.step(np.zeros(3, int))
    envs.reset()
    third = () if mode == AutoresetMode.NEXT_STEP else (([5.0], False),)
    seen_of = (C[0][:3], False), ([1.0, 2.0], True), ([5.0], False)
    assert_equal(seen.moments, expected(0.9, *seen_of, *third))


def test_an_environment_that_has_ended_counts_again_when_it_is_reset():
    class Unminding(Script):
        def step(self, action):
            return super().step(action) if self._rewards else (np.zeros(1, np.float32), 7.0, True, False, {})

    class Unchecked(SyncVectorEnv):  # steps those that have ended, too, as compiled environments do
        def step(self, actions):
            self._autoreset_envs[:] = False
            return super().step(actions)

    seen = Sum()
    scripts = [functools.partial(Unminding, *script, forever=True) for script in ([A], [C])]
    envs = CollectReturns(Unchecked(scripts, autoreset_mode=AutoresetMode.DISABLED), seen, 0.9)
    envs.reset()
    for _ in range(5):
        envs.step(np.zeros(2, int))
    envs.reset()
    assert_equal(seen.moments, expected(0.9, A, (C[0][:5], False)))


def test_the_mode_is_the_environments_own():
    first = vector(SyncVectorEnv, AutoresetMode.SAME_STEP)
    vector(
        SyncVectorEnv, AutoresetMode.DISABLED
    )  # Gymnasium 1.3 writes this mode into the metadata of the first
    seen = Sum()
    envs = CollectReturns(first, seen, 0.9)
    envs.reset()
    for _ in range(20):
        envs.step(np.zeros(len(SCRIPTS), int))
    envs.reset()
    assert_equal(seen.moments, expected(0.9, *shown(AutoresetMode.SAME_STEP, SCRIPTS, 20)))


def test_an_unknown_autoreset_mode_is_refused():
    class Unknown(gymnasium.vector.VectorEnv):
        num_envs = 2
        metadata = {"autoreset_mode": "perhaps"}

    with pytest.raises(ValueError, match="autoreset_mode.*perhaps"):
        CollectReturns(Unknown(), Sum(), 0.9)
