"""Stable-Baselines3's PPO, DQN, SAC and TD3 with return-based scaling, and statistics from its environments.

model = rbs_tf.sb3.ScaledPPO("MlpPolicy", envs)    # was: PPO("MlpPolicy", envs)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from torch import nn

from rbs_tf.feed import Feed, checked
from rbs_tf.returns import LONGEST_EPISODE
from rbs_tf.scale import Scale
from rbs_tf.torch import UnitLinear


class CollectVecEnvReturns(VecEnvWrapper):
    """`CollectReturns` around a `VecEnv`, which resets an environment in the step that ends its episode."""

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
    over = checked("dones", dones, bool, shape)
    timed_out = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
    terminal = over & ~checked("TimeLimit.truncated", timed_out, bool, shape)
    feed.step(checked("rewards", rewards, np.float64, shape), terminal, over, np.ones(shape, bool))


class _Collect(BaseCallback):
    """Feeds the model's scale with what its environments pay; an environment of an `EvalCallback` is none of them."""

    def _init_callback(self) -> None:
        self._feed = Feed(
            self.training_env.num_envs, self.model.scale, self.model.gamma, None, 100, LONGEST_EPISODE
        )

    def _on_step(self) -> bool:
        _take_in(self._feed, *(self.locals[name] for name in ("rewards", "dones", "infos")))
        return True

    def _on_training_end(self) -> None:
        self._feed.finish(np.ones(self.training_env.num_envs, bool))


class _UnitLinear(UnitLinear):
    """Its values are divided by `divisor`, which is sigma while a model trains, and 1 otherwise."""

    divisor = 1.0

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) / self.divisor


class _ScaledModel:
    """What all models have: `scale`, a `rbs_tf.Scale` that is saved with the model, and last layers in its unit."""

    scale: Scale

    def _setup_model(self) -> None:
        if getattr(self, "clip_range_vf", None) is not None:
            raise ValueError("clip_range_vf is a bound in the rewards' units: leave it None")
        super()._setup_model()  # type: ignore[misc]
        if not hasattr(self, "scale"):  # `load` has restored it
            self.scale = Scale(floor_in_units=True)
        for module, name in self._last_layers():
            last = getattr(module, name)
            if not isinstance(last, nn.Linear):
                raise TypeError(
                    f"the last layer of the value function must be torch.nn.Linear; this policy has {last}"
                )
            layer = _UnitLinear(last.in_features, last.out_features, device=last.weight.device)
            layer.load_state_dict(last.state_dict(), strict=False)
            setattr(module, name, layer)
            for group in self._optimizer_of_values().param_groups:
                new = {last.weight: layer.weight, last.bias: layer.bias}
                group["params"] = [new.get(parameter, parameter) for parameter in group["params"]]

    def _init_callback(self, callback: Any, progress_bar: bool = False) -> BaseCallback:
        normalised = unwrap_vec_normalize(self.env)  # type: ignore[attr-defined]
        if normalised is not None and normalised.norm_reward:
            raise ValueError(
                "VecNormalize already scales the rewards: give it norm_reward=False, and leave that to rbs_tf"
            )
        given = [] if callback is None else callback if isinstance(callback, list) else [callback]
        given = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in given]
        return super()._init_callback(CallbackList([_Collect(), *given]), progress_bar)  # type: ignore[misc]

    def _last_layers(self) -> Iterator[tuple[nn.Module, str]]:
        """Modules and the names in them of the last layers of all value functions, those of targets included."""
        raise NotImplementedError

    def _optimizer_of_values(self) -> torch.optim.Optimizer:
        return self.policy.optimizer  # type: ignore[attr-defined]

    def _to_unit(self, divisor: float = 1.0) -> None:
        for module, name in self._last_layers():
            getattr(module, name).to_unit_(self.scale.unit)
            getattr(module, name).divisor = divisor


class _InSigmas:
    """Stands between a replay buffer and the algorithm, as `VecNormalize` does: divides the rewards that are drawn."""

    def __init__(self, normalised: Any, sigma: float):
        self._normalised, self._sigma = normalised, sigma

    def normalize_obs(self, obs: Any) -> Any:
        return obs if self._normalised is None else self._normalised.normalize_obs(obs)

    def normalize_reward(self, reward: np.ndarray) -> np.ndarray:
        return reward / self._sigma


