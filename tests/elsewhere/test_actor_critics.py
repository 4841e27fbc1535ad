"""docs/actor_critics.md's programs run as they stand; Stable-Baselines3's vector environments feed what they play."""

import functools
import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rbs_tf import collect_returns
from rbs_tf.numpy import ReturnScaling as NumpyScaling

pytest.importorskip("stable_baselines3", reason="make test-adopting runs these in .venv-rivals")

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from benchmarks import ppo_scales, vec_normalize
from tests import pages
from tests.elsewhere.vec_envs import STARTS, made, replayed
from tests.pages import ROOT
from tests.scripted import A, B, C, Script, assert_equal, expected, shown, stepped, vector

PAGE = "docs/actor_critics.md"
STREAM = "Streaming, n-step, lambda-returns, categories"
OTHERS = "Environments of other kinds"
TIMES = 1024.0  # a power of two: multiplying by it rounds nothing


@pytest.mark.parametrize("kind, gamma", [(DummyVecEnv, 0.9), (SubprocVecEnv, [0.5, 0.99])])
def test_vec_envs(kind, gamma):
    scale = NumpyScaling(num_heads=np.size(gamma))
    envs = collect_returns(made(kind), scale, gamma, report_steps=4)
    envs.reset()
    for _ in range(24):
        observations, rewards, dones, infos = envs.step(np.zeros(len(STARTS), int))
    assert observations.shape == (3, 1) and rewards.shape == dones.shape == (3,) and len(infos) == 3
    np.testing.assert_allclose([*scale.moments], [*replayed(24, gamma)], rtol=1e-12, atol=1e-12)
    assert scale.moments.discount_variance.min() > 0.0  # some ends were terminal, and others were not
    envs.reset()
    np.testing.assert_allclose([*scale.moments], [*replayed(24, gamma, cut=True)], rtol=1e-12, atol=1e-12)
    envs.close()


def test_what_holds_several_environments_feeds_as_a_vector():
    class Pool(gymnasium.Env):
        """Called as EnvPool's before 1.0."""

        def __init__(self, envs):
            self.observation_space, self.action_space = Script.observation_space, Script.action_space
            self.all_env_ids, self.reset, self.step = np.arange(envs.num_envs), envs.reset, envs.step

        def __len__(self):
            return len(self.all_env_ids)

    scripts, scale = [(A, B, C), (C, A)], NumpyScaling()
    pool = Pool(vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, *scripts))
    with pytest.raises(TypeError, match="Pool holds 2 environments"):
        collect_returns(pool, scale, 0.9)
    envs = collect_returns(pages.run(PAGE, OTHERS).AsVector(pool), scale, 0.9)
    envs.reset()
    stepped(envs, 40)
    envs.reset()
    assert_equal(scale.moments, expected(0.9, *shown(AutoresetMode.NEXT_STEP, scripts, 40)))


def test_streaming():
    stream = pages.run(PAGE, STREAM)
    assert stream.scaling.moments.count == 200
    assert stream.divisor > 1.0 and abs(stream.error.item()) < stream.divisor
    code = pages.programs(PAGE)[STREAM]
    names = {"__name__": "page"}
    exec(code.replace("sigma_v=1.0, ", ""), names)  # which diverges, as the page says
    assert not np.isfinite(names["error"].item())
    assert code.index("scaling()") < code.index("env.step(")


def test_the_pages_table():
    rows = ppo_scales.read(ppo_scales.TABLE)
    assert ppo_scales.is_complete()
    text = (ROOT / PAGE).read_text()
    written = text.split(ppo_scales.BEGIN)[1].split(ppo_scales.END)[0].strip()
    assert written == "\n".join(ppo_scales.table(rows))
    rates = ppo_scales.best_rates(ppo_scales.read(ppo_scales.RATES_TABLE))
    assert {(row["environment"], float(row["rate"])) for row in rows} <= {*rates.items()}


def made_up(score):
    """A table of scores, score(arm, times) give or take the seed."""
    cells = itertools.product(ppo_scales.ENVIRONMENTS, ppo_scales.ARMS, ppo_scales.TIMES, ppo_scales.SEEDS)
    return [
        dict.fromkeys(("gradient_norm", "value_share"), "0.5")
        | {"environment": name, "arm": arm, "times": f"{times:g}", "seed": str(seed)}
        | {"score": str(score(arm, times) + seed)}
        for name, arm, times, seed in cells
    ]


