"""`rbs_tf.sb3`'s models learn the same for rewards of any size, and count every step of training once."""

import functools

import gymnasium
import numpy as np
import pytest

from rbs_tf import ReturnMoments
from tests.scripted import Script, assert_equal

pytest.importorskip("stable_baselines3", reason="make test-adopting runs these in .venv-rivals")

import torch
from stable_baselines3 import PPO, HerReplayBuffer
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy

from rbs_tf.sb3 import ScaledDQN, ScaledPPO, ScaledSAC, ScaledTD3
from tests import pages
from tests.elsewhere.vec_envs import made, replayed

SMALL = {"device": "cpu", "seed": 0}
DQN = SMALL | {"learning_starts": 100, "target_update_interval": 50, "learning_rate": 1e-2}
CRITICS = SMALL | {"learning_starts": 210, "learning_rate": 1e-2}
CASES = {
    "PPO": (ScaledPPO, "CartPole-v1", 256, SMALL | {"n_steps": 64, "learning_rate": 1e-2}),
    "DQN": (ScaledDQN, "CartPole-v1", 300, DQN),
    "DQN, 3 steps": (ScaledDQN, "CartPole-v1", 300, DQN | {"n_steps": 3}),
    "SAC": (ScaledSAC, "Pendulum-v1", 260, CRITICS),
    "SAC, fixed temperature": (ScaledSAC, "Pendulum-v1", 260, CRITICS | {"ent_coef": 0.2}),
    "TD3": (ScaledTD3, "Pendulum-v1", 260, CRITICS),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


def environment(name, times=1.0):
    def multiplied(env):
        return gymnasium.wrappers.TransformReward(env, lambda reward: times * reward)

    return make_vec_env(name, 2 if name == "CartPole-v1" else 1, seed=0, wrapper_class=multiplied)


def learned(case, times=1.0):
    kind, name, steps, options = CASES[case]
    if "ent_coef" in options:
        options = options | {"ent_coef": times * options["ent_coef"]}
    model = kind("MlpPolicy", environment(name, times), **options, policy_kwargs={"net_arch": [16]})
    start = parameters(model).clone()
    model.learn(steps)
    assert not torch.equal(parameters(model), start)
    return model


def parameters(model):
    return torch.cat([values.detach().flatten() for values in model.policy.parameters()])


@pytest.mark.parametrize("case", CASES)
def test_rewards_times_a_power_of_two_change_nothing(case):
    plain = learned(case)
    for times in (2.0**40, 2.0**-40):  # some 1e12 and 1e-12
        model = learned(case, times)
        assert torch.equal(parameters(model), parameters(plain))
        np.testing.assert_array_equal(model.scaling.unit, times * plain.scaling.unit)
        assert model.scaling.unit > 0.0


def test_the_loss_is_of_errors_over_sigma():
    model = learned("DQN", times=300.0)
    drawn = {}

    def draw(*arguments, **options):
        drawn["batch"] = sample(*arguments, **options)
        return drawn["batch"]

    sample, model.replay_buffer.sample = model.replay_buffer.sample, draw
    with torch.no_grad():
        before = [model.q_net(torch.zeros(1, 4)), model.q_net_target(torch.zeros(1, 4))]
        online, target = (network.state_dict() for network in (model.q_net, model.q_net_target))
        kept = [{name: values.clone() for name, values in state.items()} for state in (online, target)]
    model.train(1, 32)
    after = model.logger.name_to_value["train/loss"]
    model.q_net.load_state_dict(kept[0])
    batch, sigma = drawn["batch"], float(model.scaling()[0])
    with torch.no_grad():
        assert torch.equal(before[0], model.q_net(torch.zeros(1, 4)))
        best = model.q_net_target(batch.next_observations).amax(1, keepdim=True)
        taken = model.q_net(batch.observations).gather(1, batch.actions.long())
        errors = (batch.rewards + (1 - batch.dones) * 0.99 * best - taken) / sigma
    assert after == pytest.approx(float(torch.nn.functional.smooth_l1_loss(errors, 0 * errors)), rel=1e-5)
    assert sigma > 100.0 and batch.rewards.unique().tolist() == [300.0]


@pytest.mark.parametrize(("ent_coef", "expected"), [("auto_0.1", 0.1), (0.2, None)])
def test_the_temperature_is_in_units_of_the_rewards_or_fixed_in_their_own(ent_coef, expected, tmp_path):
    options = CRITICS | {"ent_coef": ent_coef, "learning_rate": 0.0}
    model = ScaledSAC("MlpPolicy", environment("Pendulum-v1", 300.0), **options)
    for _ in range(2):
        model.learn(230)
        moments, sigma = model.scaling.moments, float(model.scaling()[0])
        model.train(1)
        used = sigma * model.logger.name_to_value["train/ent_coef"]
        size = float(np.sqrt(moments.reward_variance + moments.reward_mean**2)[0])
        assert used == pytest.approx(0.2 if expected is None else 0.1 * size, rel=1e-5)
        model.save(tmp_path / "model.zip")
        model = ScaledSAC.load(tmp_path / "model.zip", env=model.get_env())


def test_every_step_counts_once_over_calls_of_learn_and_over_a_load(tmp_path):
    options = SMALL | {"n_steps": 8, "batch_size": 24, "gamma": 0.9}
    model = ScaledPPO("MlpPolicy", made(DummyVecEnv), **options)
    for rollouts in (1, 2, 3):
        model.learn(24, reset_num_timesteps=False)
        assert_equal(model.scaling.moments, replayed(8 * rollouts, 0.9))
    model.learn(24)  # which resets the environments
    assert model.scaling.moments.count == 4 * 24 and model.scaling.moments.return_count >= 3 * 24
    model.save(tmp_path / "model.zip")
    loaded = ScaledPPO.load(tmp_path / "model.zip", env=made(DummyVecEnv))
    loaded.learn(24, reset_num_timesteps=False)
    both = ReturnMoments.merge(model.scaling.moments, replayed(8, 0.9))
    assert_equal(loaded.scaling.moments, both)


class Ends(Script):
    """Episodes of one step of reward 1, which end as they are told."""

    def __init__(self, *ends):
        self._ends = ends

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, *self._ends, {}


def test_a_time_out_is_worth_the_value_of_what_follows_in_the_rewards_unit():
    envs = DummyVecEnv(
        [functools.partial(Ends, *ends) for ends in ((False, True), (True, False), (True, True))]
    )
    model = ScaledPPO("MlpPolicy", envs, **SMALL, n_steps=2, batch_size=6, learning_rate=0.0)
    last = model.policy.value_net
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(3.0)
    last.to_unit_([5.0])
    model.learn(6)
    np.testing.assert_allclose(model.rollout_buffer.rewards, [[1.0 + 0.99 * 15.0, 1.0, 1.0]] * 2, rtol=1e-6)
    assert model.scaling.moments.reward_mean == 1.0 and model.scaling.moments.discount_mean == pytest.approx(
        0.33
    )
    replay = ScaledDQN("MlpPolicy", envs, **SMALL, learning_starts=10).learn(6).replay_buffer
    over = replay._get_samples(np.zeros(100, int)).dones
    assert 0.0 < over.mean() < 1.0, "the time-out of one of three is no end"


@pytest.mark.parametrize("case", ["PPO", "DQN", "SAC", "TD3"])
def test_what_is_saved_goes_on(case, tmp_path):
    model, (kind, name, *_) = learned(case), CASES[case]
    model.save(tmp_path / "model.zip")
    assert "_feed" not in load_from_zip_file(tmp_path / "model.zip")[0], "it would hold a second scale"
    trained = model.policy.get_submodule(model._last_layers()[0]).weight
    assert any(trained is each for each in model._value_optimizer().param_groups[0]["params"])
    at_once = kind.load(tmp_path / "model.zip", env=environment(name), device="cpu")
    later = kind.load(tmp_path / "model.zip", device="cpu")
    later.set_env(environment(name))
    seen = model.get_env().reset()
    others = []
    for loaded in (at_once, later):
        np.testing.assert_array_equal([*loaded.scaling.moments], [*model.scaling.moments])
        assert torch.equal(parameters(loaded), parameters(model))
        np.testing.assert_array_equal(
            loaded.predict(seen, deterministic=True)[0], model.predict(seen, deterministic=True)[0]
        )
        if case == "PPO":
            loaded.rollout_buffer = model.rollout_buffer
            assert loaded.vf_coef == 0.5
        else:
            loaded.replay_buffer = model.replay_buffer
        others.append(loaded)
    for one in (model, *others):
        one.set_random_seed(3)
        one.set_logger(model.logger)
        one.train() if case == "PPO" else one.train(2, 32)
    for loaded in others:
        assert torch.equal(parameters(loaded), parameters(model)), "the optimizer's state goes on, too"
    count = model.scaling.moments.count
    assert later.learn(256).scaling.moments.count >= count + 256
    assert model.scaling.moments.count == count


def test_an_evaluation_is_not_counted_and_all_kinds_of_callbacks_are_called():
    envs = VecNormalize(environment("CartPole-v1"), norm_reward=False)
    model = ScaledPPO("MlpPolicy", envs, **SMALL, n_steps=64)
    evaluated = VecNormalize(make_vec_env("CartPole-v1"), norm_reward=False, training=False)
    evaluation = EvalCallback(evaluated, eval_freq=32, n_eval_episodes=2, verbose=0)
    calls = []
    model.learn(128, callback=[evaluation, lambda *_: calls.append(1) is None])
    model.learn(128, callback=lambda *_: calls.append(1) is None)
    model.learn(128, callback=evaluation)
    assert model.scaling.moments.count == 3 * 128 and len(calls) == 128
    assert evaluation.evaluations_timesteps == [] and np.isfinite(evaluation.last_mean_reward)


def test_goals_that_are_relabelled_are_not_counted():
    envs = BitFlippingEnv(n_bits=4, continuous=False, max_steps=4)
    options = {"replay_buffer_class": HerReplayBuffer, "learning_starts": 20} | SMALL
    model = ScaledDQN("MultiInputPolicy", envs, **options)
    model.learn(100)
    assert model.scaling.moments.count == 100
    assert -1.0 <= float(model.scaling.moments.reward_mean[0]) < -0.5
    assert isinstance(model.replay_buffer, HerReplayBuffer)


def test_images_share_an_extractor():
    class Images(Script):
        observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), super().reset(seed=seed)[1]

        def step(self, action):
            return self.observation_space.sample(), *super().step(action)[1:]

    env = Images(([1.0, 2.0], True), forever=True)
    for model in (
        ScaledPPO("CnnPolicy", env, device="cpu", n_steps=8, batch_size=8),
        ScaledDQN("CnnPolicy", env, device="cpu", buffer_size=50, learning_starts=8),
    ):
        model.learn(12)
        assert model.scaling.unit > 0.0 and torch.isfinite(parameters(model)).all()


