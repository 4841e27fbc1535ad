"""The whole update once more, in NumPy float64 and loops, independent of the TensorFlow code.

It serves as reference for `RecurrentMultiHeadAgent`: same inputs and weights, losses and (numerical) gradients.
"""

import numpy as np

LAST, FIRST = 2, 0


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def unroll(p, observation, previous_action, reward, step_type, h, c):
    """Q-values [L, H, A] of one sequence, and the state after it; p holds float64 arrays by name.

    With p["reward_rms"] the core sees rewards relative to it, without it clipped ones.
    """
    num_actions = p["wa"].shape[-1]
    num_heads = p["wa"].shape[0]
    q = []
    for t in range(len(reward)):
        if step_type[t] == FIRST:
            h, c = np.zeros_like(h), np.zeros_like(c)
        x = np.maximum(observation[t] @ p["torso_w"] + p["torso_b"], 0.0)
        one_hot = np.zeros(num_actions)
        if previous_action[t] >= 0:
            one_hot[previous_action[t]] = 1.0
        seen = np.clip(reward[t], -1.0, 1.0)
        if "reward_rms" in p:
            relative = reward[t] / p["reward_rms"]
            seen = np.sign(relative) * np.log(1.0 + abs(relative))
        x = np.concatenate([x, one_hot, [seen]])
        i, f, g, o = np.split(x @ p["lstm_x"] + h @ p["lstm_h"] + p["lstm_b"], 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        y = np.maximum(h @ p["post_w"] + p["post_b"], 0.0)
        row = []
        for k in range(num_heads):
            value = np.maximum(y @ p["w1"][k] + p["b1"][k], 0.0) @ p["wv"][k] + p["bv"][k]
            hidden = np.maximum(y @ p["w1"][num_heads + k] + p["b1"][num_heads + k], 0.0)
            advantage = hidden @ p["wa"][k] + p["ba"][k]
            row.append(value + advantage - advantage.mean())
        q.append(row)
    return np.array(q), h, c


def burned_in_states(p, windows, shape):
    """Recurrent states after the burn-in rows, per sequence; a constant as far as gradients go."""
    b = shape.burn_in
    return [
        unroll(
            p,
            windows["observation"][s][:b],
            windows["previous_action"][s][:b],
            windows["reward"][s][:b],
            windows["step_type"][s][:b],
            windows["h"][s],
            windows["c"][s],
        )[1:]
        for s in range(len(windows["reward"]))
    ]


def step(p, target_p, windows, states, heads, shape, sigma, sigma_v, *, double_q=False, eta=0.9, beta=0.6):
    """loss, priorities [B], scaled errors [B, T, H] and sigma_batch [H] of one batch."""
    batch, burn_in, length, n = len(windows["reward"]), shape.burn_in, shape.length, shape.n_step
    rows = shape.rows
    num_heads = len(heads)
    errors = np.zeros((batch, length, num_heads))
    mask = np.zeros((batch, length))
    batch_rewards, batch_discounts = [], []
    batch_returns = []
    for s in range(batch):
        columns = [windows[name][s] for name in ("observation", "previous_action", "reward", "step_type")]
        q_target, _, _ = unroll(target_p, *columns, windows["h"][s], windows["c"][s])
        q_online, _, _ = unroll(p, *(column[burn_in:] for column in columns), *states[s])
        head_rewards = np.stack(
            [np.clip(windows["reward"][s], -1, 1) if clip else windows["reward"][s] for _, clip in heads],
            axis=-1,
        )
        head_discounts = np.stack([windows["discount"][s] * discount for discount, _ in heads], axis=-1)
        valid = windows["step_type"][s] != LAST
        for k in range(num_heads):

            def bootstrap(row, k=k, q_online=q_online, q_target=q_target):
                if double_q:
                    return q_target[row, k, np.argmax(q_online[row - burn_in, k])]
                return q_target[row, k].max()

            for t in range(burn_in, burn_in + length):
                if not valid[t]:
                    continue
                target, weight, row = 0.0, 1.0, t
                while row < t + n and row < rows - 1 and valid[row]:
                    target += weight * head_rewards[row + 1, k]
                    weight *= head_discounts[row + 1, k]
                    row += 1
                target += weight * bootstrap(row) if weight else 0.0
                action = windows["previous_action"][s][t + 1]
                errors[s, t - burn_in, k] = target - q_online[t - burn_in, k, action]
                mask[s, t - burn_in] = 1.0
        # Returns of the real rows that enter targets, cut at the window's end.
        running = np.zeros(num_heads)
        for t in reversed(range(burn_in, rows - 1)):
            if not valid[t]:
                running = np.zeros(num_heads)
                continue
            running = head_rewards[t + 1] + head_discounts[t + 1] * running
            batch_rewards.append(head_rewards[t + 1])
            batch_discounts.append(head_discounts[t + 1])
            batch_returns.append(running)
    sigma_batch = np.sqrt(
        np.var(batch_rewards, axis=0)
        + np.var(batch_discounts, axis=0) * np.mean(np.square(batch_returns), axis=0)
    )
    scale = np.maximum(np.maximum(sigma, sigma_v), sigma_batch)
    scaled = errors / scale
    weights = (windows["table_size"] * windows["probability"]) ** -beta
    weights = weights / weights.max()
    loss = 0.5 * np.sum(np.square(scaled) * weights[:, None, None]) / (batch * length)
    per_step = np.abs(scaled).mean(axis=-1)
    count = np.maximum(mask.sum(axis=1), 1)
    priorities = eta * per_step.max(axis=1) + (1 - eta) * per_step.sum(axis=1) / count
    return loss, priorities, scaled, sigma_batch
