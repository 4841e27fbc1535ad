"""PPO in PyTorch for rewards of any size: python docs/examples/torch_ppo.py --reward-scale=1000

Proximal policy optimisation (Schulman et al. 2017) in the form of CleanRL, with one torso for actor and critic. With
--scaling=units it learns the same from rewards times any number; what that takes is marked.
"""

import argparse
from collections.abc import Sequence

import gymnasium
import numpy as np
import torch
from torch import nn

import rbs_tf

GAMMA, LAMBDA, ROLLOUT, EPOCHS, MINIBATCHES = 0.99, 0.95, 128, 4, 4


def layer(inputs: int, outputs: int, gain: float, kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    """A linear layer with orthogonal weights and biases of 0."""
    linear = kind(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """Actor and critic on one torso."""

    def __init__(self, inputs: int, actions: int, last: type[nn.Linear]):
        super().__init__()
        gain = float(np.sqrt(2))
        self.torso = nn.Sequential(layer(inputs, 64, gain), nn.Tanh(), layer(64, 64, gain), nn.Tanh())
        self.actor, self.critic = layer(64, actions, 0.01), layer(64, 1, 1.0, last)

    def forward(self, observations: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        features = self.torso(observations)
        policy = torch.distributions.Categorical(logits=self.actor(features), validate_args=False)
        return policy, self.critic(features)[..., 0]


def advantages_of(rewards: torch.Tensor, ends: torch.Tensor, values: torch.Tensor, after: torch.Tensor):
    """Generalised advantages [T, N]; `ends[t]` is 1 where an episode ended, `after` the value of what follows."""
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(after)
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - ends[t]
        error = rewards[t] + GAMMA * goes_on * after - values[t]
        following = advantages[t] = error + GAMMA * LAMBDA * goes_on * following
        after = values[t]
    return advantages


def losses(agent: Agent, divide: nn.Module, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The actor's loss with its entropy term, and the critic's, of a minibatch [B]."""
    observations, actions, log_probs, advantages, targets = batch
    policy, values = agent(observations)
    ratio = (policy.log_prob(actions) - log_probs).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    actor_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(0.8, 1.2)).mean()
    value_loss = 0.5 * divide(targets - values).square().mean()  # return-based scaling
    return actor_loss - 0.01 * policy.entropy().mean(), 0.5 * value_loss


def train(
    envs: gymnasium.vector.VectorEnv,
    scaling: str = "units",
    seed: int = 0,
    steps: int = 102_400,
    rate: float = 2.5e-3,
    every: int = 0,
) -> list[float]:
    """Trains on what `make` returns, and prints a line `every` so many rollouts; returns the returns of all episodes.

    With the scaling "sigma" the critic's errors are divided, with "units" its outputs are in units of the return, too.
    """
    torch.manual_seed(seed)
    # --- return-based scaling ---
    return_scaling = rbs_tf.torch.ReturnScaling(floor_in_units=True)
    envs = rbs_tf.collect_returns(envs, return_scaling, GAMMA)
    divide = nn.Identity() if scaling == "off" else return_scaling
    last = rbs_tf.torch.UnitLinear if scaling == "units" else nn.Linear
    # ---
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n), last)
    num_envs, optimizer = envs.num_envs, torch.optim.Adam(agent.parameters(), rate, eps=1e-5)
    observations = torch.zeros(ROLLOUT, num_envs, *envs.single_observation_space.shape)
    actions = torch.zeros(ROLLOUT, num_envs, dtype=torch.int64)
    log_probs, rewards, ends, values = torch.zeros(4, ROLLOUT, num_envs)
    returns, rollouts = [], steps // (ROLLOUT * num_envs)
    following = torch.as_tensor(envs.reset(seed=seed)[0])
    for rollout in range(rollouts):
        optimizer.param_groups[0]["lr"] = rate * (1.0 - rollout / rollouts)
        for t in range(ROLLOUT):
            observations[t] = following
            with torch.no_grad():
                policy, values[t] = agent(following)
                actions[t] = policy.sample()
                log_probs[t] = policy.log_prob(actions[t])
            seen, reward, terminated, truncated, info = envs.step(actions[t].numpy())
            over, cut = terminated | truncated, truncated & ~terminated
            following, rewards[t], ends[t] = map(torch.as_tensor, (seen, reward, over))
            if over.any():
                returns += info["final_info"]["episode"]["r"][over].tolist()
            if cut.any():  # a time-out is no end: what would have followed counts
                with torch.no_grad():
                    rewards[t, cut] += GAMMA * agent(torch.as_tensor(np.stack(info["final_obs"][cut])))[1]
        if scaling == "units":
            agent.critic.to_unit_(return_scaling.unit)  # return-based scaling
        with torch.no_grad():
            advantages = advantages_of(rewards, ends, values, agent(following)[1])
        targets = advantages + values
        batch = [x.flatten(0, 1) for x in (observations, actions, log_probs, advantages, targets)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(batch[0])).chunk(MINIBATCHES):
                optimizer.zero_grad()
                sum(losses(agent, divide, [column[rows] for column in batch])).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if every and (rollout + 1) % every == 0:
            done = (rollout + 1) * ROLLOUT * num_envs
            print(f"step {done:,}  return of the last 20 episodes {np.mean(returns[-20:]):.4g}", flush=True)
    return returns


def make(name: str, num_envs: int, reward_scale: float) -> gymnasium.vector.VectorEnv:
    """Environments with rewards multiplied; returns are recorded as they are without that."""

    def multiplied(env: gymnasium.Env) -> gymnasium.Env:
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        return gymnasium.wrappers.TransformReward(env, lambda reward: reward_scale * reward)

    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.make_vec(name, num_envs, "sync", {"autoreset_mode": same_step}, wrappers=[multiplied])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1", help="%(default)s, LunarLander-v3, or the like")
    parser.add_argument("--envs", type=int, default=8, help="environments that step together")
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=102_400)
    options = parser.parse_args()
    envs = make(options.env, options.envs, options.reward_scale)
    train(envs, options.scaling, options.seed, options.steps, every=4)


if __name__ == "__main__":
    main()
