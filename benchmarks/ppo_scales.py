"""PPO with return-based scaling and without, rewards times 0.001, 1 and 1000: docs/actor_critics.md.

    make rivals-venv
    .venv-rivals/bin/python -m benchmarks.ppo_scales --rates  # a quarter of an hour of one core; it goes on
    .venv-rivals/bin/python -m benchmarks.ppo_scales          # two hours
    .venv-rivals/bin/python -m benchmarks.ppo_scales --table  # writes the page's table

Rules, written before the first run that counts:

* docs/examples/torch_ppo.py: PPO with GAE in the form that people copy. One torso of two layers of 64 tanh units for
  actor and critic, orthogonal weights, Adam (epsilon 1e-5, its rate annealed to 0), advantages normalised per
  minibatch, ratio clipped at 0.2, entropy 0.01, value loss 0.5 * 0.5 * error^2, gradients clipped to a norm of 0.5,
  discount 0.99, lambda 0.95, 4 epochs of 4 minibatches, 128 steps a rollout. Values are not clipped: a bound in the
  rewards' units would only hurt `plain`. A time-out is no end: the value of what would have followed counts.
* CartPole-v1: 8 environments, 102,400 steps. LunarLander-v3: 16 environments, 409,600 steps. The rate is the one of
  2.5e-4, 1e-3, 2.5e-3 and 5e-3 at which `plain` earns most with rewards times 1, three runs of other seeds (100 to
  102): the rival's best. `--rates` shows these runs. Every arm and every size of rewards takes it.
* Arms: `plain`; `sigma`, value errors divided by sigma, whose floor is a part of the unit; `sigma_unit`, the same with
  values in units of the return (the example's --scaling=units); `normalised`, Stable-Baselines3's reward normalisation:
  rewards over the running standard deviation of discounted sums, clipped at 10.
* Seeds 0 to 4. Score: mean return of the last 50 episodes in training, in the environment's own units.
* Intervals are 95%, Student's t: of a mean over five seeds, and Welch's of a difference of two means.
* `sigma` or `sigma_unit` helps in a cell (environment, size of rewards) if the interval of its difference to `plain` is
  above 0, and harms if it is below. It is recommended for PPO if it helps at times 1000 in both environments and harms
  in none of the six cells. The same difference to `normalised` is shown and decides nothing.

One row a run in docs/results/ppo.csv, beside the score the median norm of gradients before clipping, and the median
share of it that is the value loss's, both of the last minibatch of each rollout. Runs that are in the table are
skipped.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.performance import ROOT, put_between
from benchmarks.rows import Row, add, example, interval, missing, read, shown

TABLE = ROOT / "docs/results/ppo.csv"
RATES_TABLE = ROOT / "docs/results/ppo_rates.csv"
PAGE = ROOT / "docs/actor_critics.md"
BEGIN, END = "<!-- table: written by benchmarks/ppo_scales.py -->", "<!-- end of table -->"
ENVIRONMENTS = {"CartPole-v1": (8, 102_400), "LunarLander-v3": (16, 409_600)}  # how many, steps in all
RATES_TRIED, RATE_SEEDS = (2.5e-4, 1e-3, 2.5e-3, 5e-3), (100, 101, 102)
# Arm -> the example's scaling.
ARMS = {"plain": "off", "sigma": "sigma", "sigma_unit": "units", "normalised": "off"}
OURS = ("sigma", "sigma_unit")
TIMES = (0.001, 1.0, 1000.0)
SEEDS = range(5)
LAST = 50


class NormalisedRewards(gymnasium.vector.VectorWrapper):
    """Stable-Baselines3's `VecNormalize(norm_obs=False)`, its formula and its running statistics."""

    def __init__(self, envs: gymnasium.vector.VectorEnv, gamma: float):
        from stable_baselines3.common.running_mean_std import RunningMeanStd

        super().__init__(envs)
        self._gamma, self._statistics, self._sums = gamma, RunningMeanStd(shape=()), np.zeros(envs.num_envs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the environments', with other rewards."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self._sums = self._sums * self._gamma + rewards
        self._statistics.update(self._sums)
        self._sums[terminated | truncated] = 0.0
        rewards = np.clip(rewards / np.sqrt(self._statistics.var + 1e-8), -10.0, 10.0)
        return observations, rewards, terminated, truncated, info


def gradients_of(agent: Any, losses: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
    """The norm of the gradient of both losses, and the value loss's part of the torso's two squared gradients."""

    def squared(loss: Any, module: torch.nn.Module) -> float:
        found = torch.autograd.grad(loss, [*module.parameters()], retain_graph=True)
        return sum(float(gradient.square().sum()) for gradient in found)

    of_actor, of_value = (squared(loss, agent.torso) for loss in losses)
    return squared(sum(losses), agent) ** 0.5, of_value / max(of_actor + of_value, 1e-30)


def train(run: Row, steps: int | None = None) -> Row:
    """Makes a run of an environment, arm, times, seed and rate; returns its row of the table."""
    started = time.perf_counter()
    ppo, seen, calls = example("torch_ppo"), [], itertools.count(1)
    losses = ppo.losses

    def watched(agent: Any, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = losses(agent, *others)
        if next(calls) % (ppo.EPOCHS * ppo.MINIBATCHES) == 0:
            seen.append(gradients_of(agent, found))
        return found

    ppo.losses = watched
    num_envs, planned = ENVIRONMENTS[run["environment"]]
    envs = ppo.make(run["environment"], num_envs, float(run["times"]))
    if run["arm"] == "normalised":
        envs = NormalisedRewards(envs, ppo.GAMMA)
    returns = ppo.train(envs, ARMS[run["arm"]], int(run["seed"]), steps or planned, float(run["rate"]))
    envs.close()
    norm, share = np.median(seen, axis=0)
    return run | {
        "score": f"{np.mean(returns[-LAST:]):.2f}",
        "gradient_norm": f"{norm:.3g}",
        "value_share": f"{share:.3g}",
        "seconds": f"{time.perf_counter() - started:.0f}",
    }


def make(path: Path, runs: Iterable[tuple[str, str, float, int, float]]) -> None:
    """Makes the runs (environment, arm, times, seed, rate) that the table lacks."""
    given = (
        {"environment": name, "arm": arm, "times": f"{times:g}", "seed": str(seed), "rate": f"{rate:g}"}
        for name, arm, times, seed, rate in runs
    )
    for run in missing(path, given):
        add(path, train(run))


def scores(rows: list[Row]) -> dict[tuple[str, str, float], np.ndarray]:
    """(environment, arm, times) -> scores of its seeds, in the seeds' order, of cells that are complete."""
    found: dict[tuple[str, str, float], list[tuple[int, float]]] = {}
    for row in rows:
        cell = row["environment"], row["arm"], float(row["times"])
        found.setdefault(cell, []).append((int(row["seed"]), float(row["score"])))
    return {
        cell: np.array([score for _, score in sorted(of_seeds)])
        for cell, of_seeds in found.items()
        if len(of_seeds) == len(SEEDS)
    }


def is_complete() -> bool:
    """Whether all runs are in the table."""
    return len(read(TABLE)) == len(ENVIRONMENTS) * len(SEEDS) * len(TIMES) * len(ARMS)


def best_rates(rows: list[Row]) -> dict[str, float]:
    """Environment -> the rate at which `plain` earns most. Raises SystemExit while runs of `--rates` are missing."""
    found: dict[str, dict[float, list[float]]] = {name: {} for name in ENVIRONMENTS}
    for row in rows:
        found[row["environment"]].setdefault(float(row["rate"]), []).append(float(row["score"]))
    whole = [len(RATE_SEEDS)] * len(RATES_TRIED)
    if any([len(of_rate) for of_rate in of_rates.values()] != whole for of_rates in found.values()):
        raise SystemExit(f"{RATES_TABLE} is not complete: make its runs with --rates first")
    means = {name: {rate: np.mean(of[rate]) for rate in of} for name, of in found.items()}
    return {name: max(of, key=of.__getitem__) for name, of in means.items()}


def table(rows: list[Row]) -> list[str]:
    """Markdown: every arm's mean score in each cell, differences to `plain` and `normalised`, gradients, the verdicts.

    Bold is what the rules call help or harm. Empty cells lack runs.
    """
    cells, seen, lines = scores(rows), {arm: [] for arm in OURS}, []
    sizes = " | ".join(f"times {times:g}" for times in TIMES)
    for name in dict.fromkeys(environment for environment, *_ in cells):
        lines += [f"| {name} | {sizes} |", "|---" * (1 + len(TIMES)) + "|"]
        for arm in ARMS:
            means = [
                interval(cells[name, arm, times]) if (name, arm, times) in cells else None for times in TIMES
            ]
            lines.append(f"| `{arm}` | {' | '.join('' if mean is None else shown(mean) for mean in means)} |")
        for ours, theirs in itertools.product(OURS, ("plain", "normalised")):
            texts = []
            for times in TIMES:
                pair = [cells.get((name, arm, times)) for arm in (ours, theirs)]
                if pair[0] is None or pair[1] is None:
                    texts.append("")
                    continue
                found = interval(*pair)
                sign = int(found[1] > 0) - int(found[2] < 0)
                if theirs == "plain":
                    seen[ours].append((name, times, sign))
                texts.append(f"**{shown(found)}**" if sign and theirs == "plain" else shown(found))
            lines.append(f"| `{ours}` less `{theirs}` | {' | '.join(texts)} |")
        for arm in ARMS:
            lines.append(f"| `{arm}`: norm, value's part | {' | '.join(gradients(rows, name, arm))} |")
        lines.append("")
    for arm, signs in seen.items():
        if len(signs) == len(ENVIRONMENTS) * len(TIMES):
            lines.append(verdict(arm, signs))
    return lines if lines and lines[-1] else lines[:-1]


def gradients(rows: list[Row], name: str, arm: str) -> list[str]:
    """For each size of rewards the median over runs of the gradient's norm, and of the value loss's part in it."""
    texts = []
    for times in TIMES:
        of_cell = [
            (float(row["gradient_norm"]), float(row["value_share"]))
            for row in rows
            if (row["environment"], row["arm"], float(row["times"])) == (name, arm, times)
        ]
        texts.append(
            "{:.2g}, {:.0%}".format(*np.median(of_cell, axis=0)) if len(of_cell) == len(SEEDS) else ""
        )
    return texts


def verdict(arm: str, signs: list[tuple[str, float, int]]) -> str:
    """The rules' last word on an arm: of each cell (environment, times, +1 helps, -1 harms, 0 neither)."""
    helps, harms = (sum(found == sign for *_, found in signs) for sign in (1, -1))
    at_1000 = all(found == 1 for _, times, found in signs if times == TIMES[-1])
    word = "recommended" if at_1000 and not harms else "not recommended"
    return f"* `{arm}` helps in {helps} of {len(signs)} cells and harms in {harms}: {word} by the rules."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="write the page's table instead of making runs")
    parser.add_argument("--rates", action="store_true", help="make the runs that chose the rates instead")
    options = parser.parse_args()
    if options.table:
        if not is_complete():
            raise SystemExit(f"{TABLE} lacks runs: make them first")
        put_between(PAGE, BEGIN, END, "\n".join(table(read(TABLE))))
        return
    torch.set_num_threads(1)
    if options.rates:
        tried = itertools.product(ENVIRONMENTS, RATES_TRIED, RATE_SEEDS)
        make(RATES_TABLE, [(name, "plain", 1.0, seed, rate) for name, rate, seed in tried])
        return
    rates = best_rates(read(RATES_TABLE))
    # Seed by seed, so that what is there at any time compares all arms.
    order = itertools.product(ENVIRONMENTS, SEEDS, TIMES, ARMS)
    make(TABLE, [(name, arm, times, seed, rates[name]) for name, seed, times, arm in order])


if __name__ == "__main__":
    main()
