"""SAC in PyTorch for rewards of any size: python docs/examples/torch_sac.py --reward-scale=1000

Soft actor-critic (Haarnoja et al. 2018) in the form of CleanRL: two critics, a squashed Gaussian, a learned
temperature. With --scaling=units it learns the same from rewards times any number; what that takes is marked.
"""

import argparse
import copy

import gymnasium
import numpy as np
import torch
from torch import nn

import rbs_tf

GAMMA, BATCH, WARM_UP = 0.99, 256, 1000


def network(inputs: int, last: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), last)


def draw(actor: nn.Module, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions [B, A] within [-1, 1], and their log-probabilities [B]."""
    mean, log_std = actor(observations).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp())
    free = normal.rsample()
    log_slope = 2.0 * (np.log(2.0) - free - nn.functional.softplus(-2.0 * free))  # of tanh
    return free.tanh(), (normal.log_prob(free) - log_slope).sum(-1)


def values(critics: nn.ModuleList, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """[critics, B]"""
    inputs = torch.cat([observations, actions], -1)
    return torch.stack([critic(inputs)[:, 0] for critic in critics])


def train(
    env: gymnasium.Env,
    scaling: str = "units",
    temperature: float | None = None,
    seed: int = 0,
    steps: int = 20_000,
    every: int = 0,
) -> tuple[list[int], list[float]]:
    """Trains on an environment with actions within equal bounds; returns steps and returns at episodes' ends.

    Args:
      env: with `RecordEpisodeStatistics` below everything that changes rewards.
      scaling: "off"; "sigma": the critics' errors are divided; "units": their outputs are in units of the return, too,
        and the temperature in units of the rewards.
      temperature: a fixed one; None: it is learned.
      every: steps between two printed lines; 0: none.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    sizes = env.observation_space.shape[0], env.action_space.shape[0]
    bound = float(env.action_space.high[0])
    units = scaling == "units"
    # --- return-based scaling ---
    return_scaling = rbs_tf.torch.ReturnScaling(floor_in_units=True)
    env = rbs_tf.collect_returns(env, return_scaling, GAMMA)
    last = rbs_tf.torch.UnitLinear if units else nn.Linear
    # ---
    critics = nn.ModuleList([network(sum(sizes), last(256, 1)) for _ in range(2)])
    targets, actor = copy.deepcopy(critics), network(sizes[0], nn.Linear(256, 2 * sizes[1]))
    log_alpha = torch.zeros((), requires_grad=True)
    of_critics = torch.optim.Adam(critics.parameters(), 1e-3, fused=True)
    of_actor = torch.optim.Adam(actor.parameters(), 3e-4, fused=True)
    of_alpha = torch.optim.Adam([log_alpha], 1e-3)
    columns = [np.zeros((steps, size), np.float32) for size in (sizes[0], sizes[1], 1, 1, sizes[0])]
    at, returns = [], []
    observation, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < WARM_UP:
            action = rng.uniform(-1.0, 1.0, sizes[1]).astype(np.float32)
        else:
            with torch.no_grad():
                action = draw(actor, torch.as_tensor(observation[None], dtype=torch.float32))[0][0].numpy()
        following, reward, terminated, truncated, info = env.step(bound * action)
        row = observation, action, reward, GAMMA * (not terminated), following  # a time-out is no end
        for column, value in zip(columns, row, strict=True):
            column[step] = value
        observation = following
        if terminated or truncated:
            at.append(step + 1)
            returns.append(float(info["episode"]["r"]))
            observation, _ = env.reset()
        if step >= WARM_UP:
            drawn = rng.integers(step + 1, size=BATCH)
            seen, actions, rewards, discounts, after = (torch.from_numpy(column[drawn]) for column in columns)
            alpha = log_alpha.exp().detach() if temperature is None else torch.tensor(temperature)
            if units:
                # --- return-based scaling: values in units of the return, the temperature in units of the rewards ---
                for critic in [*critics, *targets]:
                    critic[-1].to_unit_(return_scaling.unit)
                size = (return_scaling.moments.reward_variance + return_scaling.moments.reward_mean**2).sqrt()
                alpha = alpha * size.float()
                # ---
            with torch.no_grad():
                new, log_probs = draw(actor, after)
                best = values(targets, after, new).amin(0) - alpha * log_probs
                target = rewards[:, 0] + discounts[:, 0] * best
            errors = target - values(critics, seen, actions)
            errors = errors if scaling == "off" else return_scaling(errors)  # return-based scaling
            of_critics.zero_grad()
            errors.square().mean(1).sum().backward()
            of_critics.step()
            new, log_probs = draw(actor, seen)
            of_actor.zero_grad()
            loss = (alpha * log_probs - values(critics, seen, new).amin(0)).mean()
            divisor = return_scaling.unit[0].clamp(min=1e-30) if units else 1.0  # return-based scaling
            (loss / divisor).backward(inputs=list(actor.parameters()))
            of_actor.step()
            of_alpha.zero_grad()
            (-log_alpha * (log_probs.detach().mean() - sizes[1])).backward()  # towards an entropy of -A
            of_alpha.step()
            with torch.no_grad():
                for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                    slow.lerp_(fast, 0.005)
        if every and (step + 1) % every == 0:
            print(
                f"step {step + 1:,}  return of the last 10 episodes {np.mean(returns[-10:]):.4g}", flush=True
            )
    return at, returns


def make(name: str, reward_scale: float) -> gymnasium.Env:
    """The environment with rewards multiplied; returns are recorded as they are without that."""
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name))
    return gymnasium.wrappers.TransformReward(env, lambda reward: reward_scale * reward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--env", default="Pendulum-v1", help="%(default)s, or another with continuous actions"
    )
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    env = make(options.env, options.reward_scale)
    train(env, options.scaling, seed=options.seed, steps=options.steps, every=1000)


if __name__ == "__main__":
    main()
