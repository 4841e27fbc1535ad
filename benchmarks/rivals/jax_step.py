"""`RecurrentMultiHeadAgent.train` in JAX: one jitted function that takes over the memory of weights and moments."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from benchmarks.rivals import BETA_1, BETA_2, Settings, load, serve, way  # noqa: E402

FIRST, LAST = 0, 2
Arrays = dict[str, jax.Array]


def torso(weights: Arrays, observation: jax.Array, settings: Settings) -> jax.Array:
    """[N, height, width, channels] -> [N, D]"""
    features = observation.astype(jnp.float32)
    if settings.pixels:
        features /= 255.0
    for index, stride in enumerate(settings.strides):
        features = lax.conv_general_dilated(
            features,
            weights[f"conv_w{index}"],
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        features = jax.nn.relu(features + weights[f"conv_b{index}"])
    features = features.reshape(len(features), -1)
    return jax.nn.relu(features @ weights["torso_w"] + weights["torso_b"])


def lstm(weights: Arrays, inputs: jax.Array, first: jax.Array, state: tuple) -> tuple[jax.Array, tuple]:
    """[T, B, D] -> [T, B, U]; zeros instead of the state before rows that are first."""

    def step(state, row):
        gates, first = row
        hidden, cell = (jnp.where(first[:, None], 0.0, part) for part in state)
        i, f, g, o = jnp.split(gates + hidden @ weights["R"], 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    state, hidden = lax.scan(step, state, (inputs @ weights["W"] + weights["b"], first))
    return hidden, state


@jax.custom_vjp
def _scaled_gradient(inputs: jax.Array, scale: float) -> jax.Array:
    return inputs


_scaled_gradient.defvjp(
    lambda inputs, scale: (inputs, scale), lambda scale, upstream: (upstream * scale, None)
)


def heads(weights: Arrays, inputs: jax.Array) -> jax.Array:
    """[T, B, D] -> [T, B, H, A]"""
    many = len(weights["Wv"])
    shared = _scaled_gradient(inputs.reshape(-1, inputs.shape[-1]), many**-0.5)
    # One wide product first, then one per head: quicker, the two of them, than batched products.
    streams = jnp.split(jax.nn.relu(shared @ weights["W1"] + weights["b1"]), 2 * many, axis=-1)

    def last_layer(streams: list[jax.Array], name: str) -> jax.Array:
        products = [x @ matrix for x, matrix in zip(streams, weights[f"W{name}"], strict=True)]
        return (jnp.stack(products, axis=1) + weights[f"b{name}"]).reshape(*inputs.shape[:2], many, -1)

    value, advantage = last_layer(streams[:many], "v"), last_layer(streams[many:], "a")
    return value + advantage - advantage.mean(axis=-1, keepdims=True)


def q_values(weights: Arrays, steps: Arrays, state: tuple, settings: Settings) -> tuple[jax.Array, tuple]:
    """[B, T, ...] -> [T, B, H, A] and the last state."""
    batch, time = steps["step_type"].shape
    observation = steps["observation"].reshape(batch * time, *steps["observation"].shape[2:])
    inputs = [
        torso(weights, observation, settings).reshape(batch, time, -1),
        jax.nn.one_hot(steps["previous_action"], weights["Wa"].shape[-1]),
        jnp.clip(steps["reward"], -1.0, 1.0)[..., None],
    ]
    inputs = jnp.concatenate(inputs, axis=-1).swapaxes(0, 1)
    hidden, state = lstm(weights, inputs, steps["step_type"].T == FIRST, state)
    return heads(weights, jax.nn.relu(hidden @ weights["linear_w"] + weights["linear_b"])), state


def n_step_targets(
    values: jax.Array, rewards: jax.Array, discounts: jax.Array, valid: jax.Array, n: int
) -> jax.Array:
    target = values
    for _ in range(n):
        longer = jnp.where(valid[..., None], rewards + discounts * target[1:], values[:-1])
        target = jnp.concatenate([longer, values[-1:]])
    return target[:-1]


def loss_of(
    weights: Arrays, target_weights: Arrays, batch: Arrays, settings: Settings
) -> tuple[jax.Array, jax.Array]:
    """Loss and priorities."""
    burn_in, length = settings.burn_in, settings.length
    state = batch["h"], batch["c"]
    target_values, _ = q_values(target_weights, batch, state, settings)
    bootstrap = target_values[burn_in:].max(axis=-1)

    def rows(start: int, end: int) -> Arrays:
        names = ("step_type", "observation", "previous_action", "reward")
        return {name: batch[name][:, start:end] for name in names}

    _, state = q_values(weights, rows(0, burn_in), state, settings)
    values, _ = q_values(weights, rows(burn_in, burn_in + length), lax.stop_gradient(state), settings)

    step_type, reward, discount, action = (
        batch[name].T[burn_in:] for name in ("step_type", "reward", "discount", "previous_action")
    )
    valid = step_type[:-1] != LAST
    keep, mask = valid[:length, :, None], valid[:length].astype(jnp.float32)
    rewards = reward[1:, :, None]
    rewards = jnp.where(jnp.array(settings.clips), jnp.clip(rewards, -1.0, 1.0), rewards)
    discounts = discount[1:, :, None] * jnp.array(settings.discounts)

    outputs = values * jax.nn.one_hot(action[1 : length + 1], values.shape[-1])[:, :, None]
    outputs = jnp.where(keep, outputs.sum(axis=-1), 0.0)
    targets = n_step_targets(bootstrap, rewards, discounts, valid, settings.n_step)[:length]
    targets = lax.stop_gradient(jnp.where(keep, targets, 0.0))

    errors = jnp.where(keep, targets - outputs, 0.0)

    expected = batch["table_size"].astype(jnp.float32) * batch["probability"]
    importance = jnp.maximum(expected, 1e-12) ** -settings.importance_exponent
    importance = jnp.where((expected <= 0).all(), 1.0, importance / importance.max())
    loss = (0.5 * jnp.square(errors).sum(axis=-1) * mask * importance).sum() / mask.size

    each = jnp.abs(errors).mean(axis=-1) * mask
    mean = each.sum(axis=0) / jnp.maximum(mask.sum(axis=0), 1.0)
    priorities = settings.priority_eta * each.max(axis=0) + (1 - settings.priority_eta) * mean
    return loss, priorities


def adam(
    weights: Arrays, moments: tuple[Arrays, Arrays], gradients: Arrays, count: jax.Array, settings: Settings
):
    """Adam with epsilon beside the raw second moment, as Keras has it."""
    count = count.astype(jnp.float32)
    rate = settings.learning_rate * jnp.sqrt(1 - BETA_2**count) / (1 - BETA_1**count)
    first = jax.tree.map(lambda m, g: m + (1 - BETA_1) * (g - m), moments[0], gradients)
    second = jax.tree.map(lambda v, g: v + (1 - BETA_2) * (g * g - v), moments[1], gradients)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + settings.adam_epsilon), weights, first, second
    )
    return weights, (first, second)


def main() -> None:
    settings, groups = load(sys.argv[1])
    groups = {group: {name: jnp.array(x) for name, x in arrays.items()} for group, arrays in groups.items()}
    for group in ("online", "target"):
        # The heads' first layers side by side.
        groups[group]["W1"] = jnp.concatenate(list(groups[group]["W1"]), axis=-1)
        groups[group]["b1"] = groups[group]["b1"].reshape(-1)
    weights, target = groups["online"], groups["target"]
    zeros = jax.tree.map(jnp.zeros_like, weights)
    state: Any = (weights, (zeros, jax.tree.map(jnp.copy, zeros)), jnp.zeros((), jnp.int32))

    def update(state, target, batch):
        weights, moments, count = state
        (loss, priorities), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            weights, target, batch, settings
        )
        weights, moments = adam(weights, moments, gradients, count + 1, settings)
        return (weights, moments, count + 1), loss, priorities

    jitted = jax.jit(update, donate_argnums=0)
    done = 0

    def train(name: str):
        nonlocal state, target, done
        state, loss, priorities = jitted(state, target, groups[name])
        done += 1
        if done % settings.target_update_period == 0:
            target = jax.tree.map(jnp.copy, state[0])
        return loss, priorities

    serve(way(train, lambda result: (float(result[0]), result[1].tolist())))


if __name__ == "__main__":
    main()
