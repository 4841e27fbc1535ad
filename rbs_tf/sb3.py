"""Stable-Baselines3's PPO, DQN, SAC and TD3 with return-based scaling, and statistics from its environments.

model = rbs_tf.sb3.ScaledPPO("MlpPolicy", envs)    # was: PPO("MlpPolicy", envs)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from torch import nn

from rbs_tf.feed import Feed, check_values
from rbs_tf.numpy import ReturnScaling
from rbs_tf.returns import LONGEST_EPISODE
from rbs_tf.torch import UnitLinear


class CollectVecEnvReturns(VecEnvWrapper):
    """`collect_returns` around a `VecEnv`, which resets an environment in the step that ends its episode."""

    def __init__(self, venv: VecEnv, feed: Feed):
        super().__init__(venv)
        self._feed = feed

    def step_wait(self) -> VecEnvStepReturn:
        """As the environments'."""
        observations, rewards, dones, infos = self.venv.step_wait()
        _take_in(self._feed, rewards, dones, infos)
        return observations, rewards, dones, infos

    def reset(self) -> VecEnvObs:
        """As the environments'; open episodes end here."""
        self._feed.finish(np.ones(self.num_envs, bool))
        return self.venv.reset()


def _take_in(feed: Feed, rewards: Any, dones: Any, infos: list[dict[str, Any]]) -> None:
    shape = (len(infos),)
    over = check_values("dones", dones, bool, shape)
    timed_out = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
    terminal = over & ~check_values("TimeLimit.truncated", timed_out, bool, shape)
    feed.step(check_values("rewards", rewards, np.float64, shape), terminal, over, np.ones(shape, bool))


class _Collect(BaseCallback):
    """Feeds a model's scaling with what its environments pay, and with nothing of an `EvalCallback`'s."""

    def __init__(self, feed: Feed):
        super().__init__()
        self._feed = feed

    def _on_step(self) -> bool:
        _take_in(self._feed, self.locals["rewards"], self.locals["dones"], self.locals["infos"])
        return True

    def _on_training_end(self) -> None:
        self._feed.report()


class _ScaledAlgorithm(BaseAlgorithm):
    """Feeds its `scaling`, of NumPy, while the model learns, and puts the last layers in its unit."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self._feed: Feed | None = None
        if not hasattr(self, "scaling"):  # `load` has restored it
            self.scaling = ReturnScaling(floor_in_units=True)
        for name in self._last_layers():
            last = self.policy.get_submodule(name)
            if type(last) is not nn.Linear:
                raise TypeError(
                    f"the value function must end in a torch.nn.Linear, which a UnitLinear replaces; {name} of this "
                    f"{type(self.policy).__name__} is {last}"
                )
            layer = UnitLinear(last.in_features, last.out_features, device=last.weight.device)
            layer.load_state_dict(last.state_dict(), strict=False)
            self.policy.set_submodule(name, layer)
            for group in self._value_optimizer().param_groups:
                new = {last.weight: layer.weight, last.bias: layer.bias}
                group["params"] = [new.get(parameter, parameter) for parameter in group["params"]]

    def _last_layers(self) -> list[str]:
        """Names, within the policy, of the last layers of all value functions, those of targets included."""
        raise NotImplementedError

    def _value_optimizer(self) -> torch.optim.Optimizer:
        return self.policy.optimizer

    def _setup_learn(
        self, total_timesteps: int, callback: Any = None, reset_num_timesteps: bool = True, *others: Any
    ) -> tuple[int, BaseCallback]:
        if self._vec_normalize_env is not None and self._vec_normalize_env.norm_reward:
            raise ValueError(
                "VecNormalize(norm_reward=True) already scales the rewards: give it norm_reward=False, and leave the "
                "scaling to this model"
            )
        if self._feed is None:
            self._feed = Feed(self.n_envs, self.scaling, self.gamma, None, 100, LONGEST_EPISODE)
        elif reset_num_timesteps or self._last_obs is None:  # the environments are reset now
            self._feed.finish(np.ones(self.n_envs, bool))
        given = callback if isinstance(callback, list) else [callback]
        given = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in given]
        callbacks = CallbackList([_Collect(self._feed), *given])
        return super()._setup_learn(total_timesteps, callbacks, reset_num_timesteps, *others)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_feed"]

    def _update_units(self) -> float:
        """Brings all last layers to the current unit, without changing a value; returns sigma, or its floor."""
        sigma = float(self.scaling()[0])
        unit = float(self.scaling.unit[0])
        for name in self._last_layers():
            self.policy.get_submodule(name).to_unit_([unit])
        self.logger.record("train/sigma", sigma)
        self.logger.record("train/unit", unit)
        return sigma


class ScaledPPO(_ScaledAlgorithm, PPO):
    """PPO whose value errors are divided by sigma, and whose value function is in units of the return.

    Takes what `PPO` takes. Its environments feed `scaling`, a `rbs_tf.numpy.ReturnScaling`, while it learns; `save` and
    `load` keep it.

    Raises:
      ValueError: `clip_range_vf`, a bound in the rewards' units. From `learn`: a `VecNormalize` that scales rewards.
      TypeError: a policy whose value function does not end in a `torch.nn.Linear`.
    """

    vf_coef: float

    def _setup_model(self) -> None:
        if self.clip_range_vf is not None:
            raise ValueError("clip_range_vf is a bound in the rewards' units: leave it None")
        super()._setup_model()

    def _last_layers(self) -> list[str]:
        return ["value_net"]

    def collect_rollouts(self, *arguments: Any, **options: Any) -> bool:
        """As PPO's, with advantages in units of the return: the 1e-8 that PPO adds to their deviation stays small."""
        goes_on = super().collect_rollouts(*arguments, **options)
        self.rollout_buffer.advantages /= float(self.scaling.unit[0]) or 1.0
        return goes_on

    def train(self) -> None:
        """Updates from a rollout."""
        vf_coef = self.vf_coef
        # The value loss is a mean of squares: with its errors over sigma it is the loss over sigma^2.
        self.vf_coef = vf_coef / self._update_units() ** 2
        try:
            super().train()
        finally:
            self.vf_coef = vf_coef  # what `save` keeps