class _ScaledOffPolicy(_ScaledModel):
    """Rewards that are drawn and values that are learned are both divided by sigma, and so are their errors."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Updates from the replay."""
        sigma = float(self.scale()[0])
        self._to_unit(sigma)
        normalised = self._vec_normalize_env  # type: ignore[has-type]
        self._vec_normalize_env = _InSigmas(normalised, sigma)
        try:
            super().train(gradient_steps, batch_size)  # type: ignore[misc]
        finally:
            self._vec_normalize_env = normalised
            self._to_unit()


class _ScaledCritics(_ScaledOffPolicy):
    def _last_layers(self) -> Iterator[tuple[nn.Module, str]]:
        for critic in (self.policy.critic, self.policy.critic_target):  # type: ignore[attr-defined]
            for network in critic.q_networks:
                yield network, str(len(network) - 1)

    def _optimizer_of_values(self) -> torch.optim.Optimizer:
        return self.policy.critic.optimizer  # type: ignore[attr-defined]


class ScaledPPO(_ScaledModel, PPO):
    """PPO whose value errors are divided by sigma, and whose value function is in units of the return.

    Takes what `PPO` takes; `scale`, a `rbs_tf.Scale`, is fed by its environments, saved and loaded with it.

    Raises:
      ValueError: from `learn`: a `VecNormalize` that scales rewards; `clip_range_vf`.
      TypeError: a policy whose value function does not end in a `torch.nn.Linear`.
    """

    def _last_layers(self) -> Iterator[tuple[nn.Module, str]]:
        yield self.policy, "value_net"  # type: ignore[attr-defined]

    def train(self) -> None:
        """An update from a rollout."""
        self._to_unit()
        # The value loss is a mean of squares, so that errors over sigma are the loss over sigma^2.
        vf_coef = self.vf_coef  # type: ignore[has-type]
        self.vf_coef = vf_coef / float(self.scale()[0]) ** 2
        try:
            super().train()  # type: ignore[misc]
        finally:
            self.vf_coef = vf_coef  # what `save` keeps


class ScaledDQN(_ScaledOffPolicy, DQN):
    """DQN whose TD errors are divided by sigma, and whose two networks are in units of the return.

    Takes what `DQN` takes, and raises what `ScaledPPO` raises. The bounds of Huber's loss and of gradients are in
    units of sigma.
    """

    def _last_layers(self) -> Iterator[tuple[nn.Module, str]]:
        for network in (self.policy.q_net, self.policy.q_net_target):
            yield network.q_net, str(len(network.q_net) - 1)


class ScaledTD3(_ScaledCritics, TD3):
    """TD3 whose critics' errors are divided by sigma, and whose critics are in units of the return.

    Takes what `TD3` takes, and raises what `ScaledPPO` raises. The actor's loss is in units of sigma.
    """


class ScaledSAC(_ScaledCritics, SAC):
    """SAC whose critics' errors are divided by sigma, and whose critics are in units of the return.

    Takes what `SAC` takes, and raises what `ScaledPPO` raises. A temperature that is learned is in units of the root
    mean square of rewards: "auto_0.1" begins with a tenth of it. A fixed one is in the rewards' own units, as in `SAC`.
    The actor's loss is in units of sigma, as is the "train/ent_coef" of the log.
    """

    _temperature_unit = 1.0  # in sigmas: the rewards' size that `log_ent_coef` contains

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Updates from the replay."""
        sigma, moments = float(self.scale()[0]), self.scale.moments
        if self.log_ent_coef is None:
            self.ent_coef_tensor.fill_(float(self.ent_coef) / sigma)
        else:
            size = float(np.sqrt(moments.reward_variance + moments.reward_mean**2)[0])
            unit = size / sigma if size > 0.0 else 1.0
            with torch.no_grad():
                self.log_ent_coef += np.log(unit / self._temperature_unit)
            self._temperature_unit = unit
        super().train(gradient_steps, batch_size)
