"""docs/actor_critics.md's programs run as they stand; Stable-Baselines3's vector environments feed what they play."""

import functools
import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rbs_tf import CollectReturns, ReturnMoments, Scale

pytest.importorskip("stable_baselines3", reason="make test-adopting runs these in .venv-rivals")

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from benchmarks import ppo_scales, vec_normalize
from tests.elsewhere import pages
from tests.rbs_tf.test_collect_returns import A, B, C, Script, assert_equal, expected, shown, stepped, vector
from tests.test_adopting import ROOT

PAGE = "docs/actor_critics.md"
PPO, SB3 = "PPO in a single file", "Stable-Baselines3: PPO"
SAC, STREAM = "SAC, DDPG and TD3", "Streaming, n-step, lambda-returns, categories"
OTHERS = "Environments of other kinds"
TIMES = 1024.0  # a power of two: multiplying by it rounds nothing

# Rewards of each episode in turn, and whether its last step is terminal or a time-out; float32 holds the rewards.
EPISODES = (([1.0, 5.0, -2.0], True), ([3.0], True), (list(range(7)), False), ([0.5, 0.25], False))


STARTS = (0, 2, 3)


def replayed(steps, gammas, cut=()):
    """Moments of so many steps of each environment; open episodes have no returns yet unless a reset cut them."""
    gammas, moments = np.atleast_1d(gammas), ReturnMoments.empty(np.size(gammas))
    for start in STARTS:
        left, number = steps, start
        while left:
            rewards, terminal = EPISODES[number % len(EPISODES)]
            ends = left >= len(rewards)
            rewards = np.repeat(np.array(rewards[:left], float)[:, None], len(gammas), axis=1)
            discounts = np.broadcast_to(gammas, rewards.shape).copy()
            discounts[-1] *= not (terminal and ends)
            make = ReturnMoments.from_episode if ends or cut else ReturnMoments.from_steps
            moments = ReturnMoments.merge(moments, make(rewards, discounts))
            left, number = left - len(rewards), number + 1
    return moments


def made(kind):
    episodes = [(*EPISODES[start:], *EPISODES[:start]) for start in STARTS]
    makers = [functools.partial(Script, *own, forever=True) for own in episodes]
    return kind(makers, start_method="fork") if kind is SubprocVecEnv else kind(makers)


@pytest.mark.parametrize("kind, gamma", [(DummyVecEnv, 0.9), (SubprocVecEnv, [0.5, 0.99])])
def test_vec_envs(kind, gamma):
    scale = Scale(num_heads=np.size(gamma))
    envs = CollectReturns(made(kind), scale, gamma, report_steps=4)
    envs.reset()
    for _ in range(24):
        observations, rewards, dones, infos = envs.step(np.zeros(len(STARTS), int))
    assert observations.shape == (3, 1) and rewards.shape == dones.shape == (3,) and len(infos) == 3
    np.testing.assert_allclose([*scale.moments], [*replayed(24, gamma)], rtol=1e-12, atol=1e-12)
    assert scale.moments.discount_variance.min() > 0.0  # some ends were terminal, and others were not
    envs.reset()
    np.testing.assert_allclose([*scale.moments], [*replayed(24, gamma, cut=True)], rtol=1e-12, atol=1e-12)
    envs.close()


@pytest.fixture(scope="module")
def ppo():
    return pages.run(PAGE, PPO, shorter=("range(40)", "range(16)"))


@pytest.fixture(scope="module")
def sb3():
    return pages.run(PAGE, SB3)


@pytest.fixture(scope="module")
def sac():
    return pages.run(PAGE, SAC, shorter=("play(times=300.0)", "play(1200, times=300.0)"))


def test_ppo_learns(ppo):
    """A policy that plays at random balances for 22 steps."""
    assert np.mean(ppo.lengths[:3]) < 40.0 < 50.0 < np.median(ppo.lengths[-4:])
    assert 16 * 128 * 8 - 8 * 100 < ppo.scaled.moments.count <= 16 * 128 * 8  # in portions of 100 steps
    assert ppo.critic.unit.item() == pytest.approx(ppo.scaled.unit.item(), rel=0.1) and ppo.critic.unit > 10.0
    assert {"3.statistics", "3.sigma_v"} <= {*ppo.agent.state_dict()}


