"""PPO in JAX for rewards of any size: python docs/examples/jax_ppo.py --reward-scale=1000

Rollout and update are one compiled function, as in PureJaxRL, on a CartPole of its own. With --scaling=units it learns
the same from rewards times any number; what that takes is marked.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import rbs_tf

GAMMA, LAMBDA, ROLLOUT, EPOCHS, MINIBATCHES, NUM_ENVS, LONGEST = 0.99, 0.95, 128, 4, 4, 8, 500


def start(key: jax.Array) -> jax.Array:
    return jax.random.uniform(key, (NUM_ENVS, 4), minval=-0.05, maxval=0.05)


def cartpole(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """State [N, 4] and actions [N] -> the next state, and whether the pole has fallen, bool [N]."""
    x, speed, angle, spin = state.T
    pull = (20.0 * action - 10.0 + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
    turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * pull) / (2 / 3 - 0.05 * jnp.cos(angle) ** 2 / 1.1)
    push = pull - 0.05 * turn * jnp.cos(angle) / 1.1
    state = state + 0.02 * jnp.stack([speed, push, spin, turn], axis=1)
    return state, (jnp.abs(state[:, 0]) > 2.4) | (jnp.abs(state[:, 2]) > 0.2095)


def network(key: jax.Array) -> dict[str, Any]:
    """Weights and biases: two layers for both, and a last layer each for the policy and for values."""
    layers = (
        ("first", 4, 64, 2**0.5),
        ("second", 64, 64, 2**0.5),
        ("actor", 64, 2, 0.01),
        ("critic", 64, 1, 1.0),
    )
    return {
        name: (jax.nn.initializers.orthogonal(gain)(own, (inputs, units)), jnp.zeros(units))
        for own, (name, inputs, units, gain) in zip(jax.random.split(key, 4), layers, strict=True)
    }


def outputs(layers: dict[str, Any], unit: jax.Array, states: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities [..., 2], and values [...], which are unit times the critic's outputs."""
    for name in ("first", "second"):
        states = jnp.tanh(states @ layers[name][0] + layers[name][1])
    logits, values = (states @ layers[name][0] + layers[name][1] for name in ("actor", "critic"))
    return jax.nn.log_softmax(logits), unit * values[..., 0]


def loss(layers: dict[str, Any], unit: jax.Array, scale: Any, batch: Any) -> jax.Array:
    states, actions, old, advantages, targets = batch
    logs, values = outputs(layers, unit, states)
    ratio = jnp.exp(jnp.take_along_axis(logs, actions[:, None], axis=1)[:, 0] - old)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    actor = -jnp.minimum(advantages * ratio, advantages * jnp.clip(ratio, 0.8, 1.2)).mean()
    value = 0.5 * jnp.square((targets - values) / scale).mean()  # return-based scaling
    return actor + 0.01 * (jnp.exp(logs) * logs).sum(-1).mean() + 0.5 * value


def train(
    reward_scale: float = 1.0, scaling: str = "units", seed: int = 0, steps: int = 102_400, every: int = 0
) -> list[float]:
    """Trains with rewards of `reward_scale`; returns the lengths of all episodes, and prints every so many rollouts.

    With the scaling "sigma" the critic's errors are divided, with "units" its outputs are in units of the return, too.
    """
    rollouts = steps // (ROLLOUT * NUM_ENVS)
    rates = optax.linear_schedule(2.5e-3, 0.0, rollouts * EPOCHS * MINIBATCHES)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rates, eps=1e-5))

    def play(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        layers, unit, stats, state, age = carry
        logs, values = outputs(layers, unit, state)
        action = jax.random.categorical(key, logs)
        following, failed = cartpole(state, action)
        rewards, cut = jnp.full(NUM_ENVS, reward_scale), ~failed & (age >= LONGEST)
        ended = failed | cut
        stats = rbs_tf.jax.observe(stats, rewards, GAMMA * ~failed, ended)  # return-based scaling
        # A time-out is no end: what would have followed counts.
        targets = rewards + GAMMA * cut * outputs(layers, unit, following)[1]
        row = state, action, jnp.take_along_axis(logs, action[:, None], axis=1)[:, 0], values, targets, ended
        state = jnp.where(ended[:, None], start(jax.random.fold_in(key, 1)), following)
        return (layers, unit, stats, state, jnp.where(ended, 1, age + 1)), (row, age)

    def advantage(carry: Any, row: Any) -> tuple[Any, jax.Array]:
        following, after = carry
        values, rewards, ended = row
        error = rewards + GAMMA * ~ended * after - values
        following = error + GAMMA * LAMBDA * ~ended * following
        return (following, values), following

    @jax.jit
    def iteration(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        layers, unit, slots, stats, state, age = carry
        keys = jax.random.split(key, ROLLOUT + EPOCHS)
        played, (rows, ages) = jax.lax.scan(play, (layers, unit, stats, state, age), keys[:ROLLOUT])
        stats, state, age = played[2:]
        # --- return-based scaling ---
        scale = 1.0 if scaling == "off" else rbs_tf.jax.scale(stats, floor_in_units=True)
        if scaling == "units":
            layers["critic"], unit = rbs_tf.jax.to_unit(layers["critic"], unit, rbs_tf.jax.unit(stats))
        # ---
        states, actions, logs, values, rewards, ended = rows
        after = jnp.zeros(NUM_ENVS), outputs(layers, unit, state)[1]
        advantages = jax.lax.scan(advantage, after, (values, rewards, ended), reverse=True)[1]
        batch = states, actions, logs, advantages, advantages + values
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

        def update(carry: Any, index: jax.Array) -> tuple[Any, None]:
            layers, slots = carry
            part = jax.tree.map(lambda x: x[index], batch)
            change, slots = optimizer.update(jax.grad(loss)(layers, unit, scale, part), slots)
            return (optax.apply_updates(layers, change), slots), None

        order = jnp.stack([jax.random.permutation(own, ROLLOUT * NUM_ENVS) for own in keys[ROLLOUT:]])
        (layers, slots), _ = jax.lax.scan(update, (layers, slots), order.reshape(EPOCHS * MINIBATCHES, -1))
        return (layers, unit, slots, stats, state, age), jnp.where(ended, ages, 0)

    key, first, second = jax.random.split(jax.random.PRNGKey(seed), 3)
    unit = jnp.zeros(1) if scaling == "units" else jnp.ones(1)
    layers, stats, age = network(first), rbs_tf.jax.init(NUM_ENVS), jnp.ones(NUM_ENVS, int)
    carry = layers, unit, optimizer.init(layers), stats, start(second), age
    returns: list[float] = []
    for rollout in range(rollouts):
        carry, lengths = iteration(carry, jax.random.fold_in(key, rollout))
        returns += [float(length) for length in np.ravel(lengths) if length]
        if every and (rollout + 1) % every == 0:
            done = (rollout + 1) * ROLLOUT * NUM_ENVS
            print(f"step {done:,}  return of the last 20 episodes {np.mean(returns[-20:]):.4g}", flush=True)
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reward-scale", type=float, default=1.0, help="every reward; without it 1")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=102_400)
    options = parser.parse_args()
    train(options.reward_scale, options.scaling, options.seed, options.steps, every=4)


if __name__ == "__main__":
    main()