def test_the_rules():
    def score(arm, times):
        large = 50 * (arm in ppo_scales.OURS and times == 1000.0)
        return 100 + large - 50 * (arm == "sigma" and times == 1.0)

    lines = ppo_scales.table(made_up(score))
    assert "| `sigma_unit` less `plain` | 0 [-2, 2] | 0 [-2, 2] | **50 [48, 52]** |" in lines
    assert "| `sigma_unit` less `normalised` | 0 [-2, 2] | 0 [-2, 2] | 50 [48, 52] |" in lines
    assert "| `plain`: norm, value's part | 0.5, 50% | 0.5, 50% | 0.5, 50% |" in lines
    assert lines[-2:] == [
        "* `sigma` helps in 2 of 6 cells and harms in 2: not recommended by the rules.",
        "* `sigma_unit` helps in 2 of 6 cells and harms in 0: recommended by the rules.",
    ]
    assert ppo_scales.table([]) == []


def test_the_studys_runs():
    def run(arm, times):
        given = {
            "environment": "CartPole-v1",
            "arm": arm,
            "times": f"{times:g}",
            "seed": "0",
            "rate": "0.001",
        }
        return ppo_scales.train(given, steps=2048)

    found = {(arm, times): run(arm, times) for arm in ("plain", "sigma_unit") for times in (1.0, TIMES)}
    row = found["sigma_unit", 1.0]
    assert 10.0 < float(row["score"]) < 60.0
    assert float(row["gradient_norm"]) > 0.0 and 0.0 < float(row["value_share"]) <= 1.0
    # In units nothing changes but the rewards; without, the value loss takes the whole gradient.
    differences = {"times", "seconds"}
    large = found["sigma_unit", TIMES]
    assert {key: row[key] for key in row if key not in differences} == {
        key: large[key] for key in large if key not in differences
    }
    assert float(found["plain", TIMES]["gradient_norm"]) > 0.5 * TIMES * float(
        found["plain", 1.0]["gradient_norm"]
    )


def test_the_studys_normalised_rewards_are_those_of_vec_normalize():
    class Stream(Script):
        def step(self, action):
            observation, reward, *others = super().step(action)
            return observation, 300.0 * reward, *others

    theirs = VecNormalize(
        DummyVecEnv([functools.partial(Stream, A, B, C, forever=True)] * 2), norm_obs=False, gamma=0.9
    )
    ours = SyncVectorEnv(
        [functools.partial(Stream, A, B, C, forever=True)] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    ours = ppo_scales.NormalisedRewards(ours, 0.9)
    theirs.reset(), ours.reset()
    for _ in range(30):
        np.testing.assert_allclose(
            ours.step(np.zeros(2, int))[1], theirs.step(np.zeros(2, int))[1], rtol=1e-5
        )


def test_the_figures_divisors():
    rewards, ends = (part[:600] for part in vec_normalize.stream())

    class Stream(Script):
        def __init__(self):
            self._next = zip(rewards, ends, strict=True)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            reward, end = next(self._next)
            return np.zeros(1, np.float32), reward + 1e-3, bool(end), False, {}

    stable_baselines = VecNormalize(DummyVecEnv([Stream]), norm_obs=False)
    stable_baselines.reset()
    wrapped = gymnasium.wrappers.NormalizeReward(Stream())
    found = []
    for _ in rewards:
        normalised = stable_baselines.step(np.zeros(1, int))[1][0], wrapped.step(0)[1]
        found.append((np.sqrt(stable_baselines.ret_rms.var + 1e-8), np.sqrt(wrapped.return_rms.var + 1e-8)))
        assert np.isfinite(normalised).all()
    for column, first in ((0, False), (1, True)):
        ours = vec_normalize.divisors(rewards + 1e-3, ends, forgets_first=first)
        np.testing.assert_allclose(np.array(found)[:, column], ours, rtol=1e-4)
    assert not np.allclose(*np.array(found).T, rtol=1e-4)