def test_two_scales_are_refused():
    scaled = VecNormalize(environment("CartPole-v1"))
    for kind in (ScaledPPO, ScaledDQN):
        with pytest.raises(ValueError, match="give it norm_reward=False"):
            kind("MlpPolicy", scaled, **SMALL).learn(10)
    with pytest.raises(ValueError, match="leave it None"):
        ScaledPPO("MlpPolicy", environment("CartPole-v1"), clip_range_vf=0.2, device="cpu")


def test_a_value_function_with_another_last_layer_is_refused():
    class Squashed(ActorCriticPolicy):
        def _build(self, lr_schedule):
            super()._build(lr_schedule)
            self.value_net = torch.nn.Sequential(self.value_net, torch.nn.Tanh())

    class SquashedDQN(DQNPolicy):
        def make_q_net(self):
            network = super().make_q_net()
            network.q_net.append(torch.nn.Tanh())
            return network

    for kind, policy, words in (
        (ScaledPPO, Squashed, "value_net of this Squashed is Sequential"),
        (ScaledDQN, SquashedDQN, r"q_net.q_net.5 of this SquashedDQN is Tanh\(\)"),
    ):
        with pytest.raises(TypeError, match=words):
            kind(policy, environment("CartPole-v1"), device="cpu")


def test_a_plain_models_file_is_not_taken_for_a_scaled_one(tmp_path):
    PPO("MlpPolicy", environment("CartPole-v1"), **SMALL).save(tmp_path / "plain.zip")
    with pytest.raises(RuntimeError, match="value_net.unit"):
        ScaledPPO.load(tmp_path / "plain.zip", device="cpu")


def test_the_pages_programs():
    page = pages.run("docs/sb3.md", "One line", "Other algorithms")
    assert 4000 < page.model.scaling.moments.count <= 4096 and page.model.policy.value_net.unit > 5.0
    assert type(page.envs).__name__ == "CollectVecEnvReturns"