def test_a_time_out_is_no_death(ppo, monkeypatch):
    """One step of reward 1: cut, terminal, or both, which is terminal. What follows is worth 9 / 0.99 everywhere."""

    class Ends(Script):
        def __init__(self, *ends):
            self._ends = ends

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.ones(1, np.float32), 1.0, *self._ends, {}

    ends = (False, True), (True, False), (True, True)
    envs = SyncVectorEnv(
        [functools.partial(Ends, *of_one) for of_one in ends],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    torch, shown = ppo.torch, []
    stubs = {
        "envs": envs,
        "torso": lambda seen: shown.append(seen) or seen,
        "actor": lambda seen: torch.zeros(len(seen), 2),
        "critic": lambda seen: torch.full((len(seen), 1), 9 / 0.99),
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(ppo.losses.__globals__, name, stub)
    (*_, targets), over, _ = ppo.rollout(envs.reset()[0], steps=1)
    np.testing.assert_allclose(targets, [10.0, 1.0, 1.0], rtol=1e-6)
    assert over.tolist() == [[1.0] * 3]
    assert shown[1].tolist() == [[1.0]]  # the last observation of the one that was cut, not that of its reset


def episode(times):
    return ReturnMoments.from_episode(times * np.array([0.0, 3.0, -1.0]), [0.99, 0.99, 0.0])


def test_ppos_gradients(ppo):
    torch, rng = ppo.torch, np.random.default_rng(0)
    kept, found = {name: values.clone() for name, values in ppo.agent.state_dict().items()}, []
    seen, log_probs, advantages, returns = (
        torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in ((32, 4), 32, 32, 32)
    )
    for times in (1.0, TIMES):
        ppo.agent.load_state_dict(kept)
        ppo.critic.unit.zero_()
        ppo.scaled.reset_state()
        ppo.scaled.merge_state(episode(times))
        ppo.critic.to_unit_(ppo.scaled.unit)
        actions = torch.arange(32) % 2
        losses = ppo.losses(seen, actions, log_probs, times * advantages, times * returns)
        gradients = [torch.autograd.grad(loss, ppo.torso[0].weight, retain_graph=True)[0] for loss in losses]
        found.append((losses[1], gradients))
    ppo.agent.load_state_dict(kept)
    (loss, gradients), (larger_loss, larger_gradients) = found
    assert loss == larger_loss > 0.0
    assert torch.equal(gradients[1], larger_gradients[1]) and gradients[1].abs().max() > 0.0
    # Advantages are normalised with an epsilon of 1e-8.
    torch.testing.assert_close(gradients[0], larger_gradients[0], rtol=1e-4, atol=1e-6)


def test_stable_baselines(sb3):
    import torch

    model, scale = sb3.model, sb3.model.scale
    assert (
        scale.moments.count == 1024 and scale()[0] > 1.0
    )  # in portions of 100 steps; an evaluation cuts the last
    assert type(sb3.evaluated).__name__ == "CollectVecEnvReturns"
    unit = float(model.policy.value_net.unit)
    assert unit == pytest.approx(scale.unit[0], rel=0.5) and unit > 5.0
    model.n_epochs, model.batch_size, model.max_grad_norm = 1, 1024, 1e9
    policy = model.policy
    policy.value_net.to_unit_(scale.unit)
    (batch,) = model.rollout_buffer.get(1024)
    values, log_probs, _ = policy.evaluate_actions(batch.observations, batch.actions.long().flatten())
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    ratio = (log_probs - batch.old_log_prob).exp()
    loss = -torch.min(advantages * ratio, advantages * ratio.clamp(0.8, 1.2)).mean()
    scaled = (batch.returns - values.flatten()) / float(scale()[0])
    ours = torch.autograd.grad(loss + 0.5 * scaled.square().mean(), [*policy.parameters()])
    model.train()
    assert model.vf_coef == 0.5
    for gradient, values in zip(ours, policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, values.grad, rtol=1e-3, atol=1e-6)
        assert gradient.abs().max() > 1e-4


def test_a_loaded_ppo_goes_on(sb3, tmp_path):
    """With its statistics and with its own `vf_coef`, however its environments are given; a checkpoint, too."""
    path, scale = tmp_path / "model.zip", sb3.model.scale
    given = sb3.ScaledPPO.load
    sb3.model.save(path)
    envs = sb3.make_vec_env("CartPole-v1", n_envs=8)
    at_once, later = given(path, env=envs), given(path)
    later.set_env(envs)
    for model in (at_once, later):
        np.testing.assert_array_equal([*model.scale.moments], [*scale.moments])
        assert model.vf_coef == 0.5
        model.learn(2048)
        assert model.scale.moments.count >= scale.moments.count + 1024
        assert model.vf_coef == 0.5
    assert sb3.model.scale.moments.count == scale.moments.count


def test_an_evaluation_beside_vec_normalize_needs_the_same_wrappers(sb3):
    evaluated = sb3.VecNormalize(sb3.make_vec_env("CartPole-v1"), norm_reward=False, training=False)
    with pytest.raises(AssertionError, match="expected the eval env to be"):
        sb3.model.learn(1024, callback=sb3.EvalCallback(evaluated, eval_freq=64, verbose=0))


def test_sacs_critics(sac):
    """Their values are in units of the return: nothing but rewards and the temperature is multiplied here."""
    torch, rng = sac.torch, np.random.default_rng(0)
    start, found = {name: values.clone() for name, values in sac.critics.state_dict().items()}, []
    shapes = (16, 3), (16, 1), 16, 16, (16, 3), (16, 1), 16
    batch = [torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in shapes]
    for times in (1.0, TIMES):
        sac.critics.load_state_dict(start)
        sac.targets.load_state_dict(start)
        sac.scaled.reset_state()
        sac.scaled.merge_state(episode(times))
        for layers in [*sac.critics, *sac.targets]:
            layers[-1].unit.zero_()
            layers[-1].to_unit_(sac.scaled.unit)
        scaled = [*batch[:2], times * batch[2], *batch[3:]]
        loss = sac.critic_loss(*scaled, 0.2 * times)
        actors = sac.actor_loss(*scaled[:2], scaled[6], 0.2 * times)
        found.append((loss, torch.autograd.grad(loss, [*sac.critics.parameters()]), actors / times))
    (loss, gradients, actors), (larger_loss, larger_gradients, larger_actors) = found
    assert loss == larger_loss > 0.0 and actors == larger_actors != 0.0
    for one, other in zip(gradients, larger_gradients, strict=True):
        assert torch.equal(one, other)
    assert gradients[0].abs().max() > 0.0


def test_what_holds_several_environments_feeds_as_a_vector():
    class Pool(gymnasium.Env):
        """Called as EnvPool's before 1.0."""

        def __init__(self, envs):
            self.observation_space, self.action_space = Script.observation_space, Script.action_space
            self.all_env_ids, self.reset, self.step = np.arange(envs.num_envs), envs.reset, envs.step

        def __len__(self):
            return len(self.all_env_ids)

    scripts, scale = [(A, B, C), (C, A)], Scale()
    pool = Pool(vector(SyncVectorEnv, AutoresetMode.NEXT_STEP, *scripts))
    with pytest.raises(TypeError, match="Pool holds 2 environments"):
        CollectReturns(pool, scale, 0.9)
    envs = CollectReturns(pages.run(PAGE, OTHERS).AsVector(pool), scale, 0.9)
    envs.reset()
    stepped(envs, 40)
    envs.reset()
    assert_equal(scale.moments, expected(0.9, *shown(AutoresetMode.NEXT_STEP, scripts, 40)))


def test_streaming():
    stream = pages.run(PAGE, STREAM)
    assert stream.scale.moments.count == 200
    assert stream.divisor > 1.0 and abs(stream.error.item()) < stream.divisor
    code = pages.programs(PAGE)[STREAM]
    names = {"__name__": "page"}
    exec(code.replace("sigma_v=1.0, ", ""), names)  # which diverges, as the page says
    assert not np.isfinite(names["error"].item())
    assert code.index("scale()") < code.index("env.step(")


def test_the_pages_table():
    text = (ROOT / PAGE).read_text()
    written = text.split(ppo_scales.BEGIN)[1].split(ppo_scales.END)[0].strip()
    assert written == "\n".join(ppo_scales.table(ppo_scales.read(ppo_scales.TABLE)))
    rates = ppo_scales.best_rates(ppo_scales.read(ppo_scales.RATES_TABLE))
    assert {(row["environment"], float(row["rate"])) for row in ppo_scales.read(ppo_scales.TABLE)} <= {
        *rates.items()
    }


def made_up(score):
    """A table of scores, score(arm, times) give or take the seed."""
    cells = itertools.product(ppo_scales.ENVIRONMENTS, ppo_scales.ARMS, ppo_scales.TIMES, ppo_scales.SEEDS)
    return [
        dict.fromkeys(ppo_scales.COLUMNS, "0.5")
        | {"environment": name, "arm": arm, "times": f"{times:g}", "seed": str(seed)}
        | {"score": str(score(arm, times) + seed)}
        for name, arm, times, seed in cells
    ]


def test_the_rules():
    def score(arm, times):
        large = 50 * (arm in ppo_scales.OURS and times == 1000.0)
        return 100 + large - 50 * (arm == "unit" and times == 1.0)

    lines = ppo_scales.table(made_up(score))
    assert "| `sigma` less `plain` | 0 [-2, 2] | 0 [-2, 2] | **50 [48, 52]** |" in lines
    assert "| `sigma` less `normalised` | 0 [-2, 2] | 0 [-2, 2] | 50 [48, 52] |" in lines
    assert "| `plain`: norm, value's part | 0.5, 50% | 0.5, 50% | 0.5, 50% |" in lines
    assert lines[-3:] == [
        "* `sigma` helps in 2 of 6 cells and harms in 0: recommended by the rules.",
        "* `sigma_unit` helps in 2 of 6 cells and harms in 0: recommended by the rules.",
        "* `unit` helps in 2 of 6 cells and harms in 2: not recommended by the rules.",
    ]
    assert ppo_scales.table([]) == []


def test_the_studys_units():
    runs = [ppo_scales.train("CartPole-v1", "unit", times, 0, 1e-3, steps=2048) for times in (1.0, TIMES)]
    assert tuple(runs[0]) == ppo_scales.COLUMNS and 10.0 < float(runs[0]["score"]) < 60.0
    assert runs[0]["score"] == runs[1]["score"] and runs[0]["gradient_norm"] == runs[1]["gradient_norm"]
    assert float(runs[1]["unit"]) == pytest.approx(TIMES * float(runs[0]["unit"]), rel=1e-3)


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