class _Sampler:
    """Stands in for a replay buffer, and divides the rewards that are drawn by sigma."""

    def __init__(self, buffer: Any, sigma: float):
        self._buffer, self._sigma = buffer, sigma

    def sample(self, *arguments: Any, **options: Any) -> Any:
        drawn = self._buffer.sample(*arguments, **options)
        return drawn._replace(rewards=drawn.rewards / self._sigma)


class _ScaledOffPolicyAlgorithm(_ScaledAlgorithm):
    replay_buffer: Any

    def train(self, *arguments: Any, **options: Any) -> None:
        """Updates from the replay."""
        # Errors are divided by sigma where the rewards that are drawn and all values are.
        sigma = self._update_units()
        buffer = self.replay_buffer
        layers = [self.policy.get_submodule(name) for name in self._last_layers()]
        units = [layer.unit.clone() for layer in layers]
        self.replay_buffer = _Sampler(buffer, sigma)
        for layer in layers:
            layer.unit /= sigma
        try:
            super().train(*arguments, **options)
        finally:
            self.replay_buffer = buffer
            for layer, unit in zip(layers, units, strict=True):
                layer.unit.copy_(unit)


class ScaledDQN(_ScaledOffPolicyAlgorithm, DQN):
    """DQN whose TD errors are divided by sigma, and whose two networks are in units of the return.

    Takes what `DQN` takes, keeps a `scaling` and raises for a policy and a `VecNormalize` as `ScaledPPO` does. The
    bounds of Huber's loss and of gradients are in units of sigma.
    """

    def _last_layers(self) -> list[str]:
        last = len(self.policy.q_net.q_net) - 1
        return [f"{network}.q_net.{last}" for network in ("q_net", "q_net_target")]


class _ScaledCritics(_ScaledOffPolicyAlgorithm):
    def _last_layers(self) -> list[str]:
        critic = self.policy.critic
        last = len(critic.qf0) - 1
        return [
            f"{network}.qf{index}.{last}"
            for network in ("critic", "critic_target")
            for index in range(critic.n_critics)
        ]

    def _value_optimizer(self) -> torch.optim.Optimizer:
        return self.policy.critic.optimizer


class ScaledTD3(_ScaledCritics, TD3):
    """TD3 whose critics' errors are divided by sigma, and whose critics are in units of the return.

    Takes what `TD3` takes, keeps a `scaling` and raises for a policy and a `VecNormalize` as `ScaledPPO` does. The
    actor's loss is in units of sigma.
    """


class ScaledSAC(_ScaledCritics, SAC):
    """SAC whose critics' errors are divided by sigma, and whose critics are in units of the return.

    Takes what `SAC` takes, keeps a `scaling` and raises for a policy and a `VecNormalize` as `ScaledPPO` does. A
    temperature that is learned is in units of the rewards' root mean square: "auto_0.1" begins with a tenth of it. A
    fixed one is in the rewards' own units, as in `SAC`. The actor's loss is in units of sigma, as is the
    "train/ent_coef" of the log.
    """

    _temperature_unit = 1.0  # in sigmas: the rewards' size that `log_ent_coef` contains

    def train(self, *arguments: Any, **options: Any) -> None:
        """Updates from the replay."""
        sigma = float(self.scaling()[0])
        moments = self.scaling.moments
        if self.log_ent_coef is None:
            self.ent_coef_tensor.fill_(float(self.ent_coef) / sigma)
        else:
            size = float(np.sqrt(moments.reward_variance + moments.reward_mean**2)[0])
            unit = size / sigma if size > 0.0 else 1.0
            with torch.no_grad():
                self.log_ent_coef += np.log(unit / self._temperature_unit)
            self._temperature_unit = unit
        super().train(*arguments, **options)
