"""Reward normalisation and sigma on one stream of rewards: the figure of docs/vec_normalize.md.

    .venv/bin/python -m benchmarks.vec_normalize

A stream of 20,000 steps in episodes of 20 to 180 steps that end in death; one reward of 1 in ten steps, and from step
10,000 on, once the agent has become better, rewards of 10.
"""

from __future__ import annotations

import numpy as np

from agents.monitoring.figure import new_figure
from benchmarks.performance import ROOT
from rbs_tf import ReturnMoments
from rbs_tf.numpy import ReturnScaling as NumpyScaling

FIGURE = ROOT / "docs/images/vec_normalize.png"
STEPS, BETTER, GAMMA = 20_000, 10_000, 0.99


def stream(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rewards, float64 [T], and whether the episode ends, bool [T]."""
    rng = np.random.default_rng(seed)
    rewards = (rng.random(STEPS) < 0.1) * np.where(np.arange(STEPS) < BETTER, 1.0, 10.0)
    ends = np.zeros(STEPS, bool)
    ends[np.cumsum(rng.integers(20, 181, size=STEPS // 20)).clip(max=STEPS - 1)] = True
    return rewards, ends


def divisors(rewards: np.ndarray, ends: np.ndarray, forgets_first: bool = False) -> np.ndarray:
    """What one environment's rewards are divided by at each step, float64 [T].

    `VecNormalize` forgets its sum after an episode's last step; `forgets_first`: before, as `NormalizeReward` does.
    """
    found, total, mean, m2 = np.empty(len(rewards)), 0.0, 0.0, 1e-4
    for t, (reward, end) in enumerate(zip(rewards, ends, strict=True)):
        total = total * GAMMA * (not (forgets_first and end)) + reward
        count = t + 1 + 1e-4  # both start with a variance of 1 that counts as 1e-4 steps
        shift = total - mean
        mean += shift / count
        m2 += shift * shift * (count - 1) / count
        found[t] = np.sqrt(m2 / count + 1e-8)
        if end and not forgets_first:
            total = 0.0
    return found


def sigmas(rewards: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """sigma at each step, float64 [T], of all episodes that have ended before; NaN in the first one."""
    scale, found, start = NumpyScaling(), np.full(len(rewards), np.nan), 0
    for end in np.flatnonzero(ends):
        discounts = np.full(end + 1 - start, GAMMA)
        discounts[-1] = 0.0
        scale.merge_state(ReturnMoments.from_episode(rewards[start : end + 1], discounts))
        start = end + 1
        found[start:] = scale.sigma[0]
    return found


def draw():
    """Left what divides, right what the critic is asked to put out for one and the same state."""
    rewards, ends = stream()
    steps = np.arange(STEPS) / 1000
    vec_normalize, gymnasium = divisors(rewards, ends), divisors(rewards, ends, forgets_first=True)
    sigma = sigmas(rewards, ends)
    drawing, ((left, right),) = new_figure(1, 2, (3.6, 2.6), sharex=True)
    left.plot(steps, vec_normalize, color="tab:red", label="VecNormalize")
    left.plot(steps, gymnasium, "--", color="tab:orange", label="NormalizeReward")
    left.plot(steps, sigma, color="tab:green", label="sigma")
    left.set_title("divisor: of rewards, and of errors (sigma)", fontsize="small")
    right.plot(steps, 10.0 / vec_normalize, color="tab:red")
    right.plot(steps, 10.0 / gymnasium, "--", color="tab:orange")
    right.plot(steps, np.full(STEPS, 10.0), color="tab:green")
    right.set_title("value that a state of return 10 should get", fontsize="small")
    right.set_ylim(0.0, 11.0)
    for panel in (left, right):
        panel.set_xlim(0.2, STEPS / 1000)
    left.set_ylim(0.0, 1.05 * vec_normalize.max())
    drawing.supxlabel("thousand steps; rewards grow tenfold after ten", fontsize="small")
    drawing.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawing


def main() -> None:
    draw().savefig(FIGURE, dpi=90)


if __name__ == "__main__":
    main()
