"""Does a DQN in PyTorch learn whatever the size of rewards? CartPole, rewards times 0.001, 1 and 1000.

    taskset -c 0 .venv-rivals/bin/python -m benchmarks.reward_units           # about MINUTES minutes of one core
    .venv-rivals/bin/python -m benchmarks.reward_units --table                # prints the table of what has been run

The agent: two heads of discounts 0.9 and 0.99 on one torso of two layers of 64, the second of which acts; 1,500 steps of 8
environments with one update each after 60 steps of random actions, batches of 64, Adam 1e-3, half squared errors summed
over heads, a target copied every 100 updates, exploration from 1 to 0.05 over the first 500 steps.

Arms: errors as they are; errors divided by sigma (`ScaledErrors`); the same with outputs in units of the return
(`UnitLinear`); and, to see whether it matters, that with Adam's slots rewritten with the weights. The absolute floor of
the second arm is 1e-2 times the rewards' size, which the log would tell: its only handicap is the size of outputs.

The rule, set before the runs: a score is the mean length of a run's last 20 episodes, exploration included. An arm does
not depend on the size of rewards if its means under times 0.001 and times 1000 lie within the 95% interval (Student,
five seeds) of its own times 1, or above it. Slots matter if the last two arms' intervals do not overlap somewhere.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterable, Mapping

import gymnasium
import numpy as np
import torch
from torch import nn

import rbs_tf
from benchmarks.performance import ROOT

TABLE = ROOT / "docs/results/reward_units.csv"
ARMS = ("plain", "scaled", "units", "units_slots")
TIMES, SEEDS = (0.001, 1.0, 1000.0), range(5)
STUDENT = 2.776  # 97.5% quantile, 4 degrees of freedom
GAMMAS, ENVS, BATCH = np.array([0.9, 0.99], np.float32), 8, 64
STEPS, RANDOM_STEPS, EXPLORING_STEPS, TARGET_UPDATES = 1500, 60, 500, 100


def train(arm: str, times: float, seed: int) -> np.ndarray:
    """Lengths of a run's episodes, in the order of their ends."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    in_units = arm.startswith("units")
    scaled = rbs_tf.torch.ScaledErrors(2, 1e-2 if in_units else 1e-2 * times, floor_in_units=in_units)
    env = gymnasium.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
    env = gymnasium.wrappers.vector.TransformReward(env, lambda rewards: times * rewards)
    env = rbs_tf.CollectReturns(env, scaled, GAMMAS)
    online, target = _network(in_units), _network(in_units)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), 1e-3)
    gammas, rows = torch.from_numpy(GAMMAS), torch.arange(BATCH)
    replay: list[tuple] = []
    lengths, found, ended = np.zeros(ENVS, int), [], np.zeros(ENVS, bool)
    observations, _ = env.reset(seed=seed)
    for step in range(STEPS):
        with torch.no_grad():
            actions = online(torch.from_numpy(observations))[:, 1].argmax(-1).numpy()
        explores = rng.random(ENVS) < max(0.05, 1.0 - step / EXPLORING_STEPS)
        actions = np.where(explores | (step < RANDOM_STEPS), rng.integers(2, size=ENVS), actions)
        following, rewards, terminal, cut, _ = env.step(actions)
        for i in np.flatnonzero(~ended):  # the others have only been reset
            row = observations[i], actions[i], np.float32(rewards[i]), np.float32(~terminal[i]), following[i]
            replay.append(row)
        lengths += ~ended
        ended = terminal | cut
        found += lengths[ended].tolist()
        lengths[ended] = 0
        observations = following
        if step < RANDOM_STEPS:
            continue
        drawn = [replay[i] for i in rng.integers(len(replay), size=BATCH)]
        now, taken, given, goes_on, then = (torch.from_numpy(np.stack(x)) for x in zip(*drawn, strict=True))
        if in_units:
            before = online[-2].unit.clone()
            for network in (online, target):
                network[-2].to_unit_(scaled.unit)
            if arm == "units_slots":
                _rewrite_slots(optimizer, online[-2], before)
        with torch.no_grad():
            next_values = target(then)
            bootstrap = next_values[rows, :, next_values[:, 1].argmax(-1)]
            targets = given[:, None] + goes_on[:, None] * gammas * bootstrap
        errors = targets - online(now)[rows, :, taken]
        errors = errors if arm == "plain" else scaled(errors)
        optimizer.zero_grad()
        (0.5 * errors.square()).sum(-1).mean().backward()
        optimizer.step()
        if step % TARGET_UPDATES == 0:
            target.load_state_dict(online.state_dict())
    return np.array(found)


def _network(in_units: bool) -> nn.Sequential:
    """[B, 4] -> values [B, H, A]."""
    last = rbs_tf.torch.UnitLinear(64, 4, heads=2) if in_units else nn.Linear(64, 4)
    return nn.Sequential(
        nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), last, nn.Unflatten(-1, (2, 2))
    )


def _rewrite_slots(
    optimizer: torch.optim.Optimizer, last: rbs_tf.torch.UnitLinear, before: torch.Tensor
) -> None:
    """Adam's slots of the rewritten weights: gradients are 1 / ratio of what they were, m / r and v / r^2."""
    ratio = torch.where(before > 0.0, before / last.unit, 1.0).float().repeat_interleave(2)
    for parameter, rows in (last.weight, ratio[:, None]), (last.bias, ratio):
        if slots := optimizer.state.get(parameter):
            slots["exp_avg"] /= rows
            slots["exp_avg_sq"] /= rows**2


def main() -> None:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print what has been run")
    if not parser.parse_args().table:
        torch.set_num_threads(1)
        rows = []
        for seed in SEEDS:
            for arm in ARMS:
                for times in TIMES:
                    start = time.monotonic()
                    score = train(arm, times, seed)[-20:].mean()
                    took = time.monotonic() - start
                    rows.append(
                        dict(arm=arm, times=times, seed=seed, score=f"{score:.2f}", seconds=f"{took:.1f}")
                    )
                    print(*rows[-1].values(), flush=True)
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    with TABLE.open() as file:
        print(table([*csv.DictReader(file)]))


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """Mean scores and their 95% intervals, in Markdown."""
    lines = [f"| arm | {' | '.join(f'times {times:g}' for times in TIMES)} |", f"|---{'|---' * len(TIMES)}|"]
    for arm in ARMS:
        cells = []
        for times in TIMES:
            scores = [float(r["score"]) for r in rows if r["arm"] == arm and float(r["times"]) == times]
            half = STUDENT * np.std(scores, ddof=1) / len(scores) ** 0.5
            mean = np.mean(scores)
            cells.append(f"{mean:.0f} [{mean - half:.0f}, {mean + half:.0f}]")
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
