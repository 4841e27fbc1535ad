"""TF-Agents' DQN for rewards of any size: python docs/examples/tf_agents_dqn.py --reward-scale=1000

The stock `DqnAgent` on four CartPoles. With --scaling=units it learns the same from rewards times any number; what that
takes is marked. TF-Agents needs Keras 2: from TensorFlow 2.16 on install tf-keras and set TF_USE_LEGACY_KERAS=1.
"""

import argparse

import gymnasium
import tensorflow as tf
from tf_agents.agents.dqn.dqn_agent import DqnAgent
from tf_agents.drivers.dynamic_step_driver import DynamicStepDriver
from tf_agents.environments.tf_py_environment import TFPyEnvironment
from tf_agents.metrics.tf_metrics import AverageReturnMetric
from tf_agents.networks.sequential import Sequential
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.utils import common

import rbs_tf
from rbs_tf import environments

GAMMA, NUM_ENVS, WARM_UP = 0.99, 4, 1000


def train(
    env: TFPyEnvironment,
    reward_scale: float = 1.0,
    scaling: str = "units",
    seed: int = 0,
    steps: int = 20_000,
    every: int = 0,
) -> list[float]:
    """Trains on what `make` returns; returns the mean return of the last 20 episodes, every `every` steps.

    With the scaling "sigma" errors are divided, with "units" the networks' outputs are in units of the return, too.
    """
    tf.keras.utils.set_random_seed(seed)
    num_actions = int(env.action_spec().maximum) + 1
    # --- return-based scaling ---
    scaled_loss = rbs_tf.ScaledLoss(GAMMA, floor_in_units=True)
    loss = common.element_wise_squared_loss if scaling == "off" else scaled_loss
    last = rbs_tf.UnitDense if scaling == "units" else tf.keras.layers.Dense
    # ---

    def network() -> Sequential:
        hidden = [tf.keras.layers.Dense(64, "relu") for _ in range(2)]
        return Sequential([*hidden, last(num_actions)], input_spec=env.observation_spec())

    online, target = network(), network()
    agent = DqnAgent(
        env.time_step_spec(),
        env.action_spec(),
        q_network=online,
        target_q_network=target,  # of its own: TF-Agents would copy the layers
        optimizer=tf.keras.optimizers.legacy.Adam(1e-3),
        epsilon_greedy=0.1,
        target_update_period=250,
        gamma=GAMMA,
        td_errors_loss_fn=loss,
    )
    agent.initialize()
    replay = TFUniformReplayBuffer(agent.collect_data_spec, NUM_ENVS, max_length=steps // NUM_ENVS)
    returns = AverageReturnMetric(batch_size=NUM_ENVS, buffer_size=20)
    observers = [replay.add_batch, returns, scaled_loss.observe]  # return-based scaling
    driver = DynamicStepDriver(env, agent.collect_policy, observers, num_steps=NUM_ENVS)
    batches = iter(replay.as_dataset(sample_batch_size=64, num_steps=2).prefetch(2))
    collect = common.function(driver.run)

    @common.function
    def update(experience: object) -> None:
        if scaling == "units":
            for layers in (online.layers, target.layers):
                layers[-1].to_unit(scaled_loss.scaling.unit)  # return-based scaling
        agent.train(experience)

    found, time_step = [], env.reset()
    for step in range(0, steps, NUM_ENVS):
        time_step, _ = collect(time_step)
        if step >= WARM_UP:
            for _ in range(2):
                update(next(batches)[0])
        if every and (step + NUM_ENVS) % every == 0:
            found.append(float(returns.result()) / reward_scale)
            print(f"step {step + NUM_ENVS:,}  return of the last 20 episodes {found[-1]:.4g}", flush=True)
    return found


def make(name: str, reward_scale: float, seed: int) -> TFPyEnvironment:
    """Environments with rewards multiplied."""

    def multiplied() -> gymnasium.Env:
        return gymnasium.wrappers.TransformReward(gymnasium.make(name), lambda reward: reward_scale * reward)

    gymnasium.register("Multiplied-v0", multiplied)
    return TFPyEnvironment(environments.make("Multiplied-v0", num_envs=NUM_ENVS, seed=seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1", help="%(default)s, or another with discrete actions")
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    env = make(options.env, options.reward_scale, options.seed)
    train(env, options.reward_scale, options.scaling, options.seed, options.steps, every=1000)


if __name__ == "__main__":
    main()
