"""TF-Agents' SAC for rewards of any size: python docs/examples/tf_agents_sac.py --reward-scale=1000

The stock `SacAgent` on Pendulum: two critics, a learned temperature. With --scaling=units it learns the same from
rewards times any number; what that takes is marked. TF-Agents needs Keras 2: from TensorFlow 2.16 on install tf-keras
and set TF_USE_LEGACY_KERAS=1.
"""

import argparse
import math

import gymnasium
import tensorflow as tf
from tf_agents.agents.sac.sac_agent import SacAgent
from tf_agents.agents.sac.tanh_normal_projection_network import TanhNormalProjectionNetwork
from tf_agents.drivers.dynamic_step_driver import DynamicStepDriver
from tf_agents.environments.tf_py_environment import TFPyEnvironment
from tf_agents.metrics.tf_metrics import AverageReturnMetric
from tf_agents.networks.actor_distribution_network import ActorDistributionNetwork
from tf_agents.networks.sequential import Sequential
from tf_agents.policies.random_tf_policy import RandomTFPolicy
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.utils import common

import rbs_tf
from rbs_tf import environments

GAMMA, WARM_UP = 0.99, 1000


def train(
    env: TFPyEnvironment,
    reward_scale: float = 1.0,
    scaling: str = "units",
    seed: int = 0,
    steps: int = 10_000,
    every: int = 0,
) -> list[float]:
    """Trains on what `make` returns; returns the mean return of the last 10 episodes, every `every` steps.

    With the scaling "sigma" the critics' errors are divided. With "units" their outputs are in units of the return, and
    the temperature begins at the size of the rewards.
    """
    tf.keras.utils.set_random_seed(seed)
    units = scaling == "units"
    # --- return-based scaling ---
    scaled_loss = rbs_tf.ScaledLoss(GAMMA, floor_in_units=True)
    loss = tf.math.squared_difference if scaling == "off" else scaled_loss
    last = rbs_tf.UnitDense if units else tf.keras.layers.Dense
    # ---
    random = RandomTFPolicy(env.time_step_spec(), env.action_spec())
    replay = TFUniformReplayBuffer(random.trajectory_spec, env.batch_size, max_length=steps)
    returns = AverageReturnMetric(buffer_size=10)
    observers = [replay.add_batch, returns, scaled_loss.observe]  # return-based scaling
    warm_up = DynamicStepDriver(env, random, observers, num_steps=WARM_UP)
    time_step, _ = common.function(warm_up.run)(env.reset())
    log_alpha = 0.0
    if units:
        # --- return-based scaling: the temperature begins at the root mean square of the rewards ---
        seen = scaled_loss.scaling.moments
        mean_square = float(seen.reward_variance[0] + seen.reward_mean[0] ** 2)
        log_alpha = 0.5 * math.log(mean_square) if mean_square > 0.0 else 0.0
        # ---

    def critic() -> Sequential:
        layers = [tf.keras.layers.Lambda(lambda both: tf.concat(both, axis=-1))]
        layers += [tf.keras.layers.Dense(256, "relu") for _ in range(2)]
        layers += [last(1), tf.keras.layers.Reshape([])]
        return Sequential(layers, input_spec=(env.observation_spec(), env.action_spec()))

    critics = [critic() for _ in range(4)]
    actor = ActorDistributionNetwork(
        env.observation_spec(),
        env.action_spec(),
        fc_layer_params=(256, 256),
        continuous_projection_net=TanhNormalProjectionNetwork,
    )
    agent = SacAgent(
        env.time_step_spec(),
        env.action_spec(),
        critic_network=critics[0],
        critic_network_2=critics[1],
        target_critic_network=critics[2],  # of their own: TF-Agents would copy the layers
        target_critic_network_2=critics[3],
        actor_network=actor,
        actor_optimizer=tf.keras.optimizers.legacy.Adam(3e-4),
        critic_optimizer=tf.keras.optimizers.legacy.Adam(1e-3),
        alpha_optimizer=tf.keras.optimizers.legacy.Adam(1e-3),
        initial_log_alpha=log_alpha,
        target_update_tau=0.005,
        td_errors_loss_fn=loss,
        gamma=GAMMA,
    )
    agent.initialize()
    collect = common.function(DynamicStepDriver(env, agent.collect_policy, observers, num_steps=1).run)
    batches = iter(replay.as_dataset(sample_batch_size=256, num_steps=2).prefetch(2))

    @common.function
    def update(experience: object) -> None:
        if units:
            for network in critics:
                network.layers[-2].to_unit(scaled_loss.scaling.unit)  # return-based scaling
        agent.train(experience)

    found = []
    for step in range(WARM_UP, steps):
        time_step, _ = collect(time_step)
        update(next(batches)[0])
        if every and step % every == 0:
            found.append(float(returns.result()) / reward_scale)
            print(f"step {step:,}  return of the last 10 episodes {found[-1]:.4g}", flush=True)
    return found


def make(name: str, reward_scale: float, seed: int) -> TFPyEnvironment:
    """An environment with rewards multiplied."""

    def multiplied() -> gymnasium.Env:
        return gymnasium.wrappers.TransformReward(gymnasium.make(name), lambda reward: reward_scale * reward)

    gymnasium.register("Multiplied-v0", multiplied)
    return TFPyEnvironment(environments.make("Multiplied-v0", seed=seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--env", default="Pendulum-v1", help="%(default)s, or another with continuous actions"
    )
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    env = make(options.env, options.reward_scale, options.seed)
    train(env, options.reward_scale, options.scaling, options.seed, options.steps, every=1000)


if __name__ == "__main__":
    main()
