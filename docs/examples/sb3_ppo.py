"""PPO of Stable-Baselines3 for rewards of any size: python docs/examples/sb3_ppo.py --reward-scale=1000

The change is the name of one class: `rbs_tf.sb3.ScaledPPO` takes what `PPO` takes. An `EvalCallback` plays in an
environment of its own, whose rewards are not multiplied and do not count for the scale.
"""

import argparse

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env

import rbs_tf

NUM_ENVS = 8
OPTIONS = {"learning_rate": 2.5e-3, "n_steps": 128, "batch_size": 256, "n_epochs": 4, "ent_coef": 0.01}


def train(
    name: str = "CartPole-v1",
    reward_scale: float = 1.0,
    scaling: str = "units",
    seed: int = 0,
    steps: int = 102_400,
    every: int = 0,
) -> list[float]:
    """Trains with rewards multiplied; returns the returns of all episodes, as they are without that.

    Args:
      scaling: "off"; "units": value errors are divided by sigma, and values are in units of the return.
      every: steps between two evaluations of ten episodes, which are printed; 0: none.
    """

    def multiplied(env: gymnasium.Env) -> gymnasium.Env:
        return gymnasium.wrappers.TransformReward(env, lambda reward: reward_scale * reward)

    envs = make_vec_env(name, NUM_ENVS, seed=seed, wrapper_class=multiplied)
    # --- return-based scaling ---
    algorithm = rbs_tf.sb3.ScaledPPO if scaling == "units" else PPO
    # ---
    model = algorithm("MlpPolicy", envs, **OPTIONS, seed=seed, stats_window_size=steps, device="cpu")
    evaluation = None
    if every:
        evaluated = make_vec_env(name, seed=seed + 1)
        evaluation = EvalCallback(evaluated, eval_freq=every // NUM_ENVS, n_eval_episodes=10, verbose=1)
    model.learn(steps, callback=evaluation)
    return [
        float(episode["r"]) for episode in model.ep_info_buffer
    ]  # of `Monitor`, below what multiplies rewards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1", help="%(default)s, LunarLander-v3, or the like")
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=102_400)
    options = parser.parse_args()
    train(options.env, options.reward_scale, options.scaling, options.seed, options.steps, every=4096)


if __name__ == "__main__":
    main()
