"""DQN in Keras for rewards of any size: python docs/examples/keras_dqn.py --reward-scale=1000

Deep Q-learning (Mnih et al. 2015) on CartPole, with a compiled update. With --scaling=units it learns the same from
rewards times any number; what that takes is marked. Runs with Keras 2 and 3.
"""

import argparse

import gymnasium
import numpy as np
import tensorflow as tf

import rbs_tf

GAMMA, BATCH, WARM_UP, TARGET_PERIOD = 0.99, 64, 1000, 500


def train(
    env: gymnasium.Env, scaling: str = "units", seed: int = 0, steps: int = 15_000, every: int = 0
) -> list[float]:
    """Trains on what `make` returns, with an update every other step; returns the returns of all episodes.

    Args:
      scaling: "off"; "sigma": errors are divided; "units": the networks' outputs are in units of the return, too.
      every: steps between two printed lines; 0: none.
    """
    tf.keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    actions, shape = int(env.action_space.n), env.observation_space.shape
    # --- return-based scaling ---
    return_scaling = rbs_tf.ReturnScaling(floor_in_units=True)
    env = rbs_tf.collect_returns(env, return_scaling, GAMMA)
    last = rbs_tf.UnitDense if scaling == "units" else tf.keras.layers.Dense
    # ---

    def network() -> tf.keras.Model:
        hidden = [tf.keras.layers.Dense(64, "relu") for _ in range(2)]
        return tf.keras.Sequential([tf.keras.layers.Input(shape), *hidden, last(actions)])

    online, target = network(), network()
    target.set_weights(online.get_weights())
    optimizer = tf.keras.optimizers.Adam(1e-3)

    @tf.function
    def update(
        seen: tf.Tensor, action: tf.Tensor, reward: tf.Tensor, discount: tf.Tensor, after: tf.Tensor
    ) -> None:
        if scaling == "units":
            for layers in (online.layers, target.layers):
                layers[-1].to_unit(return_scaling.unit)  # return-based scaling
        targets = reward + discount * tf.reduce_max(target(after), axis=1)
        with tf.GradientTape() as tape:
            errors = targets - tf.gather(online(seen), action, batch_dims=1)
            errors = errors if scaling == "off" else return_scaling(errors)  # return-based scaling
            loss = tf.reduce_mean(0.5 * tf.square(errors))
        gradients = tape.gradient(loss, online.trainable_variables)
        optimizer.apply_gradients(zip(gradients, online.trainable_variables, strict=True))

    @tf.function
    def best(observation: tf.Tensor) -> tf.Tensor:
        return tf.argmax(online(observation), axis=1)[0]

    columns = [
        np.zeros((steps, *shape), np.float32),
        np.zeros(steps, np.int32),
        np.zeros(steps, np.float32),
        np.zeros(steps, np.float32),
        np.zeros((steps, *shape), np.float32),
    ]
    returns: list[float] = []
    observation, _ = env.reset(seed=seed)
    for step in range(steps):
        action = rng.integers(actions)
        if rng.random() > max(0.05, 1.0 - step / 5000):
            action = int(best(tf.constant(observation[None])))
        following, reward, terminated, truncated, info = env.step(int(action))
        row = observation, action, reward, GAMMA * (not terminated), following  # a time-out is no end
        for column, value in zip(columns, row, strict=True):
            column[step] = value
        observation = following
        if terminated or truncated:
            returns.append(float(info["episode"]["r"]))
            observation, _ = env.reset()
        if step >= WARM_UP and step % 2:
            drawn = rng.integers(step + 1, size=BATCH)
            update(*(tf.constant(column[drawn]) for column in columns))
        if step % TARGET_PERIOD == 0:
            target.set_weights(online.get_weights())
        if every and (step + 1) % every == 0:
            print(
                f"step {step + 1:,}  return of the last 20 episodes {np.mean(returns[-20:]):.4g}", flush=True
            )
    return returns


def make(name: str, reward_scale: float) -> gymnasium.Env:
    """The environment with rewards multiplied; returns are recorded as they are without that."""
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name))
    return gymnasium.wrappers.TransformReward(env, lambda reward: reward_scale * reward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1", help="%(default)s, or another with discrete actions")
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=15_000)
    options = parser.parse_args()
    env = make(options.env, options.reward_scale)
    train(env, options.scaling, options.seed, options.steps, every=1000)


if __name__ == "__main__":
    main()
